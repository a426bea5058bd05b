package resize_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/podresize/podresize/resize"
)

// reconciler keeps pods at the resources that somebody wants for them. It is woken by resizewatch.PodMoved, by a change of want
// and by RequeueAfter; it keeps no state of its own and never waits.
type reconciler struct {
	// pod reads from a cache; nil: there is no such pod.
	pod     func(types.NamespacedName) *corev1.Pod
	resizer resize.Resizer
	// wants is what is wanted. In a real controller it is the spec of an object, so that it survives the process.
	wants map[types.NamespacedName]resize.Resources
	// report tells people, by an event or a condition.
	report func(resize.Result)
}

func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := r.pod(req.NamespacedName)
	want, wanted := r.wants[req.NamespacedName]
	if pod == nil || !wanted {
		return reconcile.Result{}, nil
	}
	res, err := r.resizer.Resize(ctx, pod, want)
	if err != nil {
		return onError(err)
	}
	r.report(res)
	switch res.State {
	case resize.StateInfeasible:
		// It stays in the pod's spec until somebody takes it back. Previous is nil where nothing was changed.
		if res.Previous != nil {
			r.wants[req.NamespacedName] = *res.Previous
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil // in a real controller the change of want wakes it
		}
	case resize.StateDone, resize.StateInProgress, resize.StateUnconfirmed, resize.StateDeferred, resize.StateRefused:
		// RetryAfter knows when another look pays; zero is for never.
	}
	return reconcile.Result{RequeueAfter: res.RetryAfter}, nil
}

// onError leaves the back-off to the work queue, unless the API server said when to come back or trying again is in vain.
func onError(err error) (reconcile.Result, error) {
	var failed *resize.Error
	switch {
	case !errors.As(err, &failed):
		return reconcile.Result{}, err
	case failed.Reason == resize.ReasonPodNotFound:
		return reconcile.Result{}, nil
	case !failed.Retryable:
		return reconcile.Result{}, reconcile.TerminalError(err)
	case failed.RetryAfter > 0:
		return reconcile.Result{RequeueAfter: failed.RetryAfter}, nil
	default:
		return reconcile.Result{}, err
	}
}

// script is a Resizer that gives one answer after the other.
type script []answer

type answer struct {
	result resize.Result
	err    error
}

func (s *script) Resize(_ context.Context, _ *corev1.Pod, want resize.Resources) (resize.Result, error) {
	next := (*s)[0]
	*s = (*s)[1:]
	requests := want.Containers["app"].Requests
	fmt.Printf("asked for %s\n", requests.Cpu())
	return next.result, next.err
}

func cpu(quantity string) resize.Resources {
	return resize.Resources{Containers: map[string]resize.Requirements{
		"app": {Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}},
	}}
}

// A reconciler that calls a Resizer: it treats states as states, errors as errors, and goes back when a resize turns out to be
// impossible.
func ExampleResizer() {
	previous := cpu("1")
	resizer := &script{
		{err: &resize.Error{Reason: resize.ReasonUnavailable, Message: "resizing", Retryable: true, RetryAfter: 2 * time.Second}},
		{result: resize.Result{State: resize.StateInProgress, Reason: resize.ReasonSent, RetryAfter: time.Second}},
		{result: resize.Result{State: resize.StateDeferred, Reason: resize.ReasonNodeFull, RetryAfter: 30 * time.Second}},
		{result: resize.Result{State: resize.StateInfeasible, Reason: resize.ReasonNodeTooSmall, Previous: &previous}},
		{result: resize.Result{State: resize.StateInProgress, Reason: resize.ReasonSent, RetryAfter: time.Second}},
		{result: resize.Result{State: resize.StateDone, Reason: resize.ReasonConfirmed}},
		{err: &resize.Error{Reason: resize.ReasonForbidden, Message: "resizing: add this rule"}},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	r := &reconciler{
		pod:     func(types.NamespacedName) *corev1.Pod { return pod },
		resizer: resizer,
		wants:   map[types.NamespacedName]resize.Resources{name: cpu("64")},
		report:  func(res resize.Result) { fmt.Printf("  %s: %s\n", res.State, res.Reason) },
	}
	for len(*resizer) > 0 {
		res, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: name})
		switch {
		case errors.Is(err, reconcile.TerminalError(nil)):
			fmt.Println("  not again:", err)
		case err != nil:
			fmt.Println("  with back-off:", err)
		case res.RequeueAfter > 0:
			fmt.Println("  again in", res.RequeueAfter)
		}
	}
	// Output:
	// asked for 64
	//   again in 2s
	// asked for 64
	//   InProgress: Sent
	//   again in 1s
	// asked for 64
	//   Deferred: NodeFull
	//   again in 30s
	// asked for 64
	//   Infeasible: NodeTooSmall
	//   again in 1ms
	// asked for 1
	//   InProgress: Sent
	//   again in 1s
	// asked for 1
	//   Done: Confirmed
	// asked for 1
	//   not again: terminal error: resizing: add this rule
}
