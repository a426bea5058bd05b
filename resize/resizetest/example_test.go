package resizetest_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/resizetest"
)

// reconciler is what is to be tested: it gives pods more CPU, and gives up where the node has no room.
type reconciler struct{ resizer resize.Resizer }

// Reconcile returns when to be called again; zero: when something moves.
func (r *reconciler) Reconcile(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	res, err := r.resizer.Resize(ctx, pod, more())
	if err != nil {
		return 0, err
	}
	if res.State == resize.StateDeferred && res.Previous != nil {
		res, err = r.resizer.Resize(ctx, pod, *res.Previous)
	}
	return res.RetryAfter, err
}

// A controller's own test: the Fake plays cluster and library.
func ExampleFake() {
	fake := resizetest.NewFake(resizetest.FakeOptions{})
	pod, r := fake.Add(web()), &reconciler{resizer: fake}
	reconcile := func() {
		again, err := r.Reconcile(context.Background(), pod)
		live := fake.Pod(pod.UID)
		fmt.Printf("spec %s, in force %s, again after %s, error: %v\n",
			live.Spec.Containers[0].Resources.Requests.Cpu(), live.Status.ContainerStatuses[0].Resources.Requests.Cpu(), again, err)
	}

	fake.Script(pod.UID,
		resizetest.Answer{Err: &resize.Error{Reason: resize.ReasonUnavailable, Message: "the API server is away", Retryable: true}},
		resizetest.Answer{Result: resize.Result{State: resize.StateDeferred, Reason: resize.ReasonNodeFull}},
	)
	reconcile() // the API server is away
	reconcile() // the node is full
	reconcile() // it has room again
	reconcile()

	// Output:
	// spec 100m, in force 100m, again after 0s, error: the API server is away
	// spec 100m, in force 100m, again after 1s, error: <nil>
	// spec 200m, in force 100m, again after 1s, error: <nil>
	// spec 200m, in force 200m, again after 0s, error: <nil>
}
