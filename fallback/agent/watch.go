package agent

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// watch turns what happens in the cgroups of followed pods into looks at them: a container that came or went, or another writer.
// Our own writes are told too; the look that they cause finds everything as it should be.
func (a *Agent) watch(ctx context.Context, moved chan<- event.TypedGenericEvent[types.NamespacedName]) error {
	return a.watcher.Run(ctx, func(path string) {
		a.mu.Lock()
		name, ok := a.followed[path]
		a.mu.Unlock()
		if !ok {
			return
		}
		select {
		case moved <- event.TypedGenericEvent[types.NamespacedName]{Object: name}:
		case <-ctx.Done():
		}
	})
}

// follow watches the cgroup of a pod from now on. Without a watch the slow look remains, so a failure is told and no more.
func (a *Agent) follow(ctx context.Context, object *v1alpha1.CRIResize, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.followed[path] = types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	if err := a.watcher.Add(path); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Cgroup not watched, changes are noticed late", "cgroup", path)
	}
}

// release ends the watch of a pod.
func (a *Agent) release(name types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for path, n := range a.followed {
		if n == name {
			delete(a.followed, path)
			a.watcher.Remove(path)
		}
	}
}
