package agent

import (
	"context"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	// throughRuntime is how often the runtime is asked for a pod in whose cgroups nothing happens.
	throughRuntime = 5 * time.Minute
	// answersFor is how long a runtime that has answered is taken to be there.
	answersFor = 5 * time.Second
	// soonest is the shortest pause while a container is started.
	soonest = 20 * time.Millisecond
)

// glance looks at a pod without asking the runtime for it: a pod that was seen to hold what is wanted, whose cgroups are the same ones
// and still do. Any other container has a cgroup of its own, so that it is noticed, as is one that has ended. Asking the runtime costs
// ten times as much, on both sides.
func (a *Agent) glance(ctx context.Context, object *v1alpha1.CRIResize, k *known) (*observed, bool) {
	then := k.rest
	if then == nil || len(then.hollow) > 0 || a.clock.Since(then.at) >= throughRuntime || !wasApplied(object) {
		return nil, false
	}
	if !a.answers.lately(ctx, a) || !a.sameCgroups(then) {
		return nil, false
	}
	now := *then
	now.containers = make(map[string]observedContainer, len(then.containers))
	for name, c := range then.containers {
		var err error
		if c.kernel, err = a.readRunning(c.path); err != nil {
			return nil, false
		}
		now.containers[name] = c
	}
	var err error
	if now.pod, err = a.tree.Read(then.path); err != nil || now.difference(figures.Wanted(&object.Spec)) != "" {
		return nil, false
	}
	return &now, true
}

// strangers are the cgroups in the pod's that are neither its sandbox's nor those of the known containers.
func (a *Agent) strangers(o *observed) ([]string, error) {
	children, err := a.tree.Children(o.path)
	known := map[string]bool{path.Base(o.sandbox): true}
	for _, c := range o.containers {
		known[path.Base(c.path)] = true
	}
	return slices.DeleteFunc(children, func(child string) bool { return known[child] }), err
}

// sameCgroups says whether the pod's cgroup holds those of its sandbox and of the known containers, and no other.
func (a *Agent) sameCgroups(then *observed) bool {
	strangers, err := a.strangers(then)
	return err == nil && len(strangers) == 0
}

// starting is a cgroup of a container that the runtime does not call running yet.
type starting struct {
	name  string
	since time.Time
}

// lookForStart is when to look for a container that does not run. Nothing tells when a container has been started, but its cgroup is
// there some time before: from then on the pauses are a quarter of the time since.
func (a *Agent) lookForStart(o *observed, k *known) time.Duration {
	strangers, err := a.strangers(o)
	if err != nil || len(strangers) == 0 {
		return lookSoon
	}
	if name := strangers[0]; k.starting.name != name {
		k.starting = starting{name: name, since: a.clock.Now()}
	}
	return min(max(a.clock.Since(k.starting.since)/4, soonest), lookSoon)
}

// answers is when the runtime last answered.
type answers struct {
	mu sync.Mutex
	at time.Time
}

// lately says whether the runtime answers, or did so a moment ago.
func (w *answers) lately(ctx context.Context, a *Agent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.clock.Since(w.at) < answersFor {
		return true
	}
	if a.runtime.Check(ctx) != nil {
		return false
	}
	w.at = a.clock.Now()
	return true
}
