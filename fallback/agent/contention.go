package agent

import (
	"fmt"
	"time"

	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	// contendedAfter is how often in a row others undo what was applied until that is called contended.
	contendedAfter = 3
	// calm is how long figures must hold to end the row. A kubelet that resizes in place sets its own at each sync of the pod, every
	// 60 to 90 s.
	calm = 10 * time.Minute
	// The first repair is made at once: a reload of systemd is over by then. The second waits a second, the third, which is contended
	// already, for firstPause, each further one twice as long as the one before, up to lastPause.
	secondRepair = time.Second
	firstPause   = 10 * time.Second
	lastPause    = 5 * time.Minute
)

// contention is what others do to the cgroups of one pod.
type contention struct {
	// generation is that of the CRIResize for which the rest holds.
	generation int64
	// proven are the ids of the containers, by name, that were seen to hold what is wanted, with the pod's cgroup; nil: not now.
	proven map[string]string
	undone int       // in a row
	last   time.Time // when the last of them was noticed
	until  time.Time // no repair before
	what   string    // was found then
	// runs are the containers as they were then, and peeked is when they were last compared.
	runs   *observed
	peeked time.Time
}

// of starts anew when the CRIResize asks for something else.
func (c *contention) of(generation int64) {
	if c.generation != generation {
		*c = contention{generation: generation}
	}
}

// prove notes that all holds.
func (c *contention) prove(o *observed) {
	c.proven = make(map[string]string, len(o.containers))
	for name, seen := range o.containers {
		c.proven[name] = seen.ID
	}
}

// look notes it when somebody has changed a cgroup since it was seen to hold what is wanted. If a container is in another run than then,
// nobody is to blame: the kubelet started it from spec.
func (c *contention) look(o *observed, want figures.Pod, now time.Time) {
	if c.proven == nil {
		return
	}
	for name, seen := range o.containers {
		if c.proven[name] != seen.ID {
			return
		}
	}
	if d := o.difference(want); d != "" {
		c.note(d, o, now)
	}
}

// note counts one time that somebody undid it.
func (c *contention) note(what string, o *observed, now time.Time) {
	if now.Sub(c.last) >= calm {
		c.undone = 0
	}
	c.undone++
	c.last, c.what, c.proven, c.runs, c.peeked = now, what, nil, o, now
	c.until = now.Add(c.pause())
}

func (c *contention) pause() time.Duration {
	switch {
	case c.undone < contendedAfter-1:
		return 0
	case c.undone < contendedAfter:
		return secondRepair
	}
	pause := firstPause
	for range c.undone - contendedAfter {
		pause = min(2*pause, lastPause)
	}
	return pause
}

// holdsOff says whether a repair must wait.
func (c *contention) holdsOff(now time.Time) (verdict, bool) {
	if !now.Before(c.until) {
		return verdict{}, false
	}
	v := verdict{
		reason:  v1alpha1.ReasonPending,
		message: fmt.Sprintf("somebody else changed it: %s; it is applied again within %s", c.what, c.pause()),
		again:   min(c.until.Sub(now), lookSoon),
	}
	if c.undone >= contendedAfter {
		v.reason = v1alpha1.ReasonContended
		v.message = fmt.Sprintf("somebody else undid it %d times in a row: %s; the next try is %s later", c.undone, c.what, c.pause())
	}
	return v, true
}

// peek says whether it is time to see, in a pause, if the same containers run.
func (c *contention) peek(now time.Time) bool {
	if now.Sub(c.peeked) < lookSoon {
		return false
	}
	c.peeked = now
	return true
}
