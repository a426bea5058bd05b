package agent

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// leaves has the agent look and checks that it wrote nothing.
func (b *bed) leaves(t *testing.T) {
	t.Helper()
	was := b.kernel(t)
	b.mustLook(t)
	if diff := cmp.Diff(was, b.kernel(t)); diff != "" || len(b.updates) > 0 {
		t.Errorf("updates %q, kernel: %s", b.updates, diff)
	}
}

// TestSandboxed: a container that stays without a process on this host runs elsewhere. One that is about to end does not stay.
func TestSandboxed(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			b.pod.RuntimeHandler = "vm"
			for _, c := range []string{"app", "log"} {
				b.put(t, podPath+"/c-"+c+"/cgroup.events", "populated 0")
				b.put(t, "memory"+podPath+"/c-"+c+"/memory.usage_in_bytes", "0")
			}
			b.leaves(t)
			b.says(t, v1alpha1.ReasonContainerNotRunning)
			b.passes(hollowFor)
			b.leaves(t)
			b.says(t, v1alpha1.ReasonSandboxed, `container "app"`, `handler "vm"`)
		})
	}
}

// TestEnding: a container that ends takes a moment to be listed as ended, and is another one after its restart.
func TestEnding(t *testing.T) {
	b := enlarging(t, false)
	b.put(t, "memory"+podPath+"/c-app/memory.usage_in_bytes", "0")
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonContainerNotRunning)
	b.passes(hollowFor)
	b.restarts(t, "run-1")
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
}

// TestExclusiveCPUs is case-64: what the static policies have pinned is not resized, and the reason names the policy.
func TestExclusiveCPUs(t *testing.T) {
	pinned := func(c *cri.Container) { c.CPUs = "2-3" }
	for name, tc := range map[string]struct {
		class  corev1.PodQOSClass
		cpuset func(*cri.Container)
		say    string // "": resized
	}{
		"Guaranteed, CPU":    {corev1.PodQOSGuaranteed, pinned, "static policy of the CPU manager"},
		"Guaranteed, memory": {corev1.PodQOSGuaranteed, func(c *cri.Container) { c.MemoryNodes = "0" }, "static policy of the memory manager"},
		"Guaranteed, none":   {corev1.PodQOSGuaranteed, func(*cri.Container) {}, ""},
		"in the shared pool": {corev1.PodQOSBurstable, pinned, ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := asking("cpu=2 memory=1Gi", "cpu=1 memory=512Mi")
			object.Spec.QOSClass = tc.class
			b := newBed(t, false, object)
			tc.cpuset(&b.pod.Containers[1])
			if tc.say == "" {
				b.mustLook(t)
				b.says(t, v1alpha1.ReasonApplied)
				return
			}
			b.leaves(t)
			b.says(t, v1alpha1.ReasonExclusiveCPUs, `"log"`, tc.say)
		})
	}
}

// TestSwap is case-65: beside some swap a memory limit is not changed, CPU is.
func TestSwap(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			before := figures.Before(&newObject().Spec).Containers["app"].Memory
			b.put(t, podPath+"/c-app/memory.swap.max", "4096")
			b.put(t, "memory"+podPath+"/c-app/memory.memsw.limit_in_bytes", strconv.FormatInt(before+4096, 10))
			b.leaves(t)
			b.says(t, v1alpha1.ReasonNodeDiffers, `container "app"`, "4096 bytes of swap")
			b.change(t, func(s *v1alpha1.CRIResizeSpec) {
				for i := range s.Containers {
					s.Containers[i].Wanted.Limits = list("cpu=2")
					s.Containers[i].Wanted.Limits[corev1.ResourceMemory] = s.Containers[i].Before.Limits[corev1.ResourceMemory]
				}
			})
			b.mustLook(t)
			b.says(t, v1alpha1.ReasonApplied)
		})
	}
}

func TestSwapBeside(t *testing.T) {
	for name, tc := range map[string]struct{ held, memory, allowance, want int64 }{
		"none":                     {64, 128, 0, 128},
		"some":                     {64, 128, 16, 144},
		"unlimited":                {64, 128, -1, -1},
		"the first limit":          {-1, 128, -1, 128},
		"no limit":                 {64, -1, 16, -1},
		"no limit, before nor now": {-1, -1, -1, -1},
	} {
		if got := swapBeside(tc.held, tc.memory, tc.allowance); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}
