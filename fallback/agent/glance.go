package agent

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// throughRuntime is how often the runtime is asked for a pod in whose cgroups nothing happens.
	throughRuntime = 5 * time.Minute
	// answersFor is how long a runtime that has answered is taken to be there.
	answersFor = 5 * time.Second
	// soonest is the shortest pause while a container is started.
	soonest = 20 * time.Millisecond
)

// glance looks at a pod without asking the runtime for it: one whose cgroups are the same ones as then, with processes in those of its
// containers, and hold the same figures. Any other container has a cgroup of its own, so that it is noticed, as is one that has ended.
// Asking the runtime costs ten times as much, on both sides.
func (a *Agent) glance(ctx context.Context, then *observed) (*observed, bool) {
	if then == nil || len(then.hollow) > 0 || a.clock.Since(then.at) >= throughRuntime {
		return nil, false
	}
	if !a.answers.lately(ctx, a) || !a.sameCgroups(then) {
		return nil, false
	}
	if pod, err := a.tree.Read(then.path); err != nil || pod != then.pod {
		return nil, false
	}
	for _, c := range then.containers {
		if kernel, err := a.readRunning(c.path); err != nil || kernel != c.kernel {
			return nil, false
		}
	}
	return then, true
}

// strangers are the cgroups in a pod's that are not known.
func (a *Agent) strangers(pod string, known []string) ([]string, error) {
	children, err := a.tree.Children(pod)
	return slices.DeleteFunc(children, func(child string) bool { return slices.Contains(known, child) }), err
}

// cgroups are those of the sandbox and of the running containers.
func (o *observed) cgroups() []string {
	paths := []string{o.sandbox}
	for _, c := range o.containers {
		paths = append(paths, c.path)
	}
	return paths
}

// sameCgroups says whether the pod's cgroup holds those of its sandbox and of the known containers, and no other.
func (a *Agent) sameCgroups(then *observed) bool {
	strangers, err := a.strangers(then.path, then.cgroups())
	return err == nil && len(strangers) == 0
}

// starting are cgroups in a pod's that are no known container's: that of one which is being started is among them.
type starting struct {
	names []string
	since time.Time
}

// next is when to look for the container. Nothing tells when it has been started, but its cgroup is there some time before: from then on
// the pauses are a quarter of the time since.
func (s *starting) next(strangers []string, now time.Time) time.Duration {
	if !slices.Equal(s.names, strangers) {
		*s = starting{names: strangers, since: now}
	}
	return min(max(now.Sub(s.since)/4, soonest), lookSoon)
}

// lookForStart is when to look for a container that does not run.
func (a *Agent) lookForStart(o *observed, k *known) time.Duration {
	strangers, err := a.strangers(o.path, o.cgroups())
	if err != nil || len(strangers) == 0 {
		return lookSoon
	}
	return k.starting.next(strangers, a.clock.Now())
}

// answers is when the runtime last answered.
type answers struct {
	mu     sync.Mutex
	at     time.Time
	failed time.Time // it last did not
}

// lately says whether the runtime answers, or did so a moment ago.
func (w *answers) lately(ctx context.Context, a *Agent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.clock.Since(w.at) < answersFor {
		return true
	}
	if a.clock.Since(w.failed) < time.Second {
		return false
	}
	if a.runtime.Check(ctx) != nil {
		w.failed = a.clock.Now()
		return false
	}
	w.at = a.clock.Now()
	return true
}
