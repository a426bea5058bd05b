package fallback_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

func neighbour(requests string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bar", Name: "db", UID: "uid-2"},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{
			{Name: "db", Resources: corev1.ResourceRequirements{Requests: list(requests)}},
		}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// given is the CRIResize by which the neighbour has other requests than its spec says.
func given(requests string) *v1alpha1.CRIResize {
	return &v1alpha1.CRIResize{
		ObjectMeta: metav1.ObjectMeta{Namespace: "bar", Name: "uid-2", Labels: map[string]string{v1alpha1.LabelNode: "n1"}},
		Spec: v1alpha1.CRIResizeSpec{PodUID: "uid-2", NodeName: "n1", Containers: []v1alpha1.Container{
			{Name: "db", Wanted: wanted(requests, "")},
		}},
	}
}

// TestRoom is case-54: the node has 4 CPUs and 8 GiB; the pod of the tests requests 1.01 CPUs, for its init container, and 128 MiB.
func TestRoom(t *testing.T) {
	for _, tc := range []struct {
		name   string
		others []client.Object
		want   resize.Resources
		say    string // "": there is room
	}{
		{name: "nobody else", want: want("cpu=3990m", "cpu=4")},
		{name: "full", others: []client.Object{neighbour("cpu=3", corev1.PodRunning)}, want: want("cpu=1100m", "cpu=2"), say: `would request 1110m cpu, node "n1" has 1 of 4 left`},
		{name: "to the brim", others: []client.Object{neighbour("cpu=2", corev1.PodRunning)}, want: want("cpu=1990m", "cpu=2")},
		{name: "memory", others: []client.Object{neighbour("memory=7Gi", corev1.PodPending)}, want: want("memory=2Gi", "memory=2Gi"), say: "would request 2Gi memory"},
		{name: "the others have ended", others: []client.Object{neighbour("cpu=4", corev1.PodSucceeded)}, want: want("cpu=2", "cpu=2")},
		{name: "resized up by this path", others: []client.Object{neighbour("cpu=1", corev1.PodRunning), given("cpu=3")}, want: want("cpu=2", "cpu=2"), say: "has 1 of 4 left"},
		{name: "resized down by this path", others: []client.Object{neighbour("cpu=3", corev1.PodRunning), given("cpu=1")}, want: want("cpu=2", "cpu=2")},
		{name: "limits only", others: []client.Object{neighbour("cpu=4", corev1.PodRunning)}, want: want("", "cpu=3")},
		{name: "less than now", others: []client.Object{neighbour("cpu=4 memory=8Gi", corev1.PodRunning)}, want: want("cpu=50m memory=64Mi", "")},
		{name: "under the init container's", others: []client.Object{neighbour("cpu=4", corev1.PodRunning)}, want: want("cpu=200m", "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBed(t, interceptor.Funcs{}, tc.others...)
			if tc.say == "" {
				b.expect(t, newPod(), tc.want, resize.StateInProgress, resize.ReasonSent)
				return
			}
			res := b.expect(t, newPod(), tc.want, resize.StateDeferred, resize.ReasonNodeFull)
			if !strings.Contains(res.Message, tc.say) || len(b.writes) > 0 {
				t.Errorf("message %q, writes %q", res.Message, b.writes)
			}
		})
	}
}

// TestRoomUnknown: who may not list pods resizes all the same, and is told.
func TestRoomUnknown(t *testing.T) {
	b := newBed(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
	}})
	res := b.expect(t, newPod(), want("cpu=1100m", "cpu=2"), resize.StateInProgress, resize.ReasonSent)
	if text := strings.Join(res.Warnings, "\n"); !strings.Contains(text, "room is not checked") || !strings.Contains(text, "forbidden") {
		t.Errorf("warnings: %s", text)
	}
}
