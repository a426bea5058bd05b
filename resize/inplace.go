package resize

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// defaultConfirmWithin: a kubelet's own longest wait for a status is its sync period, 60 to 90 s; a few of them.
const defaultConfirmWithin = 5 * time.Minute

// InPlaceOptions tune an InPlace. The zero value works.
type InPlaceOptions struct {
	// Nodes reads a node, from a lister perhaps; nil: a GET from the API server, one for each change sent and each resize confirmed.
	Nodes func(ctx context.Context, name string) (*corev1.Node, error)
	// LivePods says that every pod passed to Resize was just read from the API server. Otherwise it may come from a cache, and a
	// pod that a new process sees for the first time is looked at twice, 2 s apart, before it is Done.
	LivePods bool
	// Plan says what the caller allows.
	Plan PlanOptions
	// NoTouch leaves pods of kubelets of 1.27 to 1.31 alone after a change. Otherwise an annotation (TouchedAnnotation) is set on them a
	// few times, so that their kubelets report within a second what they would after 60 to 90.
	NoTouch bool
	// ConfirmWithin is when a resize that is not confirmed becomes Unconfirmed; zero: 5 minutes.
	ConfirmWithin time.Duration
	// Remember is how many pods are remembered; zero: 32768. It should be more than are looked after: a pod that was forgotten is one
	// that a new process sees for the first time.
	Remember int
	// Clock is for tests; nil: the system's.
	Clock clock.PassiveClock
}

// InPlace resizes pods by the subresource pods/resize, which API servers have from 1.32 on, or by a patch of the pod (1.27 to 1.31;
// KEP-1287). It sends one request for a change and none while the kubelet works, but for the touches of InPlaceOptions.NoTouch and a
// dry run at the first patch of a pod.
type InPlace struct {
	client kubernetes.Interface
	opts   InPlaceOptions
	server *server
	memory *memory
}

var (
	_ Resizer   = (*InPlace)(nil)
	_ Planner   = (*InPlace)(nil)
	_ DryRunner = (*InPlace)(nil)
)

