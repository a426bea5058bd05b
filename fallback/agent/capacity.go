package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// fits refuses what requests more than the whole node can allocate, which a kubelet that resizes in place calls infeasible
// (canResizePod in pkg/kubelet/kubelet.go of 1.33): whoever may write CRIResizes must not be able to starve a node of CPU by
// the weight of one pod. Limits are not bounded, as no kubelet bounds them. What is in force is not asked about again, and what fits
// is asked about once, so that an agent needs no API server to go on holding it.
func (a *Agent) fits(ctx context.Context, object *v1alpha1.CRIResize, k *known) (verdict, bool) {
	if k.fits == object.Generation || inForce(object) {
		return verdict{}, true
	}
	most, err := a.allocatable(ctx)
	if err != nil {
		return failed(v1alpha1.ReasonPending, err), false
	}
	if message := exceeds(&object.Spec, most); message != "" {
		return verdict{reason: v1alpha1.ReasonExceedsNode, message: message + "; nothing was written", again: lookAgain}, false
	}
	k.fits = object.Generation
	return verdict{}, true
}

// inForce says whether all of what this very generation asks for was seen to be in force: also its overhead and its init containers
// count, and are its writer's word.
func inForce(object *v1alpha1.CRIResize) bool {
	c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionApplied)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == object.Generation && wasApplied(object)
}

// exceeds tells which request is too large. A single container's may be although the pod's is not: nothing keeps whoever writes
// CRIResizes from negative quantities.
func exceeds(spec *v1alpha1.CRIResizeSpec, most corev1.ResourceList) string {
	total := figures.Requests(spec)
	for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		have, need := most[res], total[res]
		if need.Cmp(have) > 0 {
			return fmt.Sprintf("the pod would request %s %s, node %q has %s in all", need.String(), res, spec.NodeName, have.String())
		}
		for _, c := range spec.Containers {
			if need := c.Wanted.Requests[res]; need.Cmp(have) > 0 {
				return fmt.Sprintf("container %q would request %s %s, node %q has %s in all", c.Name, need.String(), res, spec.NodeName, have.String())
			}
		}
	}
	return ""
}

// allocatable is the cpu and memory that all pods of the node together may request. A sidecar has no right to read nodes and takes
// what the machine has, which is a little more.
func (a *Agent) allocatable(ctx context.Context) (corev1.ResourceList, error) {
	if a.opts.Sidecar {
		return machineHas("/")
	}
	n, err := a.ownNode(ctx)
	if err != nil {
		return nil, err
	}
	for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q := n.Status.Allocatable[res]; q.Sign() <= 0 {
			return nil, fmt.Errorf("node %q does not say how much %s it can allocate", n.Name, res)
		}
	}
	return n.Status.Allocatable, nil
}

// machineHas is the cpu and memory of the machine whose proc and sysfs are mounted below root: in a container these are the host's,
// unless something like lxcfs stands in for them.
func machineHas(root string) (corev1.ResourceList, error) {
	cpus, err := onlineCPUs(filepath.Join(root, "sys/devices/system/cpu/online"))
	if err != nil {
		return nil, err
	}
	memory, err := totalMemory(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return nil, err
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(cpus, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
	}, nil
}

// onlineCPUs counts the CPUs of a list as the kernel writes it: "0-3,6".
func onlineCPUs(file string) (int64, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("counting the CPUs: %w", err)
	}
	var count int64
	for part := range strings.SplitSeq(strings.TrimSpace(string(content)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || to < from {
			return 0, fmt.Errorf("counting the CPUs: %q holds %q", file, content)
		}
		count += int64(to-from) + 1
	}
	return count, nil
}

// totalMemory is MemTotal of a meminfo file, in bytes.
func totalMemory(file string) (int64, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("reading the size of the memory: %w", err)
	}
	for line := range bytes.Lines(content) {
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "MemTotal: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("reading the size of the memory: %q has no MemTotal", file)
}
