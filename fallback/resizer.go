package fallback

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	pollSoon     = time.Second
	pollDeferred = 30 * time.Second

	// writeAttempts bounds how often a write that met another one is read, merged and tried again.
	writeAttempts = 5
	// unseen is said with each change.
	unseen = "the scheduler, ResourceQuota, LimitRange, eviction and oom_score_adj do not see this change; whether the node has room is only checked against the pods that are there now"
	// unservedFor is how long it is believed that there are no CRIResizes on this cluster.
	unservedFor = 5 * time.Minute
	// defaultConfirmWithin: an agent answers within a second; five minutes cover its restart.
	defaultConfirmWithin = 5 * time.Minute
)

// AddToScheme registers what the client of a Resizer must know.
func AddToScheme(scheme *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	return nil
}

// Options tune a Resizer. The zero value works.
type Options struct {
	// Plan says what the caller allows.
	Plan resize.PlanOptions
	// Pods lists the pods of a node, from an informer's index perhaps, to see whether the node has room for a larger request; nil: a
	// LIST from the API server for each such change. Who may not list them is not stopped, but warned.
	Pods func(ctx context.Context, nodeName string) ([]corev1.Pod, error)
	// AgentNamespace is where the agents keep their Leases; empty: podresize-system.
	AgentNamespace string
	// ConfirmWithin is when a resize that no agent has confirmed becomes Unconfirmed; zero: 5 minutes.
	ConfirmWithin time.Duration
	// Clock is for tests; nil: the system's.
	Clock clock.PassiveClock
}

// Resizer is the CRI path as the caller sees it.
type Resizer struct {
	client   client.Client
	opts     Options
	agents   *agents
	unserved belief
}

// belief is something that is taken for true for a while.
type belief struct {
	mu    sync.Mutex
	until time.Time
}

func (b *belief) note(c clock.PassiveClock) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = c.Now().Add(unservedFor)
}

func (b *belief) now(c clock.PassiveClock) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return c.Now().Before(b.until)
}

var (
	_ resize.Resizer = (*Resizer)(nil)
	_ resize.Planner = (*Resizer)(nil)
)

