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
	// ConfirmWithin is when a resize that is not confirmed becomes Unconfirmed; zero: 5 minutes.
	ConfirmWithin time.Duration
	// Remember is how many pods are remembered; zero: 32768. It should be more than are looked after: a pod that was forgotten is one
	// that a new process sees for the first time.
	Remember int
	// Clock is for tests; nil: the system's.
	Clock clock.PassiveClock
}

// InPlace resizes pods by the subresource pods/resize, which API servers have from 1.32 on (KEP-1287). It sends one request for a
// change and none while the kubelet works.
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

// NewInPlace makes an InPlace. The client needs patch on pods/resize, and get on nodes unless opts.Nodes is set.
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
	findings, warnings := r.plan(ctx, pod, want)
	if stops := Stops(findings); len(stops) > 0 {
		res := Stopped(PathInPlace, pod, stops)
		res.Warnings = warnings
		return res, nil
	}
	res, err := r.send(ctx, pod, delta)
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
	f.Findings, f.Warnings = r.plan(ctx, pod, want)
	allowed, err := mayResize(ctx, r.client, pod)
	switch {
	case err != nil:
		f.Warnings = append(f.Warnings, err.Error())
	case !allowed:
		f.Findings = append(f.Findings, Finding{
			State: StateRefused, Reason: ReasonForbidden,
			Message: "you may not resize this pod: add this rule to a role of yours: " + resizeRule,
		})
	}
	return f, nil
}

// plan gathers what the plan wants to know. What cannot be read is not checked, and that is said.
func (r *InPlace) plan(ctx context.Context, pod *corev1.Pod, want Resources) (findings []Finding, warnings []string) {
	facts, err := r.server.detect(ctx)
	if err != nil {
		warnings = append(warnings, err.Error())
	}
	facts.Resize = true // the caller chose this path
	var node *corev1.Node
	if pod.Spec.NodeName != "" {
		if node, err = r.opts.Nodes(ctx, pod.Spec.NodeName); err != nil {
			node = nil
			warnings = append(warnings, fmt.Sprintf("node %q cannot be read, so its size is not checked: %v", pod.Spec.NodeName, err))
		}
	}
	return Plan(pod, node, facts, want, r.opts.Plan), warnings
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

func (r *InPlace) send(ctx context.Context, pod *corev1.Pod, delta Resources) (Result, error) {
	patch, err := patchFor(pod, delta)
	if err != nil {
		return Result{}, &Error{Reason: ReasonUnknown, Message: fmt.Sprintf("encoding the patch of pod %q", key(pod)), Err: err}
	}
	if res, ok := r.memory.refused(pod, string(patch), r.opts.Clock.Now()); ok {
		return res, nil
	}
	answer, err := r.patch(ctx, pod, patch)
	if err != nil {
		res, err := r.refused(ctx, pod, err)
		if err == nil {
			r.memory.refuse(pod, string(patch), res, r.opts.Clock.Now())
		}
		return res, err
	}
	if answer.UID != pod.UID {
		return Result{}, &Error{Reason: ReasonUnknown, Retryable: true, Message: fmt.Sprintf("resizing pod %q: the answer is not that pod", key(pod))}
	}
	previous := Replaced(pod, delta)
	r.memory.sent(answer, previous, r.opts.Clock.Now())
	res := Result{
		Path: PathInPlace, State: StateInProgress, Reason: ReasonSent, Message: "the API server took the change",
		RetryAfter: pollSoon, Previous: &previous, Containers: evidence(answer),
	}
	if left := Changes(answer, delta); len(left.Containers) > 0 {
		res.State, res.Reason, res.RetryAfter = StateInfeasible, ReasonNotTaken, 0
		res.Message = fmt.Sprintf("the API server answered OK but did not take the values of container %q", sortedKeys(left.Containers)[0])
		r.memory.refuse(pod, string(patch), res, r.opts.Clock.Now())
	}
	return res, nil
}

// patch sends once: by itself the client would send it up to 11 times, and wait in between.
func (r *InPlace) patch(ctx context.Context, pod *corev1.Pod, patch []byte, dryRun ...string) (*corev1.Pod, error) {
	opts := metav1.PatchOptions{DryRun: dryRun}
	client := r.client.CoreV1().RESTClient()
	if c, ok := client.(*rest.RESTClient); ok && c == nil { // a fake clientset has none
		return r.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, opts, "resize")
	}
	answer := &corev1.Pod{}
	err := client.Patch(types.StrategicMergePatchType).
		Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("resize").
		VersionedParams(&opts, scheme.ParameterCodec).
		MaxRetries(0).Body(patch).Do(ctx).Into(answer)
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

// refused tells what a failed patch means: a state of the resize, or an error.
func (r *InPlace) refused(ctx context.Context, pod *corev1.Pod, err error) (Result, error) {
	doing := fmt.Sprintf("resizing pod %q", key(pod))
	if gone := podGone(pod, err); gone != nil {
		return Result{}, gone
	}
	if contradicted(err) {
		r.server.forget()
		return Result{}, Failure(doing, fmt.Errorf("%w: %w", errContradiction, err))
	}
	if v, ok := rejection(err); ok {
		return rejected(pod, v, err), nil
	}
	if !apierrors.IsForbidden(err) {
		return Result{}, Failure(doing, err)
	}
	if allowed, reviewErr := mayResize(ctx, r.client, pod); reviewErr == nil && allowed {
		return Result{}, Failure(doing, err) // an admission plugin whose words are unknown, or that is not ready yet
	}
	return Result{}, forbidden(doing, resizeRule, err)
}

func rejected(pod *corev1.Pod, v verdict, err error) Result {
	return Stopped(PathInPlace, pod, []Finding{{State: v.state, Reason: v.reason, Message: "the API server says: " + err.Error()}})
}
