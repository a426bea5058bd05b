package resize

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// defaultConfirmWithin: a kubelet's own longest wait for a status is its sync period, 60 to 90 s; a few of them.
const defaultConfirmWithin = 5 * time.Minute

// InPlaceOptions tune an InPlace. The zero value works.
type InPlaceOptions struct {
	// Nodes reads a node, from a lister perhaps; nil: a GET from the API server, once for each resize that is confirmed.
	Nodes func(ctx context.Context, name string) (*corev1.Node, error)
	// Plan says what the caller allows.
	Plan PlanOptions
	// ConfirmWithin is when a resize that is not confirmed becomes Unconfirmed; zero: 5 minutes.
	ConfirmWithin time.Duration
	// Clock is for tests; nil: the system's.
	Clock clock.PassiveClock
}

// InPlace resizes pods by the subresource pods/resize, which API servers have from 1.32 on (KEP-1287). It sends at most one
// request for a change and none while the kubelet works.
type InPlace struct {
	client kubernetes.Interface
	opts   InPlaceOptions
	memory *memory
}

var _ Resizer = (*InPlace)(nil)

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
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &InPlace{client: client, opts: opts, memory: newMemory()}
}

// Resize implements Resizer.
func (r *InPlace) Resize(ctx context.Context, pod *corev1.Pod, want Resources) (Result, error) {
	pod = r.memory.newest(pod)
	if findings := Plan(pod, nil, want, r.opts.Plan); len(findings) > 0 {
		return Stopped(PathInPlace, pod, findings), nil
	}
	if delta := missing(pod, want); len(delta.Containers) > 0 {
		return r.send(ctx, pod, delta)
	}
	return r.progress(ctx, pod), nil
}

// Stopped is the Result for a pod that a Plan found something against: the first finding, and the evidence as it is.
func Stopped(path Path, pod *corev1.Pod, findings []Finding) Result {
	messages := make([]string, 0, len(findings))
	for _, f := range findings {
		messages = append(messages, f.Message)
	}
	return Result{
		Path: path, State: findings[0].State, Reason: findings[0].Reason,
		Message: strings.Join(messages, "; "), Containers: evidence(pod),
	}
}

func (r *InPlace) send(ctx context.Context, pod *corev1.Pod, delta Resources) (Result, error) {
	patch, err := patchFor(pod, delta)
	if err != nil {
		return Result{}, &Error{Reason: ReasonUnknown, Message: fmt.Sprintf("encoding the patch of pod %q", key(pod)), Err: err}
	}
	answer, err := r.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
	if err != nil {
		return r.refused(ctx, pod, err)
	}
	if left := missing(answer, delta); len(left.Containers) > 0 {
		return Result{
			Path: PathInPlace, State: StateInfeasible, Reason: ReasonNotTaken, Containers: evidence(answer),
			Message: fmt.Sprintf("the API server answered OK but did not take the values of container %q", sortedKeys(left.Containers)[0]),
		}, nil
	}
	previous := replaced(pod, delta)
	r.memory.sent(answer, previous, r.opts.Clock.Now())
	return Result{
		Path: PathInPlace, State: StateInProgress, Reason: ReasonSent, Message: "the API server took the change",
		RetryAfter: pollSoon, Previous: &previous, Containers: evidence(answer),
	}, nil
}

// patchFor is a strategic merge patch: containers are found by name and the rest of the pod is left alone. The UID makes sure
// that it is this pod.
func patchFor(pod *corev1.Pod, delta Resources) ([]byte, error) {
	type container struct {
		Name      string       `json:"name"`
		Resources Requirements `json:"resources"`
	}
	containers := make([]container, 0, len(delta.Containers))
	for _, name := range sortedKeys(delta.Containers) {
		containers = append(containers, container{Name: name, Resources: delta.Containers[name]})
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"spec":     map[string]any{"containers": containers},
	})
}

// replaced gives the values that delta takes the place of.
func replaced(pod *corev1.Pod, delta Resources) Resources {
	out := Resources{Containers: map[string]Requirements{}}
	for name, d := range delta.Containers {
		spec := specOf(*container(pod, name))
		out.Containers[name] = Requirements{Requests: pick(spec.Requests, d.Requests), Limits: pick(spec.Limits, d.Limits)}
	}
	return out
}

func pick(from, keys corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for res := range keys {
		if q, ok := from[res]; ok {
			out[res] = q
		}
	}
	return out
}

// refused tells what a failed patch means: a state of the resize, or an error.
func (r *InPlace) refused(ctx context.Context, pod *corev1.Pod, err error) (Result, error) {
	if gone := podGone(pod, err); gone != nil {
		return Result{}, gone
	}
	if apierrors.IsNotFound(err) {
		return Result{}, &Error{Reason: ReasonUnknown, Retryable: true, Message: fmt.Sprintf("resizing pod %q", key(pod)), Err: fmt.Errorf("%w: %w", errNoEndpoint, err)}
	}
	if state, reason, ok := rejection(err); ok {
		return r.rejected(pod, state, reason, err), nil
	}
	if apierrors.IsForbidden(err) {
		return r.forbidden(ctx, pod, err)
	}
	return Result{}, failure(fmt.Sprintf("resizing pod %q", key(pod)), err)
}

func (r *InPlace) rejected(pod *corev1.Pod, state State, reason Reason, err error) Result {
	res := Result{Path: PathInPlace, State: state, Reason: reason, Message: "the API server says: " + err.Error(), Containers: evidence(pod)}
	if state == StateDeferred {
		res.RetryAfter = pollDeferred
	}
	return res
}

// forbidden asks whether RBAC allows the request at all: if it does, an admission plugin or policy has refused the values.
func (r *InPlace) forbidden(ctx context.Context, pod *corev1.Pod, err error) (Result, error) {
	review, reviewErr := r.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: pod.Namespace, Verb: "patch", Resource: "pods", Subresource: "resize", Name: pod.Name,
		}},
	}, metav1.CreateOptions{})
	if reviewErr == nil && review.Status.Allowed {
		return r.rejected(pod, StateInfeasible, ReasonRejected, err), nil
	}
	e := failure(fmt.Sprintf(`resizing pod %q: add this rule to a role of yours: apiGroups: [""], resources: ["pods/resize"], verbs: ["patch"]`, key(pod)), err)
	return Result{}, e
}