// NewInPlace makes an InPlace. The client needs patch on pods/resize, for API servers and kubelets of 1.27 to 1.31 on pods, and get
// on nodes unless opts.Nodes is set.
func NewInPlace(client kubernetes.Interface, opts InPlaceOptions) *InPlace {
	if opts.Nodes == nil {
		opts.Nodes = func(ctx context.Context, name string) (*corev1.Node, error) {
			return client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		}
	}
	if opts.ConfirmWithin == 0 {
		opts.ConfirmWithin = defaultConfirmWithin
	}
	if opts.Remember == 0 {
		opts.Remember = defaultRemember
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &InPlace{
		client: client, opts: opts, memory: newMemory(opts.Remember),
		server: &server{discovery: client.Discovery(), clock: opts.Clock},
	}
}

// Resize implements Resizer.
func (r *InPlace) Resize(ctx context.Context, pod *corev1.Pod, want Resources) (Result, error) {
	if res, ok := r.settled(pod, want); ok {
		return res, nil
	}
	pod = r.memory.newest(pod)
	delta := Changes(pod, want)
	if len(delta.Containers) == 0 {
		if stops := Stops(Plan(pod, nil, Server{Resize: true}, want, r.opts.Plan)); len(stops) > 0 {
			return Stopped(PathInPlace, pod, stops), nil
		}
		return r.progress(ctx, pod), nil
	}
	facts, err := r.server.detect(ctx)
	if err != nil {
		return Result{}, err
	}
	node, warnings := r.node(ctx, pod)
	findings := planInPlace(pod, node, facts, want, r.opts.Plan)
	if stops := Stops(findings); len(stops) > 0 {
		res := Stopped(PathInPlace, pod, stops)
		res.Warnings = warnings
		return res, nil
	}
	res, err := r.send(ctx, pod, change{delta: delta, facts: facts, kubelet: kubeletOf(node)})
	for _, f := range findings {
		res.Warnings = append(res.Warnings, f.Message)
	}
	res.Warnings = append(res.Warnings, warnings...)
	return res, err
}

// settled answers for a pod that was found Done before and has not changed since, without a second look at anything. Who looks
// after thousands of pods asks this most of the time.
func (r *InPlace) settled(pod *corev1.Pod, want Resources) (Result, bool) {
	res, ok := r.memory.settled(pod)
	if !ok || len(Changes(pod, want).Containers) > 0 {
		return Result{}, false
	}
	return res, len(unknown(pod, want)) == 0
}

// Plan implements Planner.
func (r *InPlace) Plan(ctx context.Context, pod *corev1.Pod, want Resources) (Forecast, error) {
	pod = r.memory.newest(pod)
	f := Forecast{Path: PathInPlace, Changes: Changes(pod, want)}
	f.Previous = Replaced(pod, f.Changes)
	var node *corev1.Node
	node, f.Warnings = r.node(ctx, pod)
	facts, err := r.server.detect(ctx)
	if err != nil {
		f.Warnings = append(f.Warnings, err.Error())
		f.Findings = planInPlace(pod, node, facts, want, r.opts.Plan)
		return f, nil
	}
	f.Findings = planInPlace(pod, node, facts, want, r.opts.Plan)
	where := endpointResize
	if !facts.Resize {
		where = endpointPod
	}
	if len(f.Changes.Containers) > 0 && len(Stops(f.Findings)) == 0 {
		if where, err = r.forecast(ctx, pod, facts, &f); err != nil {
			f.Warnings = append(f.Warnings, err.Error())
		}
	}
	r.review(ctx, pod, where, &f)
	if where != endpointPod && !r.opts.NoTouch && reportsLate(kubeletOf(node)) {
		r.reviewTouch(ctx, pod, &f)
	}
	return f, nil
}

// forecast finds out where the change would be sent, and adds what stands against it there.
func (r *InPlace) forecast(ctx context.Context, pod *corev1.Pod, facts Server, f *Forecast) (endpoint, error) {
	patch, err := patchFor(pod, f.Changes)
	if err != nil {
		return endpointPod, err
	}
	where, stop, err := r.route(ctx, pod, facts, patch)
	if stop != nil {
		f.Findings = append(f.Findings, *stop)
		if stop.Reason == ReasonNoPath {
			f.Path = PathNone
		}
	}
	return where, err
}

// review asks whether the caller may make the change.
func (r *InPlace) review(ctx context.Context, pod *corev1.Pod, where endpoint, f *Forecast) {
	allowed, err := mayPatch(ctx, r.client, pod, where)
	switch {
	case err != nil:
		f.Warnings = append(f.Warnings, err.Error())
	case !allowed:
		f.Findings = append(f.Findings, Finding{
			State: StateRefused, Reason: ReasonForbidden,
			Message: "you may not resize this pod: add this rule to a role of yours: " + where.rule(),
		})
	}
}

// reviewTouch asks whether the caller may touch the pod, without which it only takes longer to confirm.
func (r *InPlace) reviewTouch(ctx context.Context, pod *corev1.Pod, f *Forecast) {
	if allowed, err := mayPatch(ctx, r.client, pod, endpointPod); err == nil && !allowed {
		f.Warnings = append(f.Warnings, untouchable(pod)+": add this rule to a role of yours: "+endpointPod.rule())
	}
}

// node reads the pod's node. One that cannot be read is nil, and that is said.
func (r *InPlace) node(ctx context.Context, pod *corev1.Pod) (node *corev1.Node, warnings []string) {
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	node, err := r.opts.Nodes(ctx, pod.Spec.NodeName)
	if err != nil {
		return nil, []string{fmt.Sprintf("node %q cannot be read, so its size is not checked: %v", pod.Spec.NodeName, err)}
	}
	return node, nil
}

func planInPlace(pod *corev1.Pod, node *corev1.Node, facts Server, want Resources, opts PlanOptions) []Finding {
	facts.Resize = true // the caller chose this path
	return Plan(pod, node, facts, want, opts)
}

// Stopped is the Result for a pod that a Plan found something against: the state of the first finding, and what all of them say.
func Stopped(path Path, pod *corev1.Pod, stops []Finding) Result {
	messages := make([]string, 0, len(stops))
	for _, f := range stops {
		messages = append(messages, f.Message)
	}
	res := Result{
		Path: path, State: stops[0].State, Reason: stops[0].Reason,
		Message: strings.Join(messages, "; "), Containers: evidence(pod),
	}
	switch res.State {
	case StateDeferred, StateRefused: // whoever refuses may change their mind
		res.RetryAfter = pollDeferred
	default:
	}
	if res.Reason == ReasonNotRunning {
		res.RetryAfter = pollSoon
	}
	return res
}

// change is what is to be sent, with what was found out for it.
type change struct {
	delta   Resources
	facts   Server
	kubelet uint // minor version; zero: unknown
}

func (r *InPlace) send(ctx context.Context, pod *corev1.Pod, c change) (Result, error) {
	patch, err := patchFor(pod, c.delta)
	if err != nil {
		return Result{}, &Error{Reason: ReasonUnknown, Message: fmt.Sprintf("encoding the patch of pod %q", key(pod)), Err: err}
	}
	if res, ok := r.memory.refused(pod, string(patch), r.opts.Clock.Now()); ok {
		return res, nil
	}
	where, stop, err := r.route(ctx, pod, c.facts, patch)
	if err != nil {
		return Result{}, err
	}
	if stop != nil && (stop.Reason == ReasonNoPath || stop.Reason == ReasonNotRunning) { // the pod tells so, which may change at any time
		return Stopped(PathNone, pod, []Finding{*stop}), nil
	}
	var answer *corev1.Pod
	if stop == nil {
		if answer, err = r.patch(ctx, pod, where, patch); err != nil {
			stop, err = r.refused(ctx, pod, where, err)
		}
	}
	switch {
	case err != nil:
		return Result{}, err
	case stop != nil:
		res := Stopped(PathInPlace, pod, []Finding{*stop})
		r.memory.refuse(pod, string(patch), res, r.opts.Clock.Now())
		return res, nil
	default:
		return r.took(pod, answer, patch, c), nil
	}
}

// took is the answer to a change that the API server took, or says that it did.
func (r *InPlace) took(pod, answer *corev1.Pod, patch []byte, c change) Result {
	previous := Replaced(pod, c.delta)
	now := r.opts.Clock.Now()
	r.memory.sent(answer, previous, c.kubelet, now)
	res := Result{
		Path: PathInPlace, State: StateInProgress, Reason: ReasonSent, Message: "the API server took the change",
		RetryAfter: pollSoon, Previous: &previous, Containers: evidence(answer),
	}
	if left := Changes(answer, c.delta); len(left.Containers) > 0 {
		res.State, res.Reason, res.RetryAfter = StateInfeasible, ReasonNotTaken, 0
		res.Message = fmt.Sprintf("the API server answered OK but did not take the values of container %q", sortedKeys(left.Containers)[0])
		r.memory.refuse(pod, string(patch), res, now)
		return res
	}
	if reportsLate(c.kubelet) && tellsReserved(answer) && !r.opts.NoTouch {
		res.RetryAfter = firstTouch
	}
	return res
}

// patch sends once: by itself the client would send it up to 11 times, and wait in between.
func (r *InPlace) patch(ctx context.Context, pod *corev1.Pod, where endpoint, patch []byte, dryRun ...string) (*corev1.Pod, error) {
	var subresources []string
	if where != "" {
		subresources = []string{string(where)}
	}
	opts := metav1.PatchOptions{DryRun: dryRun}
	client := r.client.CoreV1().RESTClient()
	if c, ok := client.(*rest.RESTClient); ok && c == nil { // a fake clientset has none
		return r.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, opts, subresources...)
	}
	answer := &corev1.Pod{}
	err := client.Patch(types.StrategicMergePatchType).
		Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource(subresources...).
		VersionedParams(&opts, scheme.ParameterCodec).
		MaxRetries(0).Body(patch).Do(ctx).Into(answer)
	if err == nil && answer.UID != pod.UID {
		err = &Error{Reason: ReasonUnknown, Retryable: true, Message: "the answer is not that pod"}
	}
	return answer, err
}

