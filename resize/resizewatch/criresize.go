package resizewatch

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// PodOf maps a CRIResize to the pod that it is for; it is a handler.MapFunc. Any other object is for none.
func PodOf(_ context.Context, object client.Object) []reconcile.Request {
	r, ok := object.(*v1alpha1.CRIResize)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.PodName}}}
}

// CRIResizeMoved lets an update of a CRIResize through if it asks for something else, or if the agent's answer moved. Figures
// that the agent read again do not pass. Creations and deletions do, and so does any object that is not a *v1alpha1.CRIResize.
func CRIResizeMoved() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isCRIResize := e.ObjectOld.(*v1alpha1.CRIResize)
		after, isCRIResizeToo := e.ObjectNew.(*v1alpha1.CRIResize)
		return !isCRIResize || !isCRIResizeToo || criResizeMoved(before, after)
	}}
}

func criResizeMoved(a, b *v1alpha1.CRIResize) bool {
	return a.UID != b.UID || a.Generation != b.Generation ||
		!slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, sameCondition)
}

func sameCondition(a, b metav1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		a.ObservedGeneration == b.ObservedGeneration && a.LastTransitionTime.Equal(&b.LastTransitionTime)
}
