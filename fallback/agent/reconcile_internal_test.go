package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

func enlarging(t *testing.T, unified bool) *bed {
	t.Helper()
	return newBed(t, unified, asking("cpu=2 memory=1Gi", "cpu=1 memory=512Mi"))
}

// TestNodeDiffers: where somebody else sets the figures, or the kubelet none, nothing is written.
func TestNodeDiffers(t *testing.T) {
	object := newObject()
	before := figures.Before(&object.Spec)
	noQuota, otherPeriod, otherMemory, podShares := before.Containers["app"], before.Containers["app"], before.Containers["log"], before.Cgroup
	noQuota.Quota = figures.Unlimited
	otherPeriod.Period = 50_000
	otherMemory.Memory = 1 << 30
	podShares.Shares = 4096
	for _, tc := range []struct {
		name, path string
		holds      figures.Cgroup
		say        []string
	}{
		{name: "CFS quota off", path: podPath + "/c-app", holds: noQuota, say: []string{`container "app": its CPU quota is -1, expected 20000`, "nothing was written"}},
		{name: "another period", path: podPath + "/c-app", holds: otherPeriod, say: []string{`"app": its CPU quota`}},
		{name: "another writer", path: podPath + "/c-log", holds: otherMemory, say: []string{`container "log": its memory limit is 1073741824, expected 134217728`}},
		{name: "the pod's", path: podPath, holds: podShares, say: []string{"the pod's CPU"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for version, unified := range versions() {
				t.Run(version, func(t *testing.T) {
					b := enlarging(t, unified)
					b.set(t, tc.path, tc.holds)
					was := b.kernel(t)
					result, err := b.look(t)
					if err != nil || result.RequeueAfter != lookAgain {
						t.Fatalf("got %+v, %v", result, err)
					}
					said := b.says(t, v1alpha1.ReasonNodeDiffers, tc.say...)
					checkStatus(t, b, said)
					if diff := cmp.Diff(was, b.kernel(t)); diff != "" || len(b.updates) > 0 || len(said.Status.Applied) > 0 {
						t.Errorf("updates %q, applied %v, kernel: %s", b.updates, said.Status.Applied, diff)
					}
				})
			}
		})
	}
}

// TestAdoption is noted before the first write, so that an agent that dies half-way knows its own figures afterwards.
func TestAdoption(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			was := b.kernel(t)
			var atFirst map[string]cgroup.Values
			b.report = func() error {
				if atFirst == nil {
					atFirst = b.kernel(t)
				}
				return nil
			}
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(was, atFirst); diff != "" {
				t.Errorf("written before it was noted: %s", diff)
			}
			object := newObject()
			for i, c := range b.reports[0].Applied {
				if diff := cmp.Diff(object.Spec.Containers[i].Before, c.Resources); diff != "" {
					t.Errorf("adopted container %q: %s", c.Name, diff)
				}
			}
			if len(b.reports) != 2 || len(b.reports[0].Applied) != 2 || len(b.reports[0].Conditions) > 0 {
				t.Fatalf("%d reports, the first has %+v", len(b.reports), b.reports[0])
			}
			// Half-way: any mixture of figures is its own doing now, also for another agent process.
			half := figures.Before(&object.Spec).Containers["app"]
			half.Quota = 77_000
			b.set(t, podPath+"/c-app", half)
			b.agent = b.newAgent(t)
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			b.says(t, v1alpha1.ReasonApplied)
			said := b.says(t, v1alpha1.ReasonApplied)
			b.holds(t, figures.Wanted(&said.Spec))
		})
	}
}

func TestAdoptionNotNoted(t *testing.T) {
	b := enlarging(t, false)
	was := b.kernel(t)
	b.report = func() error { return errors.New("away") }
	if _, err := b.look(t); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("got %v, want another try", err)
	}
	if diff := cmp.Diff(was, b.kernel(t)); diff != "" || len(b.updates) > 0 {
		t.Errorf("updates %q, kernel: %s", b.updates, diff)
	}
}

// TestNotEnforced: the kernel is left as it is, and what it holds is told.
func TestNotEnforced(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			object := asking("cpu=2 memory=1Gi", "cpu=1 memory=512Mi")
			object.Spec.Enforce = ptr.To(false)
			b := newBed(t, unified, object)
			was := b.kernel(t)
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			checkStatus(t, b, b.says(t, v1alpha1.ReasonNotEnforced))
			if diff := cmp.Diff(was, b.kernel(t)); diff != "" || len(b.updates) > 0 {
				t.Errorf("updates %q, kernel: %s", b.updates, diff)
			}
		})
	}
}

