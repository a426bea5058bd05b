package resize

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// criticalPriority is where a kubelet begins to make room for a pod by ending others (scheduling.SystemCriticalPriority).
const criticalPriority = 2_000_000_000

// Finding is one thing to know before a resize is asked for.
type Finding struct {
	// State is StateInfeasible, StateRefused or StateDeferred: the resize is not asked for. Empty: it is advice.
	State  State  `json:"state,omitempty"`
	Reason Reason `json:"reason"`
	// Container and Resource are empty where the finding is about the pod.
	Container string              `json:"container,omitempty"`
	Resource  corev1.ResourceName `json:"resource,omitempty"`
	// Have and Want are the two numbers that do not go together; nil where there are none.
	Have *resource.Quantity `json:"have,omitempty"`
	Want *resource.Quantity `json:"want,omitempty"`
	// Message is one line with the rule and the numbers.
	Message string `json:"message"`
}

// PlanOptions say what the caller allows. The zero value allows nothing that would be a surprise.
type PlanOptions struct {
	// AllowRestart lets a change through that the container's resizePolicy turns into a restart.
	AllowRestart bool
	// AllowPreemption lets a critical pod grow, for which its kubelet may end other pods of the node.
	AllowPreemption bool
}

// Server is what is known of an API server. The zero value: nothing, and no pods/resize.
type Server struct {
	// Resize: it serves pods/resize. For Plan: pods are resized in place, however the API server takes that.
	Resize bool `json:"resize"`
	// Minor is the minor version that it says it has; zero: unknown. It is a hint: rules that depend on it are left to the server
	// where it is unknown.
	Minor uint `json:"minor,omitempty"`
}

// Plan finds what would stop a resize, and what to know about it, before anybody is asked. It is a pure function. node may be
// nil: then the pod's size is not checked against it. Without Server.Resize it plans for the CRI path.
func Plan(pod *corev1.Pod, node *corev1.Node, server Server, want Resources, opts PlanOptions) []Finding {
	if f := planPod(pod, node, server); f != nil {
		return []Finding{*f}
	}
	delta := Changes(pod, want)
	if findings := planNames(pod, server, want, delta); len(findings) > 0 {
		return findings
	}
	if len(delta.Containers) == 0 {
		return nil
	}
	target := Target(pod, want)
	findings := planLimits(delta, target)
	findings = append(findings, planQOS(pod, target)...)
	findings = append(findings, planMemoryLimit(pod, server, delta, opts)...)
	if server.Resize { // by the CRI path no kubelet is asked, so that none restarts or ends anything for it
		findings = append(findings, planRestart(pod, delta, opts)...)
		findings = append(findings, planPreemption(pod, delta, opts)...)
		findings = append(findings, planKubelet(pod, kubeletOf(node), delta, target, askedBefore)...)
	}
	findings = append(findings, planNode(pod, node, delta, target)...)
	if len(Stops(findings)) == 0 {
		findings = append(findings, planAdded(pod, delta)...)
	}
	return findings
}

// Stops gives the findings for which a resize is not asked for.
func Stops(findings []Finding) []Finding {
	var out []Finding
	for _, f := range findings {
		if f.State != "" {
			out = append(out, f)
		}
	}
	return out
}

// planPod tells which pods cannot be resized at all.
func planPod(pod *corev1.Pod, node *corev1.Node, server Server) *Finding {
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
	case pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows,
		node != nil && node.Status.NodeInfo.OperatingSystem == string(corev1.Windows):
		return infeasible(ReasonUnsupportedPod, "runs on Windows, where nothing is resized")
	case hasPodLevel(pod) && !server.Resize:
		return infeasible(ReasonUnsupportedPod, "has pod-level resources, which the CRI path does not resize")
	case hasPodLevel(pod) && server.Minor != 0 && server.Minor < 35:
		return infeasible(ReasonUnsupportedPod, fmt.Sprintf("has pod-level resources: an API server of 1.%d resizes no such pod", server.Minor))
	}
	return nil
}

func hasPodLevel(pod *corev1.Pod) bool {
	r := pod.Spec.Resources
	return r != nil && len(r.Requests)+len(r.Limits) > 0
}

