package fallback

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/podresize/podresize/resize"
)

// Plan implements resize.Planner.
func (r *Resizer) Plan(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Forecast, error) {
	object, err := r.get(ctx, pod)
	if meta.IsNoMatchError(err) {
		res := notServed(pod)
		return resize.Forecast{Findings: []resize.Finding{{State: res.State, Reason: res.Reason, Message: res.Message}}}, nil
	}
	if err != nil {
		return resize.Forecast{}, err
	}
	held := effective(pod, object)
	f := resize.Forecast{Path: resize.PathCRI, Changes: resize.Changes(held, want)}
	f.Previous = resize.Replaced(held, f.Changes)
	if f.Findings, f.Warnings, err = r.plan(ctx, held, want); err != nil {
		return resize.Forecast{}, err
	}
	answered, err := r.agents.alive(ctx, pod, object)
	if err != nil {
		return resize.Forecast{}, err
	}
	if !answered.alive {
		f.Findings = append(f.Findings, resize.Finding{State: resize.StateDeferred, Reason: resize.ReasonAgentNotReady, Message: answered.why})
	}
	return f, r.review(ctx, pod, &f)
}

// review asks whether the caller may write the CRIResize.
func (r *Resizer) review(ctx context.Context, pod *corev1.Pod, f *resize.Forecast) error {
	for _, verb := range []string{"create", "update"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: pod.Namespace, Verb: verb, Group: "podresize.dev", Resource: "criresizes",
			},
		}}
		if err := r.client.Create(ctx, review); err != nil {
			return failure(fmt.Sprintf("asking whether pod %q may be resized", podKey(pod)), writeRule, err)
		}
		if !review.Status.Allowed {
			f.Findings = append(f.Findings, resize.Finding{
				State: resize.StateRefused, Reason: resize.ReasonForbidden,
				Message: "you may not resize this pod: add this rule to a role of yours: " + writeRule,
			})
			return nil
		}
	}
	return nil
}
