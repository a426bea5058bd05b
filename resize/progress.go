package resize

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// pollSoon is for callers without a watch: kubelets report within 0.1 s to 2 s (1.32 and later).
	pollSoon = time.Second
	// pollDeferred is how often a Deferred resize is worth another look: kubelets retry it on events and every 3 minutes.
	pollDeferred = 30 * time.Second
	// secondLook is how long a match must hold on kubelets that do not say which spec their status speaks of (before 1.34).
	secondLook = 2 * time.Second
)

// staleFor is how long a kubelet that does not say which spec its conditions speak of (before 1.34) may take to take back, or
// repeat, what it said of the spec before.
const staleFor = 5 * time.Second

// progress judges how far the kubelet has got with what the pod's spec says.
func (r *InPlace) progress(ctx context.Context, pod *corev1.Pod) Result {
	res := Result{Path: PathInPlace, Containers: evidence(pod)}
	now := r.opts.Clock.Now()
	why := notYet(pod)
	n := r.memory.look(pod, why == nil, now)
	res.Previous = n.previous
	res.Warnings = restartWarnings(res.Containers, n.restarts)
	if why == nil {
		r.confirm(ctx, pod, n, &res)
		if res.State == StateDone {
			r.memory.settle(pod, n, &res)
		}
		return res
	}
	if why.state != StateInProgress && why.fingerprint() == n.stale && now.Sub(n.asked) < staleFor {
		why = waiting("the kubelet still says what it said before the change: " + why.message)
	}
	if why.reason == ReasonWaitingForKubelet {
		n = r.knowKubelet(ctx, pod, n)
		if never := neverComes(pod, n.kubelet); never != nil {
			why = never
		}
	}
	res.State, res.Reason, res.Message, res.Since, res.RetryAfter = why.state, why.reason, why.message, why.since, why.retryAfter
	if res.State == StateInProgress {
		r.expire(n, &res)
	}
	if res.Reason == ReasonWaitingForKubelet {
		r.touch(ctx, pod, n, &res)
	}
	return res
}

// knowKubelet reads the node, once for each spec, of a change that is not this process's and that its kubelet, as far as the pod
// tells, may be one of those that report late. For a change of its own the node was read before.
func (r *InPlace) knowKubelet(ctx context.Context, pod *corev1.Pod, n note) note {
	now := r.opts.Clock.Now()
	if n.kubeletRead || pod.Status.ObservedGeneration > 0 || now.Sub(n.asked) < firstTouch {
		return n
	}
	node, err := r.opts.Nodes(ctx, pod.Spec.NodeName)
	if err != nil {
		node = nil
	}
	return r.memory.knowKubelet(pod, n, kubeletOf(node), now)
}

// neverComes finds changes that the kubelet has taken and will not bring into force as long as the containers run; nil: there are
// none, or the kubelet's version is not known.
func neverComes(pod *corev1.Pod, kubelet uint) *standing {
	missing := Resources{Containers: map[string]Requirements{}}
	for c, k := range containers(pod) {
		s := status(pod, c.Name)
		if k == kindRegular && s != nil && s.State.Running != nil && s.Resources != nil {
			missing.Containers[c.Name] = Requirements{
				Requests: unlike(c.Resources.Requests, s.Resources.Requests, requestTolerance),
				Limits:   unlike(c.Resources.Limits, s.Resources.Limits, limitTolerance),
			}
		}
	}
	findings := planKubelet(pod, kubelet, missing, Target(pod, Resources{}), reserved)
	if len(findings) == 0 {
		return nil
	}
	return &standing{state: StateInfeasible, reason: findings[0].Reason, message: findings[0].Message}
}

// unlike gives the entries of want that have does not match.
func unlike(want, have corev1.ResourceList, same func(corev1.ResourceName, resource.Quantity, resource.Quantity) bool) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, res := range resizable() {
		w, asked := want[res]
		if h, told := have[res]; asked && (!told || !same(res, w, h)) {
			out[res] = w
		}
	}
	return out
}

// reserved are the requests that the kubelet has reserved for a container, if it tells.
func reserved(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	if s := status(pod, c.Name); s != nil && s.AllocatedResources != nil {
		return s.AllocatedResources
	}
	return c.Resources.Requests
}

