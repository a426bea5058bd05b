package agent

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// hollowFor is how long a running container may be without a process in its cgroup: one that ends is listed as running for a moment.
const hollowFor = 5 * time.Second

// suits says whether the pod is one that may be resized by its cgroups. What a kubelet that resizes in place refuses is refused here
// too (canResizePod in pkg/kubelet/kubelet.go of 1.33).
func (a *Agent) suits(object *v1alpha1.CRIResize, o *observed, want figures.Pod, k *known) (verdict, bool) {
	if v, ok := a.inCgroups(object, o, k); !ok {
		return v, false
	}
	if v, ok := freeOfCPUSets(object, o); !ok {
		return v, false
	}
	return a.freeOfSwap(o, want)
}

// inCgroups refuses a runtime that runs containers elsewhere than in their cgroups on this host, as one with a virtual machine for
// each pod does, or a kernel of its own.
func (a *Agent) inCgroups(object *v1alpha1.CRIResize, o *observed, k *known) (verdict, bool) {
	now, still := a.clock.Now(), map[string]time.Time{}
	for _, c := range o.hollow {
		since, known := k.hollow[c.ID]
		if !known {
			since = now
		}
		still[c.ID] = since
	}
	k.hollow = still
	for _, c := range o.hollow {
		if now.Sub(k.hollow[c.ID]) < hollowFor {
			continue
		}
		message := fmt.Sprintf("container %q runs and has no process in its cgroup on this host, so its runtime (handler %q) is a sandboxed one, which cgroups do not resize", c.Name, o.handler)
		return verdict{reason: v1alpha1.ReasonSandboxed, message: message, again: lookAgain}, false
	}
	if len(o.hollow) > 0 && len(object.Status.Applied) == 0 { // nothing is written before it is known
		message := fmt.Sprintf("container %q has no process in its cgroup", o.hollow[0].Name)
		return verdict{reason: v1alpha1.ReasonContainerNotRunning, message: message, again: lookSoon}, false
	}
	return verdict{}, true
}

// freeOfCPUSets refuses what the static policies of the CPU and memory managers have pinned: they are the only ones to set cpusets,
// and give exclusive ones to Guaranteed pods alone.
func freeOfCPUSets(object *v1alpha1.CRIResize, o *observed) (verdict, bool) {
	if object.Spec.QOSClass != corev1.PodQOSGuaranteed || !changes(object) {
		return verdict{}, true
	}
	for _, name := range sortedKeys(o.containers) {
		c, manager := o.containers[name], "CPU"
		if c.CPUs == "" {
			manager = "memory"
		}
		if c.CPUs+c.MemoryNodes == "" {
			continue
		}
		message := fmt.Sprintf("container %q has a cpuset: a Guaranteed pod is not resized on a node with the static policy of the %s manager", name, manager)
		return verdict{reason: v1alpha1.ReasonExclusiveCPUs, message: message, again: lookAgain}, false
	}
	return verdict{}, true
}

// changes says whether the object asks for anything else than the pod's spec.
func changes(object *v1alpha1.CRIResize) bool {
	return slices.ContainsFunc(object.Spec.Containers, func(c v1alpha1.Container) bool { return !sameRequirements(c.Before, c.Wanted) })
}

// freeOfSwap refuses to change a memory limit beside which the kubelet allows some swap: it would compute that anew.
func (a *Agent) freeOfSwap(o *observed, want figures.Pod) (verdict, bool) {
	for _, name := range sortedKeys(o.containers) {
		c := o.containers[name]
		w, ours := want.Containers[name]
		if !ours || c.kernel.Memory == cgroup.NoLimit || cgroup.MemoryHolds(w.Memory, c.kernel.Memory) {
			continue
		}
		allowance, _, err := a.tree.SwapAllowance(c.path)
		if err != nil {
			return failed(v1alpha1.ReasonPending, fmt.Errorf("reading the swap limit of container %q: %w", name, err)), false
		}
		if allowance > 0 {
			message := fmt.Sprintf("container %q may use %d bytes of swap: the memory limit of such a container is not changed; nothing was written", name, allowance)
			return verdict{reason: v1alpha1.ReasonNodeDiffers, message: message, again: lookAgain}, false
		}
	}
	return verdict{}, true
}
