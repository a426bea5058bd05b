package fallback_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// handOver asks once, and checks the answer.
func (b *bed) handOver(t *testing.T, pod *corev1.Pod, held *resize.Resources, ended bool) {
	t.Helper()
	got, has, err := b.resizer.HandOver(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(held, got); diff != "" || has != ended {
		t.Errorf("ended: %t, want %t; held: %s", has, ended, diff)
	}
}

// TestHandOver: the agent is told, and has to say that it has let go; what it held is told as long as the object is there.
func TestHandOver(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	b.handOver(t, newPod(), nil, true)
	b.expect(t, newPod(), want("cpu=150m", "memory=300Mi"), resize.StateInProgress, resize.ReasonSent)
	b.answer(t, metav1.ConditionTrue, v1alpha1.ReasonApplied, "")
	held := want("cpu=150m", "memory=300Mi")
	b.handOver(t, newPod(), &held, false)
	b.handOver(t, newPod(), &held, false)
	if enforce := b.object(t).Spec.Enforce; enforce == nil || *enforce || len(b.writes) != 2 {
		t.Fatalf("enforce is %v after %q", enforce, b.writes)
	}
	b.answer(t, metav1.ConditionFalse, v1alpha1.ReasonNotEnforced, "")
	b.handOver(t, newPod(), &held, true)

	inPlace := newPod() // has it in its spec now, and something else that was asked for there
	inPlace.Spec.Containers[0].Resources.Requests = list("cpu=170m memory=128Mi")
	rest := want("", "memory=300Mi")
	rest.Containers["app"] = resize.Requirements{Requests: corev1.ResourceList{}, Limits: list("memory=300Mi")}
	b.handOver(t, inPlace, &rest, true)

	if err := b.resizer.HandedOver(t.Context(), inPlace); err != nil {
		t.Fatal(err)
	}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "uid-1"}, &v1alpha1.CRIResize{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object is still there: %v", err)
	}
	if err := b.resizer.HandedOver(t.Context(), inPlace); err != nil {
		t.Errorf("a second time: %v", err)
	}
	b.handOver(t, inPlace, nil, true)
}

// TestHandOverWithoutAgent: one that is gone holds nothing.
func TestHandOverWithoutAgent(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	b.expect(t, newPod(), want("cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
	held := want("cpu=150m", "")
	held.Containers["app"] = resize.Requirements{Requests: list("cpu=150m"), Limits: corev1.ResourceList{}}
	b.handOver(t, newPod(), &held, false)
	b.handOver(t, newPod(), &held, false)
	b.later(v1alpha1.AgentLeaseDuration + time.Second)
	b.handOver(t, newPod(), &held, true)
}
