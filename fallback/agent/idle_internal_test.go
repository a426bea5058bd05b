package agent

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// counting counts how often the runtime is asked for a pod.
type counting struct {
	runtime

	asked int
}

func (c *counting) Pod(ctx context.Context, uid string) (cri.Pod, error) {
	c.asked++
	return c.runtime.Pod(ctx, uid)
}

// TestGlance: a pod that holds what is wanted is not asked for at the runtime for a while, unless something happens in its cgroups.
func TestGlance(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			count := &counting{runtime: b}
			b.agent.runtime = count
			looks := func(want int, what string) {
				t.Helper()
				count.asked = 0
				again := b.mustLook(t)
				if count.asked != want || again != lookAgain {
					t.Errorf("%s: the runtime was asked %d times, want %d; next look after %s", what, count.asked, want, again)
				}
				b.says(t, v1alpha1.ReasonApplied)
			}
			looks(2, "a resize, and the proof")
			looks(0, "nothing")
			b.passes(lookAgain)
			looks(0, "nothing for a while")
			b.passes(throughRuntime)
			looks(1, "nothing for long")
			looks(0, "nothing again")
			b.undo(t)
			looks(2, "another writer")
			b.restarts(t, "c-app-2")
			b.removes(t, "c-app")
			looks(2, "another run of a container")
			looks(0, "nothing since")
			b.put(t, b.cpuDir("c-debug")+"/x", "")
			looks(1, "a container that was added")
			b.change(t, func(s *v1alpha1.CRIResizeSpec) { s.Containers[0].Wanted.Limits = list("cpu=250m memory=512Mi") })
			looks(2, "another resize, with a stranger there")
			b.removes(t, "c-debug")
			b.change(t, func(s *v1alpha1.CRIResizeSpec) { s.Containers[0].Wanted.Limits = list("cpu=300m memory=512Mi") })
			looks(1, "another resize")
		})
	}
}

// TestGlanceNeedsTheRuntime: of a runtime that does not answer is told, whatever the cgroups hold.
func TestGlanceNeedsTheRuntime(t *testing.T) {
	b := enlarging(t, true)
	b.mustLook(t)
	b.mustLook(t)
	b.podErr = cri.ErrUnavailable
	b.passes(answersFor)
	if _, err := b.look(t); err == nil {
		t.Error("no error")
	}
	b.says(t, v1alpha1.ReasonRuntimeUnavailable)
}

// TestLookForStart: a container that is being started is looked for more often than one that is down.
func TestLookForStart(t *testing.T) {
	b := enlarging(t, false)
	b.mustLook(t)
	b.stops("app")
	b.removes(t, "c-app")
	if again := b.mustLook(t); again != lookSoon {
		t.Errorf("a container that is down is looked for after %s, want %s", again, lookSoon)
	}
	b.put(t, b.cpuDir("c-app-2")+"/x", "")
	looks, waited := 0, time.Duration(0)
	for again := b.mustLook(t); again < lookSoon; again = b.mustLook(t) {
		if again < soonest || again > max(soonest, waited/4) {
			t.Fatalf("after %s it is looked for again in %s", waited, again)
		}
		looks, waited = looks+1, waited+again
		b.passes(again)
	}
	if looks > 40 {
		t.Errorf("%d looks at a container that does not start", looks)
	}
	b.restarts(t, "c-app-2")
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
}

// cpuDir is the cgroup of a child of the pod's, in the tree where it is looked for.
func (b *bed) cpuDir(child string) string {
	if b.tree.Unified() {
		return podPath + "/" + child
	}
	return "cpu" + podPath + "/" + child
}

// removes ends a cgroup, as the runtime does when its container has ended.
func (b *bed) removes(t *testing.T, child string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(b.root, b.cpuDir(child))); err != nil {
		t.Fatal(err)
	}
}
