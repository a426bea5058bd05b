package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	// renewEvery leaves three missed renewals before the agent counts as gone.
	renewEvery = v1alpha1.AgentLeaseDuration / 4
	// askEvery is for an agent that waits for another one to go, or for the API server.
	askEvery = 2 * time.Second
	// resignWithin bounds the last request of an agent that ends.
	resignWithin = 2 * time.Second
)

// lock is the node's Lease: who holds it is the one agent that writes on the node, and its renewals are the sign of life by which
// callers know that one does.
type lock struct {
	held atomic.Bool
	// heard is when the API server last answered, in Unix nanoseconds.
	heard atomic.Int64

	// Only keepLock uses these: the Lease of another agent, as last seen to change.
	version string
	since   time.Time
}

// randomIdentity is for an agent that is not told who it is.
func randomIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%08x", host, rand.Uint32()) //nolint:gosec // G404: no secret, only another one than before
}

// keepLock takes the Lease and renews it. Without an answer of the API server an agent goes on as it is: one that held the Lease goes
// on holding what it knows of, since no other can have been told that it may. When it ends it lets the Lease go.
func (a *Agent) keepLock(ctx context.Context, moved moves) error {
	for {
		next := a.turn(ctx, moved)
		select {
		case <-ctx.Done():
			a.resign(ctx)
			return nil
		case <-time.After(next):
		}
	}
}

// turn asks for the Lease once, and says when to do so again.
func (a *Agent) turn(ctx context.Context, moved moves) time.Duration {
	log := logr.FromContextOrDiscard(ctx)
	holder, err := a.acquire(ctx)
	if err != nil {
		if ctx.Err() == nil {
			log.Error(err, "Lease not renewed")
		}
		return askEvery
	}
	a.lock.heard.Store(a.clock.Now().UnixNano())
	holds := holder == a.opts.Identity
	if was := a.lock.held.Swap(holds); was != holds {
		log.Info("The node's Lease has a holder", "holder", holder, "this", a.opts.Identity)
		if holds {
			a.lookAtAll(ctx, moved)
		}
	}
	if !holds {
		return askEvery
	}
	return renewEvery
}

// lookAtAll is for an agent that has just become the one that writes.
func (a *Agent) lookAtAll(ctx context.Context, moved moves) {
	all := &v1alpha1.CRIResizeList{}
	if err := a.client.List(ctx, all); err != nil {
		if ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "CRIResizes not listed")
		}
		return
	}
	for i := range all.Items {
		moved.send(ctx, client.ObjectKeyFromObject(&all.Items[i]))
	}
	for _, name := range a.pods.allStarting() {
		moved.send(ctx, name)
	}
}

// acquire takes or renews the Lease, unless another agent shows that it lives, and gives its holder.
func (a *Agent) acquire(ctx context.Context) (holder string, err error) {
	lease, err := a.lease(ctx)
	if err != nil {
		return "", err
	}
	if holder = ptr.Deref(lease.Spec.HolderIdentity, ""); holder != a.opts.Identity && holder != "" && a.alive(lease) {
		return holder, nil
	}
	if holder != a.opts.Identity {
		lease.Spec.AcquireTime = ptr.To(metav1.NewMicroTime(a.clock.Now()))
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity = &a.opts.Identity
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(v1alpha1.AgentLeaseDuration / time.Second))
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(a.clock.Now()))
	write := a.client.Update
	if lease.ResourceVersion == "" {
		write = func(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
			return a.client.Create(ctx, o)
		}
	}
	if err := write(ctx, lease); err != nil {
		return "", fmt.Errorf("taking Lease %q: %w", lease.Name, err)
	}
	return a.opts.Identity, nil
}

// lease reads the Lease; there may be none yet.
func (a *Agent) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	name := types.NamespacedName{Namespace: a.opts.Namespace, Name: v1alpha1.AgentLeaseName(a.opts.NodeName)}
	lease := &coordinationv1.Lease{}
	err := a.client.Get(ctx, name, lease)
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Lease %q: %w", name, err)
	}
	return lease, nil
}

// alive judges another agent by how long its Lease has not changed, by this machine's clock alone.
func (a *Agent) alive(lease *coordinationv1.Lease) bool {
	if a.lock.version != lease.ResourceVersion {
		a.lock.version, a.lock.since = lease.ResourceVersion, a.clock.Now()
	}
	return a.clock.Since(a.lock.since) < v1alpha1.AgentLeaseDuration
}

// resign lets the next agent begin at once, and tells callers that none is here.
func (a *Agent) resign(ctx context.Context) {
	if !a.lock.held.Swap(false) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignWithin)
	defer cancel()
	lease, err := a.lease(ctx)
	if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == a.opts.Identity {
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = ptr.To(""), nil
		err = a.client.Update(ctx, lease)
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Lease not let go")
	}
}
