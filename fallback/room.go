package fallback

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// room says whether the pod's node has room for what it is to request: against the pods that are there now, with the CRIResizes that
// they have. That is the best that can be done from outside: the scheduler may send another pod in the next moment, and does not see
// this change. A change that requests no more needs no room.
func (r *Resizer) room(ctx context.Context, node *corev1.Node, held *corev1.Pod, want resize.Resources) (*resize.Finding, error) {
	now, then := figures.Requests(&newObject(held, resize.Resources{}).Spec), figures.Requests(&newObject(held, want).Spec)
	if !exceeds(then, now) {
		return nil, nil
	}
	pods, err := r.opts.Pods(ctx, node.Name)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %q: %w", node.Name, err)
	}
	objects, err := r.objectsOn(ctx, node.Name)
	if err != nil {
		return nil, fmt.Errorf("listing the CRIResizes of node %q: %w", node.Name, err)
	}
	taken := corev1.ResourceList{}
	for i := range pods {
		if p := &pods[i]; p.UID != held.UID && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			sum(taken, figures.Requests(&newObject(effective(p, objects[p.UID]), resize.Resources{}).Spec))
		}
	}
	for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		allocatable, known := node.Status.Allocatable[res]
		free := allocatable.DeepCopy()
		free.Sub(taken[res])
		if need := then[res]; known && need.Cmp(now[res]) > 0 && need.Cmp(free) > 0 {
			return &resize.Finding{
				State: resize.StateDeferred, Reason: resize.ReasonNodeFull, Resource: res, Have: &free, Want: &need,
				Message: fmt.Sprintf("the pod would request %s %s, node %q has %s of %s left for it", need.String(), res, node.Name, free.String(), allocatable.String()),
			}, nil
		}
	}
	return nil, nil
}

func exceeds(a, b corev1.ResourceList) bool {
	return a.Cpu().Cmp(*b.Cpu()) > 0 || a.Memory().Cmp(*b.Memory()) > 0
}

func sum(total, list corev1.ResourceList) {
	for name, q := range list {
		t := total[name]
		t.Add(q)
		total[name] = t
	}
}

// podsOn asks the API server for the pods of a node.
func podsOn(c client.Reader) func(context.Context, string) ([]corev1.Pod, error) {
	return func(ctx context.Context, node string) ([]corev1.Pod, error) {
		list := &corev1.PodList{}
		err := c.List(ctx, list, client.MatchingFields{"spec.nodeName": node})
		return list.Items, err
	}
}

// objectsOn are the CRIResizes of a node's pods, by UID.
func (r *Resizer) objectsOn(ctx context.Context, node string) (map[types.UID]*v1alpha1.CRIResize, error) {
	list := &v1alpha1.CRIResizeList{}
	if err := r.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelNode: v1alpha1.NodeLabelValue(node)}); err != nil {
		return nil, err
	}
	out := make(map[types.UID]*v1alpha1.CRIResize, len(list.Items))
	for i := range list.Items {
		out[types.UID(list.Items[i].Spec.PodUID)] = &list.Items[i]
	}
	return out, nil
}

// unchecked is the warning for a room that could not be looked at.
func unchecked(err error) string {
	return fmt.Sprintf("whether the node has room is not checked: %v", errors.Unwrap(err))
}
