package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// TestOrder: the pod's cgroup goes up before the containers and down after them, and what one container gives up is free before
// the next takes it.
func TestOrder(t *testing.T) {
	for _, tc := range []struct {
		name     string
		app, log string
		updates  []string
	}{
		{name: "nothing to do", app: "cpu=200m memory=256Mi", log: "cpu=100m memory=128Mi"},
		{name: "up", app: "cpu=2 memory=1Gi", log: "cpu=1 memory=512Mi", updates: []string{"app", "log"}},
		{name: "down", app: "cpu=150m memory=200Mi", log: "cpu=60m memory=80Mi", updates: []string{"app", "log"}},
		{name: "one up, one down", app: "cpu=250m memory=300Mi", log: "cpu=50m memory=84Mi", updates: []string{"log", "app"}},
		{name: "one alone", app: "cpu=200m memory=256Mi", log: "cpu=100m memory=256Mi", updates: []string{"log"}},
		{name: "CPU up, memory down", app: "cpu=1 memory=512Mi", log: "cpu=1 memory=100Mi", updates: []string{"log", "app"}},
		{name: "a limit ends", app: "memory=256Mi", log: "cpu=100m memory=128Mi", updates: []string{"app"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for version, unified := range versions() {
				t.Run(version, func(t *testing.T) {
					object := asking(tc.app, tc.log)
					before, want := figures.Before(&object.Spec), figures.Wanted(&object.Spec)
					b := newBed(t, unified, object)
					if _, err := b.look(t); err != nil {
						t.Fatal(err)
					}
					b.says(t, v1alpha1.ReasonApplied)
					b.holds(t, want)
					if diff := cmp.Diff(tc.updates, b.updates); diff != "" {
						t.Errorf("updates: %s", diff)
					}
					room := larger(before.Cgroup, want.Cgroup)
					for i, pod := range b.seen {
						if !holdsQuota(pod, room) || !cgroup.MemoryHolds(room.Memory, pod.Memory) {
							t.Errorf("at update %d the pod has %+v, want the larger of before and after %+v", i, pod, room)
						}
					}
				})
			}
		})
	}
}

// TestFailingUpdate: what the status says is what the kernel holds, however far an update came.
func TestFailingUpdate(t *testing.T) {
	for _, tc := range []struct {
		name     string
		err      error
		half     bool // the runtime wrote something before it failed
		reason   string
		restores bool
	}{
		{name: "refused", err: fmt.Errorf("%w: write cpu.max:\n invalid argument", cri.ErrRefused), reason: v1alpha1.ReasonWriteFailed},
		{name: "refused half-way", err: fmt.Errorf("%w: write memory.max: busy", cri.ErrRefused), half: true, reason: v1alpha1.ReasonWriteFailed},
		{name: "unavailable", err: fmt.Errorf("%w: deadline exceeded", cri.ErrUnavailable), reason: v1alpha1.ReasonRuntimeUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for version, unified := range versions() {
				t.Run(version, func(t *testing.T) {
					object := asking("cpu=2 memory=1Gi", "cpu=1 memory=512Mi")
					want := figures.Wanted(&object.Spec)
					b := newBed(t, unified, object)
					b.fail = func(container string) error {
						if container != "log" {
							return nil
						}
						if tc.half {
							half := figures.Before(&object.Spec).Containers["log"]
							half.Quota = want.Containers["log"].Quota
							b.set(t, podPath+"/c-log", half)
						}
						return tc.err
					}
					if _, err := b.look(t); !errors.Is(err, tc.err) {
						t.Fatalf("got %v, want %v, for another try", err, tc.err)
					}
					said := b.says(t, tc.reason, `container "log"`, strings.Join(strings.Fields(tc.err.Error()), " "))
					checkStatus(t, b, said)
					b.fail = nil
					if _, err := b.look(t); err != nil {
						t.Fatal(err)
					}
					b.says(t, v1alpha1.ReasonApplied)
					b.holds(t, want)
				})
			}
		})
	}
}

// checkStatus compares the figures in the status with the kernel's.
func checkStatus(t *testing.T, b *bed, object *v1alpha1.CRIResize) {
	t.Helper()
	kernel := b.kernel(t)
	if diff := cmp.Diff(kernelOf(kernel[""]), *object.Status.Pod); diff != "" {
		t.Errorf("pod: %s", diff)
	}
	for _, c := range object.Status.Containers {
		if diff := cmp.Diff(kernelOf(kernel[c.Name]), c.Kernel); diff != "" {
			t.Errorf("container %q: %s", c.Name, diff)
		}
	}
}

// TestNotEffective: a runtime that is content but changed nothing is not believed.
func TestNotEffective(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			object := asking("cpu=2 memory=1Gi", "cpu=1 memory=512Mi")
			b := newBed(t, unified, object)
			b.agent.runtime = content{b}
			if _, err := b.look(t); err == nil {
				t.Error("no other try")
			}
			checkStatus(t, b, b.says(t, v1alpha1.ReasonWriteFailed, "after writing", `"app"`, "is 20000, expected 200000"))
		})
	}
}