// confirm says Done if the kubelet's word counts at once, or if it has kept it.
func (r *InPlace) confirm(ctx context.Context, pod *corev1.Pod, n note, res *Result) {
	why, warning := r.distrust(ctx, pod, n)
	if warning != "" {
		res.Warnings = append(res.Warnings, warning)
	}
	if why != nil {
		res.State, res.Reason, res.Message, res.RetryAfter = why.state, why.reason, why.message, why.retryAfter
		r.expire(n, res)
		return
	}
	res.State, res.Reason = StateDone, ReasonConfirmed
	res.Message = fmt.Sprintf("the kubelet of node %q reports what spec says", pod.Spec.NodeName)
}

// distrust says why a match does not count yet; nil: it counts. The node is read only where its kubelet's version decides that.
func (r *InPlace) distrust(ctx context.Context, pod *corev1.Pod, n note) (why *standing, warning string) {
	if n.answer != nil { // it shows what was before the patch
		why = waiting("the caller's copy of the pod is older than the last change")
		why.retryAfter = secondLook
		return why, ""
	}
	proposed := pod.Status.Resize == "Proposed"
	rest := secondLook - r.opts.Clock.Now().Sub(n.matched)
	if n.mismatched || rest < 0 { // the match is news, or it has held
		rest = 0
	}
	saysWhich := pod.Status.ObservedGeneration > 0 && (n.ours || r.opts.LivePods)
	if !proposed && (rest == 0 || !saysWhich) {
		return lookAgain(rest), ""
	}
	var kubelet uint
	node, err := r.opts.Nodes(ctx, pod.Spec.NodeName)
	if err != nil {
		warning = fmt.Sprintf("node %q cannot be read, so its kubelet is taken for an old one: %v", pod.Spec.NodeName, err)
	} else {
		kubelet, _ = minor(node.Status.NodeInfo.KubeletVersion)
	}
	switch {
	case proposed && (kubelet == 0 || kubelet >= 32): // a kubelet of 1.32 clears it when it has seen the change; older ones do not
		return waiting("the kubelet has not yet taken up what the API server has noted as Proposed"), warning
	case kubelet >= 34 && saysWhich:
		return nil, warning
	default:
		return lookAgain(rest), warning
	}
}

func lookAgain(after time.Duration) *standing {
	if after == 0 {
		return nil
	}
	return &standing{
		state: StateInProgress, reason: ReasonLookAgain, retryAfter: after,
		message: fmt.Sprintf("the status matches; it is Done if it still does in %s", after.Round(10*time.Millisecond)),
	}
}

// expire turns a resize that takes too long into Unconfirmed.
func (r *InPlace) expire(n note, res *Result) {
	if res.Since.IsZero() {
		res.Since = n.asked
	}
	if took := r.opts.Clock.Now().Sub(n.asked); took >= r.opts.ConfirmWithin {
		res.State = StateUnconfirmed
		res.Message = fmt.Sprintf("not confirmed after %s: %s", took.Round(time.Second), res.Message)
		res.RetryAfter = pollDeferred
	}
}

// standing is an answer other than Done.
type standing struct {
	state      State
	reason     Reason
	message    string
	since      time.Time
	retryAfter time.Duration
}

// fingerprint tells one answer of a kubelet from the next.
func (s *standing) fingerprint() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s %s %s", s.state, s.message, s.since)
}

// notYet tells why the pod's status does not prove its spec; nil: it does.
func notYet(pod *corev1.Pod) *standing {
	if pod.Status.ObservedGeneration > 0 && pod.Status.ObservedGeneration < pod.Generation {
		return waiting(fmt.Sprintf("the kubelet has seen generation %d, spec is at %d", pod.Status.ObservedGeneration, pod.Generation))
	}
	if s := kubeletSays(pod); s != nil && !comparesRaw(pod) {
		return s
	}
	for c, k := range containers(pod) {
		s := status(pod, c.Name)
		if s != nil && over(pod, k, s) {
			continue
		}
		if k == kindSidecar && s != nil && s.State.Running != nil && untoldOf(s) {
			continue
		}
		if w := containerNotYet(c, s); w != nil {
			return w
		}
	}
	return nil
}