// planNames checks that want names containers that there are, and changes what can be changed.
func planNames(pod *corev1.Pod, server Server, want, delta Resources) []Finding {
	var findings []Finding
	for _, name := range unknown(pod, want) {
		findings = append(findings, *planContainer(pod, server, name))
	}
	for c := range containers(pod) {
		d, changes := delta.Containers[c.Name]
		if !changes {
			continue
		}
		if f := planContainer(pod, server, c.Name); f != nil {
			findings = append(findings, *f)
			continue
		}
		findings = append(findings, planQuantities(c.Name, "requests", d.Requests)...)
		findings = append(findings, planQuantities(c.Name, "limits", d.Limits)...)
	}
	return findings
}

// unknown gives the names in want that are not those of regular or init containers, in order.
func unknown(pod *corev1.Pod, want Resources) []string {
	var names []string
	for name := range want.Containers {
		if c, _ := find(pod, name); c == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// planContainer tells whether a container of that kind can be resized. Versions: KEP-753, KEP-1287; k/k#128367, #137352.
func planContainer(pod *corev1.Pod, server Server, name string) *Finding {
	infeasible := func(why string) *Finding {
		return &Finding{State: StateInfeasible, Reason: ReasonUnsupportedContainer, Container: name, Message: fmt.Sprintf("container %q %s", name, why)}
	}
	old := func(since uint) bool { return server.Minor != 0 && server.Minor < since }
	_, k := find(pod, name)
	switch {
	case k == kindNone:
		return &Finding{
			State: StateInfeasible, Reason: ReasonUnknownContainer, Container: name,
			Message: fmt.Sprintf("pod %q has no container %q: %s", key(pod), name, suggest(pod, name)),
		}
	case k == kindEphemeral:
		return infeasible("is an ephemeral container: these have no resources")
	case k != kindRegular && !server.Resize:
		return infeasible("is an init container or sidecar, which the CRI path does not resize")
	case k == kindSidecar && old(33):
		return infeasible(fmt.Sprintf("is a sidecar: an API server of 1.%d resizes none, 1.33 is the first", server.Minor))
	case k == kindInit && old(36):
		return infeasible(fmt.Sprintf("is an init container: an API server of 1.%d resizes none, 1.36 is the first", server.Minor))
	case k == kindInit && !runs(pod, name):
		return infeasible("is an init container that is not running")
	}
	return nil
}

func runs(pod *corev1.Pod, name string) bool {
	s := status(pod, name)
	return s != nil && s.State.Running != nil
}

func planQuantities(name, kind string, list corev1.ResourceList) []Finding {
	var findings []Finding
	for _, res := range sortedKeys(list) {
		q := list[res]
		reason, why := ReasonInvalidQuantity, ""
		switch {
		case res != corev1.ResourceCPU && res != corev1.ResourceMemory:
			reason, why = ReasonUnsupportedResource, "only cpu and memory can be resized"
		case q.Sign() < 0, kind == "limits" && q.IsZero():
			why = q.String() + " is not a quantity that a container can be given"
		default:
			continue
		}
		findings = append(findings, Finding{
			State: StateInfeasible, Reason: reason, Container: name, Resource: res, Want: ptr.To(list[res]),
			Message: fmt.Sprintf("container %q: %s.%s: %s", name, kind, res, why),
		})
	}
	return findings
}

func planLimits(delta, target Resources) []Finding {
	var findings []Finding
	for _, name := range sortedKeys(delta.Containers) {
		t := target.Containers[name]
		for _, res := range resizable() {
			request, limit := t.Requests[res], t.Limits[res]
			if limit.IsZero() || request.Cmp(limit) <= 0 {
				continue
			}
			findings = append(findings, Finding{
				State: StateInfeasible, Reason: ReasonLimitBelowRequest, Container: name, Resource: res, Have: &request, Want: &limit,
				Message: fmt.Sprintf("container %q: limits.%s %s would be below requests.%s %s", name, res, limit.String(), res, request.String()),
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

// planMemoryLimit knows the API servers of 1.33: they take no lower and no new memory limit unless the container is restarted for
// it (validateContainerResize in pkg/apis/core/validation; k/k#133012), so that there a raise cannot be taken back.
func planMemoryLimit(pod *corev1.Pod, server Server, delta Resources, opts PlanOptions) []Finding {
	if server.Minor != 33 {
		return nil
	}
	var findings []Finding
	for _, name := range sortedKeys(delta.Containers) {
		want, asked := delta.Containers[name].Limits[corev1.ResourceMemory]
		c, _ := find(pod, name)
		if !asked || opts.AllowRestart && restartsFor(c, corev1.ResourceMemory) {
			continue
		}
		f := Finding{Container: name, Resource: corev1.ResourceMemory, Want: &want}
		have, limited := c.Resources.Limits[corev1.ResourceMemory]
		switch {
		case limited && want.Cmp(have) > 0:
			f.Reason, f.Have = ReasonNoWayBack, &have
			f.Message = fmt.Sprintf("container %q: limits.memory cannot be lowered to %s again: an API server of 1.33 takes no decrease", name, have.String())
		case restartsFor(c, corev1.ResourceMemory):
			continue // planRestart says so
		case limited:
			f.State, f.Reason, f.Have = StateInfeasible, ReasonMemoryLimit, &have
			f.Message = fmt.Sprintf("container %q: limits.memory cannot be lowered from %s to %s: an API server of 1.33 takes no decrease", name, have.String(), want.String())
		default:
			f.State, f.Reason = StateInfeasible, ReasonMemoryLimit
			f.Message = fmt.Sprintf("container %q: limits.memory %s cannot be added: an API server of 1.33 takes no new memory limit", name, want.String())
		}
		findings = append(findings, f)
	}
	return findings
}

// planAdded finds requests and limits that the pod does not have yet: nothing removes them again (resourcesRemoved in
// pkg/apis/core/validation).
func planAdded(pod *corev1.Pod, delta Resources) []Finding {
	var findings []Finding
	for _, name := range sortedKeys(delta.Containers) {
		c, _ := find(pod, name)
		for _, list := range []struct {
			kind       string
			have, want corev1.ResourceList
		}{
			{"requests", c.Resources.Requests, delta.Containers[name].Requests},
			{"limits", c.Resources.Limits, delta.Containers[name].Limits},
		} {
			for _, res := range resizable() {
				want, asked := list.want[res]
				if _, had := list.have[res]; !asked || had {
					continue
				}
				findings = append(findings, Finding{
					Reason: ReasonNoWayBack, Container: name, Resource: res, Want: &want,
					Message: fmt.Sprintf("container %q: %s.%s cannot be removed again", name, list.kind, res),
				})
			}
		}
	}
	return findings
}

// planRestart finds changes that the kubelet would do by restarting the container.
func planRestart(pod *corev1.Pod, delta Resources, opts PlanOptions) []Finding {
	if opts.AllowRestart {
		return nil
	}
	var findings []Finding
	for _, name := range sortedKeys(delta.Containers) {
		c, _ := find(pod, name)
		for _, res := range resizable() {
			if !names(delta.Containers[name], res) || !restartsFor(c, res) {
				continue
			}
			findings = append(findings, Finding{
				State: StateRefused, Reason: ReasonRestartNotAllowed, Container: name, Resource: res,
				Message: fmt.Sprintf("container %q would be restarted: its resizePolicy for %s is RestartContainer", name, res),
			})
		}
	}
	return findings
}

func restartsFor(c *corev1.Container, res corev1.ResourceName) bool {
	for _, policy := range c.ResizePolicy {
		if policy.ResourceName == res {
			return policy.RestartPolicy == corev1.RestartContainer
		}
	}
	return false
}

// planPreemption finds pods for which a kubelet ends others when they do not fit (kubetypes.IsCriticalPod).
func planPreemption(pod *corev1.Pod, delta Resources, opts PlanOptions) []Finding {
	if opts.AllowPreemption || pod.Spec.Priority == nil || *pod.Spec.Priority < criticalPriority {
		return nil
	}
	for _, name := range sortedKeys(delta.Containers) {
		c, _ := find(pod, name)
		for _, res := range resizable() {
			want, asked := delta.Containers[name].Requests[res]
			have := c.Resources.Requests[res]
			if !asked || want.Cmp(have) <= 0 {
				continue
			}
			return []Finding{{
				State: StateRefused, Reason: ReasonPreemptionNotAllowed, Container: name, Resource: res, Have: &have, Want: &want,
				Message: fmt.Sprintf("pod %q has critical priority: if requests.%s %s do not fit, its kubelet ends other pods of the node", key(pod), res, want.String()),
			}}
		}
	}
	return nil
}

// planKubelet finds what old kubelets take and never bring into force. Those of 1.27 to 1.31 give up on a pod whose containers do
// not all have a limit of the resource that changes (doPodResizeAction in pkg/kubelet/kuberuntime), and do not reserve a request that
// a container did not have (handlePodResourcesResize in pkg/kubelet). None before 1.33 resizes sidecars. had tells what a
// container had before.
func planKubelet(pod *corev1.Pod, kubelet uint, delta, target Resources, had func(*corev1.Pod, *corev1.Container) corev1.ResourceList) []Finding {
	var findings []Finding
	never := func(name string, res corev1.ResourceName, why string) {
		findings = append(findings, Finding{
			State: StateInfeasible, Reason: ReasonUnsupportedContainer, Container: name, Resource: res,
			Message: fmt.Sprintf("container %q: a kubelet of 1.%d never brings this into force: %s", name, kubelet, why),
		})
	}
	for c, k := range containers(pod) {
		d, changes := delta.Containers[c.Name]
		switch {
		case !changes:
			continue
		case k == kindSidecar && kubelet != 0 && kubelet < 33:
			never(c.Name, "", "it is a sidecar")
			continue
		case !reportsLate(kubelet):
			continue
		}
		for _, res := range resizable() {
			_, reserves := d.Requests[res]
			_, limits := d.Limits[res]
			if _, ok := had(pod, c)[res]; reserves && !ok {
				never(c.Name, res, fmt.Sprintf("requests.%s was not set when it was started", res))
				continue
			}
			actuates := limits || reserves && res == corev1.ResourceCPU // memory requests are for the scheduler
			if name, found := unlimited(pod, target, res); found && actuates {
				never(c.Name, res, fmt.Sprintf("container %q of the pod has no limits.%s", name, res))
			}
		}
	}
	return findings
}

// askedBefore are the requests that a container has in spec.
func askedBefore(_ *corev1.Pod, c *corev1.Container) corev1.ResourceList { return c.Resources.Requests }

// unlimited gives the first container without a limit.
func unlimited(pod *corev1.Pod, target Resources, res corev1.ResourceName) (name string, found bool) {
	for c := range containers(pod) {
		if limit := target.Containers[c.Name].Limits[res]; limit.IsZero() {
			return c.Name, true
		}
	}
	return "", false
}

// planNode finds what the whole node could not hold. Whether it has room now is for the kubelet to say.
func planNode(pod *corev1.Pod, node *corev1.Node, delta, target Resources) []Finding {
	if node == nil {
		return nil
	}
	var findings []Finding
	for _, res := range resizable() {
		total := pod.Spec.Overhead[res].DeepCopy()
		grows := false
		for c, k := range containers(pod) {
			if k == kindInit { // it is over, or it is what needs less than the rest
				continue
			}
			request := target.Containers[c.Name].Requests[res]
			total.Add(request)
			_, asked := delta.Containers[c.Name].Requests[res]
			grows = grows || asked && request.Cmp(c.Resources.Requests[res]) > 0
		}
		allocatable, known := node.Status.Allocatable[res]
		if !grows || !known || total.Cmp(allocatable) <= 0 {
			continue
		}
		findings = append(findings, Finding{
			State: StateInfeasible, Reason: ReasonNodeTooSmall, Resource: res, Have: &allocatable, Want: &total,
			Message: fmt.Sprintf("the pod would request %s %s, node %q has %s in all", total.String(), res, node.Name, allocatable.String()),
		})
	}
	return findings
}

// qosClass follows ComputePodQOS in pkg/apis/core/v1/helper/qos: sums over regular and init containers; pod-level resources
// (Kubernetes 1.32 and later) alone where they are set.
func qosClass(pod *corev1.Pod, target Resources) corev1.PodQOSClass {
	if hasPodLevel(pod) {
		return qosOf(map[string]Requirements{"": {Requests: pod.Spec.Resources.Requests, Limits: pod.Spec.Resources.Limits}})
	}
	return qosOf(target.Containers)
}

func qosOf(all map[string]Requirements) corev1.PodQOSClass {
	declared, guaranteed := false, true
	for _, res := range resizable() {
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