// content is a runtime that does nothing.
type content struct{ *bed }

func (content) Update(context.Context, string, cri.Resources) error { return nil }

// TestContainerDown: while a container does not run, the pod keeps room for what the kubelet starts it with.
func TestContainerDown(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			object := asking("cpu=150m memory=200Mi", "cpu=60m memory=80Mi")
			before, want := figures.Before(&object.Spec), figures.Wanted(&object.Spec)
			b := newBed(t, unified, object)
			b.stops("log")
			result, err := b.look(t)
			if err != nil || result.RequeueAfter != soonest {
				t.Fatalf("got %+v, %v", result, err)
			}
			said := b.says(t, v1alpha1.ReasonContainerNotRunning, `"log"`)
			if len(said.Status.Containers) != 1 {
				t.Errorf("the status has figures of %d containers", len(said.Status.Containers))
			}
			b.holds(t, figures.Pod{Cgroup: before.Cgroup, Containers: map[string]figures.Cgroup{"app": want.Containers["app"], "log": before.Containers["log"]}})

			b.pod.Containers = append(b.pod.Containers, cri.Container{ID: "c-log", Name: "log", CgroupsPath: podPath + "/c-log"})
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			b.says(t, v1alpha1.ReasonApplied)
			b.holds(t, want)
		})
	}
}

// TestMemoryInUse is case-83: nothing is written before it is sure that no limit sinks onto what is in use.
func TestMemoryInUse(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name string
		path string
		used int64
		app  string
		say  []string // nothing: it goes through
	}{
		{name: "container", path: podPath + "/c-app", used: 191 * mib, app: "cpu=2 memory=200Mi", say: []string{`container "app"`, "200278016", "209715200"}},
		{name: "container with room", path: podPath + "/c-app", used: 190 * mib, app: "cpu=2 memory=200Mi"},
		{name: "pod", path: podPath, used: 320 * mib, app: "cpu=2 memory=200Mi", say: []string{"the pod", "335544320", "343932928"}},
		{name: "up is always right", path: podPath, used: 1000 * mib, app: "cpu=2 memory=300Mi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for version, unified := range versions() {
				t.Run(version, func(t *testing.T) {
					object := asking(tc.app, "cpu=100m memory=128Mi")
					b := newBed(t, unified, object)
					b.uses(t, tc.path, tc.used)
					result, err := b.look(t)
					if err != nil {
						t.Fatal(err)
					}
					if len(tc.say) == 0 {
						b.says(t, v1alpha1.ReasonApplied)
						return
					}
					checkStatus(t, b, b.says(t, v1alpha1.ReasonMemoryInUse, tc.say...))
					b.holds(t, figures.Before(&object.Spec))
					if result.RequeueAfter != lookSoon || len(b.updates) > 0 {
						t.Errorf("got %+v after updates %q", result, b.updates)
					}
				})
			}
		})
	}
}

// TestDecreasesFirst also where several containers change both ways.
func TestDecreasesFirst(t *testing.T) {
	o := &observed{containers: map[string]observedContainer{}}
	want := figures.Pod{Containers: map[string]figures.Cgroup{}}
	for name, c := range map[string]struct{ have, want figures.Cgroup }{
		"a-up":        {figures.Cgroup{Quota: 1, Memory: 1}, figures.Cgroup{Quota: 2, Memory: 2}},
		"b-down":      {figures.Cgroup{Quota: 2, Memory: 2}, figures.Cgroup{Quota: 1, Memory: 2}},
		"c-unlimited": {figures.Cgroup{Quota: 2, Memory: 2}, figures.Cgroup{Quota: -1, Memory: -1}},
		"d-limited":   {figures.Cgroup{Quota: -1, Memory: -1}, figures.Cgroup{Quota: 9, Memory: 9}},
		"e-memory":    {figures.Cgroup{Quota: 1, Memory: 2}, figures.Cgroup{Quota: 2, Memory: 1}},
	} {
		o.containers[name] = observedContainer{kernel: cgroup.Values{Quota: c.have.Quota, Memory: c.have.Memory}}
		want.Containers[name] = c.want
	}
	want.Containers["f-down"] = figures.Cgroup{} // does not run
	if got := decreasesFirst(o, want); !slices.Equal(got, []string{"b-down", "d-limited", "e-memory", "a-up", "c-unlimited"}) {
		t.Errorf("got %q", got)
	}
}

// TestAmbiguousWeight is case-85: cpu.weight 39 is 1000m by the kubelet's formula and 290m by the newer one of the runtimes.
func TestAmbiguousWeight(t *testing.T) {
	object := newObject()
	object.Spec.Containers[0].Before = requirements("cpu=1000m memory=128Mi", "cpu=2 memory=256Mi")
	object.Spec.Containers[0].Wanted = requirements("cpu=290m memory=128Mi", "cpu=2 memory=256Mi")
	b := newBed(t, true, object)
	for range 2 {
		if _, err := b.look(t); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.updates) != 1 || b.updates[0] != "app" {
		t.Errorf("updates of %q, want one of app", b.updates)
	}
	b.says(t, v1alpha1.ReasonApplied)
}
