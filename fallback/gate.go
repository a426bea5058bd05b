package fallback

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

var (
	_ resize.DryRunner      = (*Resizer)(nil)
	_ resize.StopsEnforcing = (*Resizer)(nil)
)

// DryRun implements resize.DryRunner: the very write that Resize would send, with dryRun=All.
func (r *Resizer) DryRun(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
	object, err := r.get(ctx, pod)
	if meta.IsNoMatchError(err) {
		return notServed(pod), nil
	}
	if err != nil {
		return resize.Result{}, err
	}
	held := effective(pod, object)
	res, free, err := r.check(ctx, held, object, want)
	if err != nil || !free {
		return res, err
	}
	if _, err := write(ctx, client.NewDryRunClient(r.client), pod, object, want); err != nil {
		return resize.Result{}, failure(fmt.Sprintf("trying to write CRIResize %q of pod %q", pod.UID, podKey(pod)), writeRule, err)
	}
	previous := resize.Replaced(held, resize.Changes(held, want))
	res.Path, res.State, res.Reason = resize.PathCRI, resize.StateInProgress, resize.ReasonSent
	res.Message, res.Previous = "the API server takes the CRIResize; its agent was not asked", &previous
	res.Containers, res.Warnings = evidence(held, object), append(res.Warnings, unseen)
	return res, nil
}

// StopEnforcing implements resize.StopsEnforcing: the CRIResize, if there is one, is no longer enforced.
func (r *Resizer) StopEnforcing(ctx context.Context, pod *corev1.Pod) error {
	if r.unserved.now(r.opts.Clock) {
		return nil
	}
	object, err := r.get(ctx, pod)
	if meta.IsNoMatchError(err) {
		r.unserved.note(r.opts.Clock)
		return nil
	}
	if err != nil || object == nil || !enforced(object) {
		return err
	}
	return r.stop(ctx, pod, object)
}

func (r *Resizer) stop(ctx context.Context, pod *corev1.Pod, object *v1alpha1.CRIResize) error {
	object.Spec.Enforce = ptr.To(false)
	if err := r.client.Update(ctx, object); err != nil {
		return failure(fmt.Sprintf("ending the enforcement of CRIResize %q of pod %q", pod.UID, podKey(pod)), writeRule, err)
	}
	return nil
}