// comparesRaw says that a kubelet before 1.32, the ones that both set status.resize and tell what they have reserved, may leave
// InProgress for ever: it compares with spec what the kernel has, without rounding (k/k#128769, #128680). Then the evidence decides. Where
// both are alike to the letter it is about another spec, and counts.
func comparesRaw(pod *corev1.Pod) bool {
	if pod.Status.Resize != corev1.PodResizeStatusInProgress || fromConditions(pod) != nil {
		return false
	}
	exact := func(_ corev1.ResourceName, want, have resource.Quantity) bool { return want.Cmp(have) == 0 }
	alike := true
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		s := status(pod, c.Name)
		if s == nil || s.Resources == nil || s.AllocatedResources == nil {
			return false
		}
		alike = alike && differs(c.Resources.Requests, s.Resources.Requests, exact) == "" && differs(c.Resources.Limits, s.Resources.Limits, exact) == ""
	}
	return !alike
}

// untoldOf says that the kubelet does not tell what it has reserved for a sidecar. Those before 1.33 resize none: 1.32 reports
// nothing of them, older ones limits alone; and no API server before 1.33 takes a change of one.
func untoldOf(s *corev1.ContainerStatus) bool {
	return s.Resources == nil || s.AllocatedResources == nil && len(s.Resources.Requests) == 0
}

// over says that a container has ended and is not started again.
func over(pod *corev1.Pod, k kind, s *corev1.ContainerStatus) bool {
	ended := s.State.Terminated
	if ended == nil || k == kindSidecar {
		return false
	}
	return k == kindInit || pod.Spec.RestartPolicy == corev1.RestartPolicyNever ||
		pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && ended.ExitCode == 0
}

// kubeletSays reads what the kubelet says itself of a resize; nil: nothing, so that it has none to do.
func kubeletSays(pod *corev1.Pod) *standing {
	if s := fromConditions(pod); s != nil {
		return s
	}
	return fromResizeField(pod)
}

func waiting(message string) *standing {
	return &standing{state: StateInProgress, reason: ReasonWaitingForKubelet, message: message, retryAfter: pollSoon}
}

func deferred(message string, since time.Time) *standing {
	return &standing{state: StateDeferred, reason: ReasonNodeFull, message: message, since: since, retryAfter: pollDeferred}
}

// infeasible tells a pod that is bigger than its node, which servers from 1.36 on refuse themselves, from the kubelet's other
// reasons: there is nothing but its words to go by (pkg/kubelet/allocation).
func infeasible(message string, since time.Time) *standing {
	s := &standing{state: StateInfeasible, reason: ReasonRejected, message: message, since: since}
	if strings.Contains(message, "Node didn't have enough capacity") {
		s.reason = ReasonNodeTooSmall
	}
	return s
}

// fromConditions reads PodResizePending and PodResizeInProgress (1.33 and later): they go away when all is done.
func fromConditions(pod *corev1.Pod) *standing {
	pending, inProgress := condition(pod, corev1.PodResizePending), condition(pod, corev1.PodResizeInProgress)
	switch {
	case pending != nil && pending.Reason == corev1.PodReasonInfeasible:
		return infeasible("the kubelet says: "+pending.Message, pending.LastTransitionTime.Time)
	case pending != nil && pending.Reason == corev1.PodReasonDeferred:
		return deferred("the kubelet says: "+pending.Message, pending.LastTransitionTime.Time)
	case pending != nil:
		return waiting(fmt.Sprintf("the kubelet says: %s: %s", pending.Reason, pending.Message))
	case inProgress != nil && inProgress.Reason == corev1.PodReasonError:
		s := waiting("the kubelet says: " + inProgress.Message)
		s.reason, s.since = ReasonKubeletError, inProgress.LastTransitionTime.Time
		return s
	case inProgress != nil:
		s := waiting("the kubelet is changing the containers")
		s.since = inProgress.LastTransitionTime.Time
		return s
	}
	return nil
}

// fromResizeField reads status.resize, which kubelets before 1.33 use.
func fromResizeField(pod *corev1.Pod) *standing {
	switch pod.Status.Resize {
	case "", "Proposed": // who proposes is the API server; the kubelet may be long done
		return nil
	case corev1.PodResizeStatusInfeasible:
		return infeasible("the kubelet says: Infeasible", time.Time{})
	case corev1.PodResizeStatusDeferred:
		return deferred("the kubelet says: Deferred", time.Time{})
	default:
		return waiting("the kubelet is changing the containers")
	}
}

