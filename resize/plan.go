package resize

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Finding is one reason why a resize cannot, or may not, be done.
type Finding struct {
	// State is StateInfeasible, StateRefused or StateDeferred.
	State  State  `json:"state"`
	Reason Reason `json:"reason"`
	// Container and Resource are empty where the finding is about the pod.
	Container string              `json:"container,omitempty"`
	Resource  corev1.ResourceName `json:"resource,omitempty"`
	// Message is one line with the numbers.
	Message string `json:"message"`
}

// PlanOptions say what the caller allows. The zero value allows nothing that would be a surprise.
type PlanOptions struct {
	// AllowRestart lets a change through that the container's resizePolicy turns into a restart.
	AllowRestart bool
}

// Plan finds what would stop a resize, before anybody is asked. It is a pure function; node may be nil, then the pod's size is
// not checked against it. No finding: nothing known stands against it.
func Plan(pod *corev1.Pod, node *corev1.Node, want Resources, opts PlanOptions) []Finding {
	if f := planPod(pod); f != nil {
		return []Finding{*f}
	}
	if findings := planNames(pod, want); len(findings) > 0 {
		return findings
	}
	target := Target(pod, want)
	findings := planLimits(pod, want, target)
	findings = append(findings, planQOS(pod, target)...)
	findings = append(findings, planRestart(pod, want, opts)...)
	return append(findings, planNode(node, want, target)...)
}

// planPod tells which pods cannot be resized at all.
func planPod(pod *corev1.Pod) *Finding {
	infeasible := func(reason Reason, why string) *Finding {
		return &Finding{State: StateInfeasible, Reason: reason, Message: fmt.Sprintf("pod %q %s", key(pod), why)}
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return infeasible(ReasonPodEnded, "is being deleted")
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return infeasible(ReasonPodEnded, "has ended ("+string(pod.Status.Phase)+")")
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return infeasible(ReasonUnsupportedPod, "is a static pod: change its manifest on the node")
	case pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows:
		return infeasible(ReasonUnsupportedPod, "runs on Windows, which cannot resize")
	}
	return nil
}

// planNames checks that want speaks of containers and resources that exist.
func planNames(pod *corev1.Pod, want Resources) []Finding {
	var findings []Finding
	for _, name := range sortedKeys(want.Containers) {
		if container(pod, name) == nil {
			findings = append(findings, Finding{
				State: StateInfeasible, Reason: ReasonUnknownContainer, Container: name,
				Message: fmt.Sprintf("pod %q has no container %q: %s", key(pod), name, suggest(pod, name)),
			})
			continue
		}
		findings = append(findings, planQuantities(name, "requests", want.Containers[name].Requests)...)
		findings = append(findings, planQuantities(name, "limits", want.Containers[name].Limits)...)
	}
	return findings
}

func planQuantities(name, kind string, list corev1.ResourceList) []Finding {
	var findings []Finding
	for _, res := range sortedKeys(list) {
		q := list[res]
		f := Finding{State: StateInfeasible, Container: name, Resource: res}
		switch {
		case res != corev1.ResourceCPU && res != corev1.ResourceMemory:
			f.Reason = ReasonUnsupportedResource
			f.Message = fmt.Sprintf("container %q: %s.%s: only cpu and memory can be resized", name, kind, res)
		case q.Sign() < 0, kind == "limits" && q.IsZero():
			f.Reason = ReasonInvalidQuantity
			f.Message = fmt.Sprintf("container %q: %s.%s: %s is not a quantity that a container can have", name, kind, res, q.String())
		default:
			continue
		}
		findings = append(findings, f)
	}
	return findings
}

func planLimits(pod *corev1.Pod, want, target Resources) []Finding {
	var findings []Finding
	for _, c := range pod.Spec.Containers {
		if _, named := want.Containers[c.Name]; !named {
			continue
		}
		t := target.Containers[c.Name]
		for _, res := range sortedKeys(t.Limits) {
			request, limit := t.Requests[res], t.Limits[res]
			if request.Cmp(limit) <= 0 {
				continue
			}
			findings = append(findings, Finding{
				State: StateInfeasible, Reason: ReasonLimitBelowRequest, Container: c.Name, Resource: res,
				Message: fmt.Sprintf("container %q: limits.%s %s would be below requests.%s %s", c.Name, res, limit.String(), res, request.String()),
			})
		}
	}
	return findings
}

// planQOS finds a change of the QoS class, which every API server refuses (KEP-1287) and the CRI path refuses alike.
func planQOS(pod *corev1.Pod, target Resources) []Finding {
	before, after := qosClass(pod, Target(pod, Resources{})), qosClass(pod, target)
	if before == after {
		return nil
	}
	return []Finding{{
		State: StateInfeasible, Reason: ReasonQOSChange,
		Message: fmt.Sprintf("pod %q would change its QoS class from %s to %s, which a running pod cannot%s", key(pod), before, after, qosHint(before)),
	}}
}

func qosHint(before corev1.PodQOSClass) string {
	switch before {
	case corev1.PodQOSGuaranteed:
		return ": change requests and limits together"
	case corev1.PodQOSBurstable:
		return ": keep a request below its limit"
	default:
		return ": it has no requests and limits to change"
	}
}