// New makes a Resizer. The client's scheme must know the types of AddToScheme; it needs get, create, update and delete on criresizes,
// get on pods and nodes, and get on leases in the agents' namespace; for the room on a node, list on pods and criresizes of all
// namespaces. It must read its own writes: a client without a cache does.
func New(c client.Client, opts Options) *Resizer {
	if opts.AgentNamespace == "" {
		opts.AgentNamespace = v1alpha1.AgentNamespace
	}
	if opts.ConfirmWithin == 0 {
		opts.ConfirmWithin = defaultConfirmWithin
	}
	if opts.Pods == nil {
		opts.Pods = podsOn(c)
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &Resizer{client: c, opts: opts, agents: newAgents(c, opts)}
}

// Resize implements resize.Resizer.
func (r *Resizer) Resize(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
	if pod.Spec.NodeName == "" {
		return deferred(resize.ReasonNotRunning, fmt.Sprintf("pod %q has no node yet", podKey(pod))), nil
	}
	object, err := r.get(ctx, pod)
	if meta.IsNoMatchError(err) {
		return notServed(pod), nil
	}
	if err != nil {
		return resize.Result{}, err
	}
	held := effective(pod, object)
	if object == nil && asksNothing(want) {
		return resize.Result{
			Path: resize.PathCRI, State: resize.StateDone, Reason: resize.ReasonNothingAsked,
			Message: neverResized(pod), Containers: evidence(held, nil),
		}, nil
	}
	if covers(pod, object, want) {
		if stops := resize.Stops(resize.Plan(held, nil, resize.Server{}, want, r.opts.Plan)); len(stops) > 0 {
			return resize.Stopped(resize.PathCRI, held, stops), nil
		}
		return r.wait(ctx, pod, object)
	}
	checked, free, err := r.check(ctx, held, object, want)
	if err != nil || !free {
		return checked, err
	}
	res, err := r.ask(ctx, pod, object, want)
	res.Warnings = append(res.Warnings, checked.Warnings...)
	return res, err
}

// neverResized says what a pod without a CRIResize has.
func neverResized(pod *corev1.Pod) string {
	if _, small := pod.Annotations[v1alpha1.AnnotationStartLimits]; small {
		return "the pod was never resized: it has what its spec says, or lower limits by its annotation " + v1alpha1.AnnotationStartLimits +
			"; a resize to what its spec says gives it that"
	}
	return "the pod was never resized: it has what its spec says"
}

// check looks at all that must be so before something is written, at the same time: the pod is still there, its node can hold it and
// has room, and the pod's agent lives. Unless the way is free, the Result says what is not so; if it is, what could not be checked.
func (r *Resizer) check(ctx context.Context, held *corev1.Pod, object *v1alpha1.CRIResize, want resize.Resources) (res resize.Result, free bool, err error) {
	var (
		group           sync.WaitGroup
		findings        []resize.Finding
		warnings        []string
		agent           sign
		podErr, nodeErr error
		leaseErr        error
	)
	group.Go(func() { podErr = r.stillThere(ctx, held) })
	group.Go(func() { findings, warnings, nodeErr = r.plan(ctx, held, want) })
	group.Go(func() { agent, leaseErr = r.agents.alive(ctx, held, object) })
	group.Wait()
	stops := resize.Stops(findings)
	switch {
	case podErr != nil:
		return res, false, podErr
	case nodeErr != nil:
		return res, false, nodeErr
	case len(stops) > 0:
		return resize.Stopped(resize.PathCRI, held, stops), false, nil
	case leaseErr != nil:
		return res, false, leaseErr
	case !agent.alive:
		res = deferred(resize.ReasonAgentNotReady, agent.why)
		res.Containers = evidence(held, object)
		return res, false, nil
	}
	res.Warnings = warnings
	return res, true, nil
}

// wait judges what the agent says of an object that asks for all that is wanted. Only an agent that says nothing is looked after.
func (r *Resizer) wait(ctx context.Context, pod *corev1.Pod, object *v1alpha1.CRIResize) (resize.Result, error) {
	res := r.progress(pod, object)
	if res.Reason != resize.ReasonWaitingForAgent {
		return res, nil
	}
	agent, err := r.agents.alive(ctx, pod, object)
	if err != nil {
		return resize.Result{}, err
	}
	if !agent.alive {
		res.State, res.Reason, res.Message, res.RetryAfter = resize.StateDeferred, resize.ReasonAgentNotReady, agent.why, pollDeferred
	}
	return res, nil
}

// plan looks at the pod as it is on this path: with the resources that it was given here, not those of its spec.
func (r *Resizer) plan(ctx context.Context, held *corev1.Pod, want resize.Resources) (findings []resize.Finding, warnings []string, err error) {
	node := &corev1.Node{}
	if err := r.client.Get(ctx, types.NamespacedName{Name: held.Spec.NodeName}, node); err != nil {
		return nil, nil, failure(fmt.Sprintf("reading node %q", held.Spec.NodeName), nodeRule, err)
	}
	findings = resize.Plan(held, node, resize.Server{}, want, r.opts.Plan)
	if len(resize.Stops(findings)) > 0 {
		return findings, nil, nil
	}
	full, err := r.room(ctx, node, held, want)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil, failure(fmt.Sprintf("looking at the room on node %q", node.Name), roomRule, err)
	case err != nil:
		warnings = append(warnings, unchecked(err))
	case full != nil:
		findings = append(findings, *full)
	}
	return findings, warnings, nil
}

// ask writes what is wanted unless it is there already, and judges what the agent says of it.
func (r *Resizer) ask(ctx context.Context, pod *corev1.Pod, object *v1alpha1.CRIResize, want resize.Resources) (resize.Result, error) {
	for range writeAttempts {
		if covers(pod, object, want) {
			return r.progress(pod, object), nil
		}
		held := effective(pod, object)
		previous := resize.Replaced(held, resize.Changes(held, want))
		written, err := write(ctx, r.client, pod, object, want)
		if err == nil {
			res := r.progress(pod, written)
			res.State, res.Reason, res.RetryAfter = resize.StateInProgress, resize.ReasonSent, pollSoon
			res.Message, res.Previous = "the CRIResize was written", &previous
			res.Warnings = append(res.Warnings, unseen)
			return res, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return resize.Result{}, failure(fmt.Sprintf("writing CRIResize %q of pod %q", pod.UID, podKey(pod)), writeRule, err)
		}
		if object, err = r.get(ctx, pod); err != nil {
			return resize.Result{}, err
		}
		if res, free, err := r.check(ctx, effective(pod, object), object, want); err != nil || !free {
			return res, err // what the other one wrote does not go with this
		}
	}
	return resize.Result{}, &resize.Error{
		Reason: resize.ReasonConflict, Retryable: true,
		Message: fmt.Sprintf("writing CRIResize %q of pod %q: somebody else wrote it %d times in a row", pod.UID, podKey(pod), writeAttempts),
	}
}

