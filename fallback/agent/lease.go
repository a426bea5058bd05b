package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// renewEvery leaves three missed renewals before the agent counts as gone.
const renewEvery = v1alpha1.AgentLeaseDuration / 4

// keepLease renews the Lease that tells callers of this agent. A renewal that fails is tried again at the next turn: holding
// what is asked for matters more than saying so.
func (a *Agent) keepLease(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := a.renew(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Lease not renewed")
		}
	}, renewEvery)
	return nil
}

func (a *Agent) renew(ctx context.Context) error {
	name := types.NamespacedName{Namespace: a.opts.Namespace, Name: v1alpha1.AgentLeaseName(a.opts.NodeName)}
	lease := &coordinationv1.Lease{}
	err := a.client.Get(ctx, name, lease)
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Spec: a.leaseSpec()}
		if err := a.client.Create(ctx, lease); err != nil {
			return fmt.Errorf("creating Lease %q: %w", name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Lease %q: %w", name, err)
	}
	lease.Spec = a.leaseSpec()
	if err := a.client.Update(ctx, lease); err != nil {
		return fmt.Errorf("renewing Lease %q: %w", name, err)
	}
	return nil
}

func (a *Agent) leaseSpec() coordinationv1.LeaseSpec {
	return coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(a.opts.NodeName),
		LeaseDurationSeconds: ptr.To(int32(v1alpha1.AgentLeaseDuration / time.Second)),
		RenewTime:            ptr.To(metav1.NowMicro()),
	}
}