func containerNotYet(c *corev1.Container, s *corev1.ContainerStatus) *standing {
	if s == nil || s.State.Running == nil {
		w := waiting(fmt.Sprintf("container %q is not running", c.Name))
		w.reason = ReasonWaitingForContainer
		return w
	}
	if s.AllocatedResources != nil {
		if diff := differs(c.Resources.Requests, s.AllocatedResources, allocatedTolerance); diff != "" {
			return waiting(fmt.Sprintf("container %q: allocated %s", c.Name, diff))
		}
	}
	if s.Resources == nil {
		return waiting(fmt.Sprintf("container %q: its kubelet reports no resources", c.Name))
	}
	if diff := differs(c.Resources.Limits, s.Resources.Limits, limitTolerance); diff != "" {
		return waiting(fmt.Sprintf("container %q: limits.%s", c.Name, diff))
	}
	if diff := differs(onlyCPU(c.Resources.Requests), s.Resources.Requests, requestTolerance); diff != "" {
		return waiting(fmt.Sprintf("container %q: requests.%s", c.Name, diff))
	}
	return nil
}

// onlyCPU: no runtime shows a memory request, the kubelet just repeats one (k/k#125559).
func onlyCPU(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	if q, ok := list[corev1.ResourceCPU]; ok {
		out[corev1.ResourceCPU] = q
	}
	return out
}

// differs gives the first difference in cpu and memory as "cpu is 100m, want 200m". Kubelets report every key that they have
// allocated (convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go), so one that the status lacks is still to come.
func differs(want, have corev1.ResourceList, same func(corev1.ResourceName, resource.Quantity, resource.Quantity) bool) string {
	for _, res := range resizable() {
		w, asked := want[res]
		h, told := have[res]
		switch {
		case asked && !told:
			return fmt.Sprintf("%s is not set, want %s", res, w.String())
		case asked && !same(res, w, h):
			return fmt.Sprintf("%s is %s, want %s", res, h.String(), w.String())
		}
	}
	return ""
}

func allocatedTolerance(_ corev1.ResourceName, want, have resource.Quantity) bool {
	return want.Cmp(have) == 0
}

// requestTolerance: shares have a minimum of 2, and 1000 millicores are 1024 shares, so a request comes back a little lower
// (k/k#128680).
func requestTolerance(_ corev1.ResourceName, want, have resource.Quantity) bool {
	w, h := want.MilliValue(), have.MilliValue()
	return w == h || w <= 2 && h <= 2
}

// limitTolerance: the quota has a minimum of 1 ms in 100 ms, and the systemd driver rounds it up to steps of 10 ms
// (k/k#128769, #129357).
func limitTolerance(res corev1.ResourceName, want, have resource.Quantity) bool {
	if res != corev1.ResourceCPU {
		return want.Cmp(have) == 0
	}
	w, h := want.MilliValue(), have.MilliValue()
	return w == h || w <= 10 && h <= 10 || h == (w+9)/10*10
}

func condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

// evidence collects what the pod object tells.
func evidence(pod *corev1.Pod) []ContainerEvidence {
	all := make([]ContainerEvidence, 0, len(pod.Spec.Containers))
	for c, k := range containers(pod) {
		s := status(pod, c.Name)
		if k == kindInit && (s == nil || s.State.Running == nil) {
			continue
		}
		e := ContainerEvidence{Name: c.Name, Desired: specOf(c)}
		if s != nil {
			e.Allocated, e.RestartCount = onlyResizable(s.AllocatedResources), s.RestartCount
			if s.Resources != nil {
				e.Actual = &Requirements{Requests: onlyResizable(s.Resources.Requests), Limits: onlyResizable(s.Resources.Limits)}
			}
		}
		all = append(all, e)
	}
	return all
}

// restartWarnings tells of restarts since the patch: in place does not always mean without one (k/k#122760).
func restartWarnings(containers []ContainerEvidence, before map[string]int32) []string {
	var out []string
	for _, c := range containers {
		if count, ok := before[c.Name]; ok && c.RestartCount > count {
			out = append(out, fmt.Sprintf("container %q was restarted since: restartCount %d, was %d", c.Name, c.RestartCount, count))
		}
	}
	return out
}

// fingerprint tells one wanted state of a pod from another.
func fingerprint(pod *corev1.Pod) string {
	b := make([]byte, 0, 256)
	var digits [32]byte
	for c := range containers(pod) {
		b = append(append(b, c.Name...), ':')
		for _, list := range [...]corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for _, res := range resizable() {
				if q, ok := list[res]; ok {
					number, suffix := q.CanonicalizeBytes(digits[:0])
					b = append(append(b, number...), suffix...)
				}
				b = append(b, ' ')
			}
		}
	}
	return string(b)
}
