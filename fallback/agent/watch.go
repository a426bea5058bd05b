package agent

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// moves are the names of CRIResizes whose pods are to be looked at.
type moves chan event.TypedGenericEvent[types.NamespacedName]

func (m moves) send(ctx context.Context, name types.NamespacedName) {
	select {
	case m <- event.TypedGenericEvent[types.NamespacedName]{Object: name}:
	case <-ctx.Done():
	}
}

// watch turns what happens in the cgroups of followed pods into looks at them: a container that came or went, or another writer.
// Our own writes are told too; the look that they cause finds everything as it should be.
func (a *Agent) watch(ctx context.Context, moved moves) error {
	return a.watcher.Run(ctx, a.tells(ctx, moved))
}

// tells sends what happened in a cgroup to the look at its pod, or where no pod is followed to the finder.
func (a *Agent) tells(ctx context.Context, moved moves) func(path string) {
	return func(path string) {
		if name, ok := a.pods.at(path); ok {
			moved.send(ctx, name)
			return
		}
		a.finder.queue.Add(path)
	}
}

// follow watches the cgroups of a pod and its containers from now on, and those alone. Without a watch the slow look remains, so a
// failure is told and no more.
func (a *Agent) follow(ctx context.Context, name types.NamespacedName, o *observed) {
	paths := []string{o.path}
	for _, c := range o.containers {
		paths = append(paths, c.path)
	}
	now := make(map[string]bool, len(paths))
	for _, path := range paths {
		now[path] = true
	}
	for _, path := range a.pods.watched(name, paths) {
		if !now[path] {
			a.watcher.Remove(path)
		}
	}
	for _, path := range paths {
		if err := a.watcher.Add(path); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Cgroup not watched, changes are noticed late", "cgroup", path)
		}
	}
}

// unfollow ends the watch of a pod.
func (a *Agent) unfollow(name types.NamespacedName) {
	for _, path := range a.pods.watched(name, nil) {
		a.watcher.Remove(path)
	}
}
