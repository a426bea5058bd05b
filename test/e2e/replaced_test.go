//go:build e2e

package e2e_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
)

// testPodReplaced: what was asked for one pod is not for another that has its name.
func (e *env) testPodReplaced(t *testing.T) {
	r, spec := e.newResizer(t), pod("replaced", container("app", amounts{"100m/200m", "64Mi/128Mi"}))
	start := kernel{"": {102, 20000, 128 * mi}, "app": {102, 20000, 128 * mi}}
	larger := want{"app": {"300m/600m", "128Mi/256Mi"}}.resources()

	old := e.run(t, spec.DeepCopy())
	e.resizeTo(t, r, old, larger)
	old = e.latest(t, old)
	if err := e.DeletePod(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the CRIResize goes with its pod", func() error {
		if e.criResize(t, old) != nil {
			return errors.New("it is still there")
		}
		return nil
	})
	smaller := want{"app": {cpu: "50m/100m"}}.resources()
	e.notFound(t, r, old, smaller)

	next := e.run(t, spec.DeepCopy())
	equal(t, "the kernel for the new pod", e.read(t, next), start)
	before := e.stateOf(t, []*corev1.Pod{next})
	e.notFound(t, r, old, smaller)
	e.notFound(t, e.newResizer(t), old, smaller)
	equal(t, "the new pod", e.stateOf(t, []*corev1.Pod{next}), before)

	e.resizeTo(t, r, next, larger)
	equal(t, "the kernel after a resize of the new pod", e.read(t, next), kernel{"": {307, 60000, 256 * mi}, "app": {307, 60000, 256 * mi}})
}

// notFound insists that a resize of a pod that is gone is told so, and leaves no CRIResize.
func (e *env) notFound(t *testing.T, r resize.Resizer, gone *corev1.Pod, w resize.Resources) {
	t.Helper()
	res, err := r.Resize(t.Context(), gone, w)
	var failure *resize.Error
	if !errors.As(err, &failure) || failure.Reason != resize.ReasonPodNotFound || failure.Retryable {
		t.Errorf("a resize of a pod that is gone: %+v, %v", res, err)
	}
	if e.criResize(t, gone) != nil {
		t.Error("a CRIResize for a pod that is gone")
	}
}
