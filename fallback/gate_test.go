package fallback_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// try is a dry run.
func (b *bed) try(t *testing.T, cpu string, state resize.State, reason resize.Reason) {
	t.Helper()
	res, err := b.resizer.DryRun(t.Context(), newPod(), want("cpu="+cpu, ""))
	if err != nil || res.State != state || res.Reason != reason || res.Path != resize.PathCRI {
		t.Errorf("%s: got %s/%s: %s, %v; want %s/%s", cpu, res.State, res.Reason, res.Message, err, state, reason)
	}
}

// TestDryRun: all is checked and the API server asked, and the object stays as it is.
func TestDryRun(t *testing.T) {
	var dry []bool
	b := newBed(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			dry = append(dry, len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) == 1)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			dry = append(dry, len((&client.UpdateOptions{}).ApplyOptions(opts).DryRun) == 1)
			return c.Update(ctx, o, opts...)
		},
	})
	b.try(t, "150m", resize.StateInProgress, resize.ReasonSent)
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "uid-1"}, &v1alpha1.CRIResize{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object is there: %v", err)
	}
	b.expect(t, newPod(), want("cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
	b.try(t, "160m", resize.StateInProgress, resize.ReasonSent)
	if cpu := b.object(t).Spec.Containers[0].Wanted.Requests[corev1.ResourceCPU]; cpu.String() != "150m" {
		t.Errorf("the object wants %s", cpu.String())
	}
	b.try(t, "300m", resize.StateInfeasible, resize.ReasonLimitBelowRequest)
	b.later(10 * time.Minute)
	b.try(t, "170m", resize.StateDeferred, resize.ReasonAgentNotReady)
	if len(dry) != 3 || !dry[0] || dry[1] || !dry[2] {
		t.Errorf("dry runs: %v", dry)
	}
}

// TestStopEnforcing writes once, and only where there is something to stop. A change takes hold again.
func TestStopEnforcing(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	stop := func(writes int) {
		t.Helper()
		if err := b.resizer.StopEnforcing(t.Context(), newPod()); err != nil || len(b.writes) != writes {
			t.Fatalf("%v after %q", err, b.writes)
		}
	}
	stop(0)
	b.expect(t, newPod(), want("cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
	stop(2)
	stop(2)
	b.answer(t, metav1.ConditionFalse, v1alpha1.ReasonNotEnforced, "")
	b.expect(t, newPod(), resize.Resources{}, resize.StateRefused, resize.ReasonNotEnforced)
	spec := b.object(t).Spec
	if cpu := spec.Containers[0].Wanted.Requests[corev1.ResourceCPU]; *spec.Enforce || cpu.String() != "150m" {
		t.Errorf("got %+v", spec)
	}
	b.expect(t, newPod(), want("cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
	if !*b.object(t).Spec.Enforce {
		t.Error("not enforced again")
	}
}

// TestGateWithoutAPIType: where there are no CRIResizes there is nothing to stop, and that is remembered.
func TestGateWithoutAPIType(t *testing.T) {
	asked := 0
	b := newBed(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ours := o.(*v1alpha1.CRIResize); ours {
			asked++
			return &meta.NoKindMatchError{}
		}
		return c.Get(ctx, key, o, opts...)
	}})
	for range 2 {
		if err := b.resizer.StopEnforcing(t.Context(), newPod()); err != nil || asked != 1 {
			t.Errorf("%v after %d questions", err, asked)
		}
	}
	res, err := b.resizer.DryRun(t.Context(), newPod(), want("cpu=150m", ""))
	if err != nil || res.Reason != resize.ReasonNoPath {
		t.Errorf("got %+v, %v", res, err)
	}
}