func (r *Resizer) get(ctx context.Context, pod *corev1.Pod) (*v1alpha1.CRIResize, error) {
	object := &v1alpha1.CRIResize{}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: string(pod.UID)}, object)
	switch {
	case err == nil:
		return object, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case meta.IsNoMatchError(err):
		return nil, err
	default:
		return nil, failure(fmt.Sprintf("reading CRIResize %q of pod %q", pod.UID, podKey(pod)), readRule, err)
	}
}

func write(ctx context.Context, to client.Writer, pod *corev1.Pod, object *v1alpha1.CRIResize, want resize.Resources) (*v1alpha1.CRIResize, error) {
	if object == nil {
		created := newObject(pod, want)
		return created, to.Create(ctx, created)
	}
	updated := object.DeepCopy()
	merge(updated, want)
	return updated, to.Update(ctx, updated)
}

// stillThere makes sure that the caller's copy is not of a pod that is gone: its CRIResize may outlive it until
// it is garbage-collected.
func (r *Resizer) stillThere(ctx context.Context, pod *corev1.Pod) error {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := r.client.Get(ctx, client.ObjectKeyFromObject(pod), live)
	switch {
	case apierrors.IsNotFound(err):
		return &resize.Error{Reason: resize.ReasonPodNotFound, Message: fmt.Sprintf("pod %q does not exist", podKey(pod)), Err: err}
	case err != nil:
		return failure(fmt.Sprintf("reading pod %q", podKey(pod)), podRule, err)
	case live.UID != pod.UID:
		return &resize.Error{Reason: resize.ReasonPodNotFound, Message: fmt.Sprintf("pod %q is not the pod it was: another has its name", podKey(pod))}
	}
	return nil
}

func notServed(pod *corev1.Pod) resize.Result {
	return resize.Result{
		Path: resize.PathNone, State: resize.StateRefused, Reason: resize.ReasonNoPath, RetryAfter: pollDeferred, Containers: evidence(pod, nil),
		Message: "this cluster does not resize pods in place, and the API server has no criresizes.podresize.dev: deploy manifests/base",
	}
}

func podKey(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func deferred(reason resize.Reason, message string) resize.Result {
	return resize.Result{Path: resize.PathCRI, State: resize.StateDeferred, Reason: reason, Message: message, RetryAfter: pollDeferred}
}

// Rules that a caller needs, as an error prints them; the ClusterRoles podresize-resizer and podresize-resizer-nodes have them.
const (
	podRule   = `apiGroups: [""], resources: ["pods"], verbs: ["get"]`
	nodeRule  = `apiGroups: [""], resources: ["nodes"], verbs: ["get"]`
	roomRule  = `apiGroups: [""], resources: ["pods"], verbs: ["list"]`
	leaseRule = `apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get"]`
	readRule  = `apiGroups: ["podresize.dev"], resources: ["criresizes"], verbs: ["get"]`
	writeRule = `apiGroups: ["podresize.dev"], resources: ["criresizes"], verbs: ["create", "update"]`

	deleteRule = `apiGroups: ["podresize.dev"], resources: ["criresizes"], verbs: ["delete"]`
)

// failure turns a client's error into an *Error; rule is what the caller needs to be allowed.
func failure(doing, rule string, err error) error {
	e := resize.Failure(doing, err)
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot ") { // RBAC says so, other plugins that refuse do not
		e.Reason, e.Retryable = resize.ReasonForbidden, false
		e.Message += ": add this rule to a role of yours: " + rule
	}
	return e
}