// patchFor is a strategic merge patch: containers are found by name and the rest of the pod is left alone. The UID makes sure
// that it is this pod.
func patchFor(pod *corev1.Pod, delta Resources) ([]byte, error) {
	type container struct {
		Name      string       `json:"name"`
		Resources Requirements `json:"resources"`
	}
	spec := map[string][]container{}
	for _, name := range sortedKeys(delta.Containers) {
		list := "containers"
		if _, k := find(pod, name); k != kindRegular {
			list = "initContainers"
		}
		spec[list] = append(spec[list], container{Name: name, Resources: delta.Containers[name]})
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "spec": spec})
}

// refused tells what a failed patch means: what stands against the resize, or an error.
func (r *InPlace) refused(ctx context.Context, pod *corev1.Pod, where endpoint, err error) (*Finding, error) {
	doing := fmt.Sprintf("resizing pod %q", key(pod))
	if gone := podGone(pod, err); gone != nil {
		return nil, gone
	}
	if contradicted(err) {
		r.server.forget()
		return nil, Failure(doing, fmt.Errorf("%w: %w", errContradiction, err))
	}
	if v, ok := rejection(err); ok {
		return &Finding{State: v.state, Reason: v.reason, Message: "the API server says: " + err.Error()}, nil
	}
	if !apierrors.IsForbidden(err) {
		return nil, Failure(doing, err)
	}
	if allowed, reviewErr := mayPatch(ctx, r.client, pod, where); reviewErr == nil && allowed {
		return nil, Failure(doing, err) // an admission plugin whose words are unknown, or that is not ready yet
	}
	return nil, forbidden(doing, where.rule(), err)
}