// TestNotOurs: another node's object, and one that is being deleted, are nobody's business here.
func TestNotOurs(t *testing.T) {
	object := asking("cpu=2 memory=1Gi", "cpu=1 memory=512Mi")
	object.Spec.NodeName = "n2"
	b := newBed(t, false, object)
	was := b.kernel(t)
	if _, err := b.look(t); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(was, b.kernel(t)); diff != "" || len(b.updates)+len(b.reports) > 0 {
		t.Errorf("updates %q, %d reports, kernel: %s", b.updates, len(b.reports), diff)
	}
}

// TestQuiet: while nothing moves nothing is written, neither to the kernel nor to the API server.
func TestQuiet(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			reports, updates := len(b.reports), len(b.updates)
			for range 3 {
				result, err := b.look(t)
				if err != nil || result.RequeueAfter != lookAgain {
					t.Fatalf("got %+v, %v", result, err)
				}
			}
			if len(b.reports) != reports || len(b.updates) != updates {
				t.Errorf("%d more reports, %d more updates", len(b.reports)-reports, len(b.updates)-updates)
			}
		})
	}
}

// TestDrift is case-84: what another writer undoes is done again.
func TestDrift(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			object := newObject()
			before := figures.Before(&object.Spec)
			b.set(t, podPath, before.Cgroup)
			b.set(t, podPath+"/c-app", before.Containers["app"])
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			said := b.says(t, v1alpha1.ReasonApplied)
			b.holds(t, figures.Wanted(&said.Spec))
		})
	}
}

// TestBack: going back is a want like any other.
func TestBack(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			b.change(t, func(s *v1alpha1.CRIResizeSpec) {
				for i := range s.Containers {
					s.Containers[i].Wanted = s.Containers[i].Before
				}
			})
			if _, err := b.look(t); err != nil {
				t.Fatal(err)
			}
			said := b.says(t, v1alpha1.ReasonApplied)
			b.holds(t, figures.Before(&said.Spec))
			if said.Status.Containers[0].ContainerID != "c-app" || said.Status.Containers[0].RestartCount != 2 {
				t.Errorf("got %+v", said.Status.Containers[0])
			}
		})
	}
}

func TestRuntimeAnswers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		pod    cri.Pod
		reason string
		again  time.Duration // zero: by an error
	}{
		{name: "case-90 unavailable", err: fmt.Errorf("%w: gone", cri.ErrUnavailable), reason: v1alpha1.ReasonRuntimeUnavailable},
		{name: "no sandbox", err: fmt.Errorf("sandbox: %w", cri.ErrNotFound), reason: v1alpha1.ReasonPodNotFound, again: lookSoon},
		{name: "refused", err: fmt.Errorf("%w: no", cri.ErrRefused), reason: v1alpha1.ReasonPending},
		{name: "a pod of another namespace", pod: cri.Pod{Namespace: "kube-system", Name: "web", CgroupsPath: podPath + "/sandbox"}, reason: v1alpha1.ReasonPodNotFound, again: lookSoon},
		{name: "a pod of another name", pod: cri.Pod{Namespace: "shop", Name: "db", CgroupsPath: podPath + "/sandbox"}, reason: v1alpha1.ReasonPodNotFound, again: lookSoon},
		{name: "no cgroup", pod: cri.Pod{Namespace: "shop", Name: "web"}, reason: v1alpha1.ReasonContainerNotRunning, again: lookSoon},
		{name: "a cgroup that is no pod's", pod: cri.Pod{Namespace: "shop", Name: "web", Containers: []cri.Container{{Name: "app", CgroupsPath: "/system/x"}}}, reason: v1alpha1.ReasonPending},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := enlarging(t, false)
			b.podErr, b.pod = tc.err, tc.pod
			result, err := b.look(t)
			if (err == nil) != (tc.again > 0) || result.RequeueAfter != tc.again {
				t.Errorf("got %+v, %v", result, err)
			}
			b.says(t, tc.reason)
		})
	}
}

func TestValidate(t *testing.T) {
	if err := (Options{NodeName: "n1", RuntimeEndpoint: "/s", CgroupRoot: "/c"}).Validate(); err != nil {
		t.Error(err)
	}
	err := Options{}.Validate()
	for _, option := range []string{"node-name:", "runtime-endpoint:", "cgroup-root:"} {
		if err == nil || !strings.Contains(err.Error(), option) {
			t.Errorf("%v does not name %s", err, option)
		}
	}
}