// planRestart finds changes that the kubelet would do by restarting the container.
func planRestart(pod *corev1.Pod, want Resources, opts PlanOptions) []Finding {
	if opts.AllowRestart {
		return nil
	}
	var findings []Finding
	changes := missing(pod, want)
	for _, name := range sortedKeys(changes.Containers) {
		for _, policy := range container(pod, name).ResizePolicy {
			if policy.RestartPolicy != corev1.RestartContainer || !names(changes.Containers[name], policy.ResourceName) {
				continue
			}
			findings = append(findings, Finding{
				State: StateRefused, Reason: ReasonRestartNotAllowed, Container: name, Resource: policy.ResourceName,
				Message: fmt.Sprintf("container %q would be restarted: its resizePolicy for %s is RestartContainer", name, policy.ResourceName),
			})
		}
	}
	return findings
}

// planNode finds what the whole node could not hold. Whether it has room now is for the kubelet to say.
func planNode(node *corev1.Node, want, target Resources) []Finding {
	if node == nil {
		return nil
	}
	var findings []Finding
	for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		var total resource.Quantity
		asked := false
		for name, t := range target.Containers {
			total.Add(t.Requests[res])
			asked = asked || names(want.Containers[name], res)
		}
		allocatable, known := node.Status.Allocatable[res]
		if !asked || !known || total.Cmp(allocatable) <= 0 {
			continue
		}
		findings = append(findings, Finding{
			State: StateInfeasible, Reason: ReasonNodeTooSmall, Resource: res,
			Message: fmt.Sprintf("the pod would request %s %s, node %q has %s in all", total.String(), res, node.Name, allocatable.String()),
		})
	}
	return findings
}

// Target gives every regular container's requests and limits of cpu and memory as they are to be: spec with want on top.
func Target(pod *corev1.Pod, want Resources) Resources {
	target := Resources{Containers: make(map[string]Requirements, len(pod.Spec.Containers))}
	for _, c := range pod.Spec.Containers {
		target.Containers[c.Name] = Merge(specOf(c), want.Containers[c.Name])
	}
	return target
}

// Merge lays want over base. A limit without a request sets the request too, as the API server does when it decodes a pod.
func Merge(base, want Requirements) Requirements {
	merged := Requirements{Requests: mergeList(base.Requests, want.Requests), Limits: mergeList(base.Limits, want.Limits)}
	for res, limit := range merged.Limits {
		if _, ok := merged.Requests[res]; !ok {
			merged.Requests[res] = limit
		}
	}
	return merged
}

func mergeList(base, want corev1.ResourceList) corev1.ResourceList {
	merged := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{base, want} {
		for res, q := range list {
			merged[res] = q.DeepCopy()
		}
	}
	return merged
}

// missing is the part of want that the pod's spec does not have.
func missing(pod *corev1.Pod, want Resources) Resources {
	out := Resources{Containers: map[string]Requirements{}}
	for name, w := range want.Containers {
		c := container(pod, name)
		if c == nil {
			continue
		}
		delta := Requirements{
			Requests: missingFrom(c.Resources.Requests, w.Requests),
			Limits:   missingFrom(c.Resources.Limits, w.Limits),
		}
		if len(delta.Requests)+len(delta.Limits) > 0 {
			out.Containers[name] = delta
		}
	}
	return out
}

func missingFrom(have, want corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for res, q := range want {
		if old, ok := have[res]; !ok || old.Cmp(q) != 0 {
			out[res] = q
		}
	}
	return out
}

func specOf(c corev1.Container) Requirements {
	return Requirements{Requests: onlyResizable(c.Resources.Requests), Limits: onlyResizable(c.Resources.Limits)}
}

func onlyResizable(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, ok := list[res]; ok {
			out[res] = q.DeepCopy()
		}
	}
	return out
}

// qosClass follows ComputePodQOS in pkg/apis/core/v1/helper/qos: sums over regular and init containers; pod-level resources
// (Kubernetes 1.32 and later) alone where they are set.
func qosClass(pod *corev1.Pod, target Resources) corev1.PodQOSClass {
	var all []Requirements
	if r := pod.Spec.Resources; r != nil {
		all = append(all, Requirements{Requests: r.Requests, Limits: r.Limits})
	} else {
		for _, c := range pod.Spec.InitContainers {
			all = append(all, specOf(c))
		}
		for _, c := range pod.Spec.Containers {
			all = append(all, target.Containers[c.Name])
		}
	}
	return qosOf(all)
}

func qosOf(all []Requirements) corev1.PodQOSClass {
	declared, guaranteed := false, true
	for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		var requests, limits resource.Quantity
		for _, r := range all {
			limit := r.Limits[res]
			guaranteed = guaranteed && !limit.IsZero()
			limits.Add(limit)
			requests.Add(r.Requests[res])
		}
		declared = declared || !requests.IsZero() || !limits.IsZero()
		guaranteed = guaranteed && requests.Cmp(limits) == 0
	}
	switch {
	case !declared:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	default:
		return corev1.PodQOSBurstable
	}
}

func container(pod *corev1.Pod, name string) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Spec.Containers[i]
}

func names(r Requirements, res corev1.ResourceName) bool {
	_, request := r.Requests[res]
	_, limit := r.Limits[res]
	return request || limit
}

func suggest(pod *corev1.Pod, name string) string {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == name {
			return "it is an init container, which this version does not resize"
		}
	}
	var have []string
	for _, c := range pod.Spec.Containers {
		if strings.HasPrefix(c.Name, name) || strings.HasPrefix(name, c.Name) {
			return fmt.Sprintf("did you mean %q?", c.Name)
		}
		have = append(have, c.Name)
	}
	return "it has " + strings.Join(have, ", ")
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
