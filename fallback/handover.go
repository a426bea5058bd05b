package fallback

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

var _ resize.HandsOver = (*Resizer)(nil)

// HandOver implements resize.HandsOver: the CRIResize is no longer enforced, and its agent has said so or is not alive.
func (r *Resizer) HandOver(ctx context.Context, pod *corev1.Pod) (held *resize.Resources, ended bool, err error) {
	if r.unserved.now(r.opts.Clock) {
		return nil, true, nil
	}
	object, err := r.get(ctx, pod)
	if meta.IsNoMatchError(err) {
		r.unserved.note(r.opts.Clock)
		return nil, true, nil
	}
	if err != nil || object == nil {
		return nil, true, err
	}
	beyond := beyondSpec(pod, object)
	if enforced(object) {
		if err := r.stop(ctx, pod, object); err != nil {
			return nil, false, err
		}
		return &beyond, false, nil
	}
	applied := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionApplied)
	if applied != nil && applied.Reason == v1alpha1.ReasonNotEnforced && applied.ObservedGeneration == object.Generation {
		return &beyond, true, nil
	}
	agent, err := r.agents.alive(ctx, pod, object)
	return &beyond, err == nil && !agent.alive, err
}

// beyondSpec is what the object gave the pod and its spec does not say. A value that spec has changed since is spec's: it was set in
// place.
func beyondSpec(pod *corev1.Pod, object *v1alpha1.CRIResize) resize.Resources {
	out := resize.Resources{Containers: map[string]resize.Requirements{}}
	for _, c := range pod.Spec.Containers {
		for _, o := range object.Spec.Containers {
			if o.Name != c.Name {
				continue
			}
			beyond := resize.Requirements{
				Requests: beyondList(c.Resources.Requests, o.Before.Requests, o.Wanted.Requests),
				Limits:   beyondList(c.Resources.Limits, o.Before.Limits, o.Wanted.Limits),
			}
			if len(beyond.Requests)+len(beyond.Limits) > 0 {
				out.Containers[c.Name] = beyond
			}
		}
	}
	return out
}

func beyondList(spec, before, wanted corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, w := range wanted {
		now, was := spec[name], before[name]
		if now.Cmp(was) == 0 && w.Cmp(now) != 0 {
			out[name] = w
		}
	}
	return out
}

// HandedOver implements resize.HandsOver: the CRIResize is deleted.
func (r *Resizer) HandedOver(ctx context.Context, pod *corev1.Pod) error {
	object := &v1alpha1.CRIResize{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: string(pod.UID)}}
	if err := r.client.Delete(ctx, object); err != nil && !apierrors.IsNotFound(err) {
		return failure(fmt.Sprintf("deleting CRIResize %q of pod %q", pod.UID, podKey(pod)), deleteRule, err)
	}
	return nil
}
