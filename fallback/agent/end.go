package agent

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// stop ends the enforcement. What the containers have they keep; see giveRoom. That is done once: what happens to the pod's cgroup
// afterwards, as when its kubelet begins to resize in place, is nobody's business here.
func (a *Agent) stop(ctx context.Context, object *v1alpha1.CRIResize, o *observed, before figures.Pod, k *known) verdict {
	k.contention = contention{}
	if !stopped(object) {
		if err := a.giveRoom(ctx, o, before); err != nil {
			return unheld(err)
		}
	}
	return verdict{reason: v1alpha1.ReasonNotEnforced, message: "enforcement is off: the containers keep what they have", again: lookAgain}
}

func stopped(object *v1alpha1.CRIResize) bool {
	c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionApplied)
	return c != nil && c.Reason == v1alpha1.ReasonNotEnforced && c.ObservedGeneration == object.Generation
}

// giveRoom raises the limits of the pod's cgroup to what the kubelet made them, where they are lower: it will start the next run of
// a container with spec's limits, which cgroup v1 refuses below a smaller parent, and v2 caps.
func (a *Agent) giveRoom(ctx context.Context, o *observed, before figures.Pod) error {
	room := larger(before.Cgroup, figuresOf(o.pod, before.Cgroup))
	room.Shares = 0 // the weight stays
	if err := a.setPod(ctx, o.path, room); err != nil {
		return fmt.Errorf("raising the pod's cgroup: %w", err)
	}
	return nil
}

// letGo is for a CRIResize that is gone. As long as the pod is there the agent remembers what it left in the kernel, so that another
// CRIResize of the pod finds it known.
func (a *Agent) letGo(ctx context.Context, name types.NamespacedName, k *known) (ctrl.Result, error) {
	if k.object == nil {
		return ctrl.Result{}, nil
	}
	a.unfollow(name)
	o, err := a.observe(ctx, k.object)
	if errors.Is(err, cri.ErrNotFound) || errors.Is(err, errNotOptedIn) {
		k.object = nil
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("looking at the pod of CRIResize %q, which was deleted: %w", name, err)
	}
	if !k.deleted {
		if err := a.giveRoom(ctx, o, figures.Before(&k.object.Spec)); err != nil {
			return ctrl.Result{}, err
		}
		k.deleted, k.contention = true, contention{}
	}
	return ctrl.Result{RequeueAfter: lookRarely}, nil
}
