package fallback

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// maxNodes bounds how many nodes' Leases are remembered.
const maxNodes = 8192

// agents tells which nodes have a living agent, by the Lease that each one renews.
type agents struct {
	client    client.Reader
	namespace string
	clock     clock.PassiveClock

	mu   sync.Mutex
	seen *lru.Cache // node name to sighting
}

// sighting is a renewal and when this process first saw it: clocks of other machines are not trusted for longer than one look.
type sighting struct {
	renewed time.Time
	at      time.Time
}

// sign is whether an agent shows signs of life, and if not, why.
type sign struct {
	alive bool
	why   string
}

func newAgents(c client.Reader, opts Options) *agents {
	return &agents{client: c, namespace: opts.AgentNamespace, clock: opts.Clock, seen: lru.New(maxNodes)}
}

func (a *agents) alive(ctx context.Context, node string) (sign, error) {
	lease := &coordinationv1.Lease{}
	name := types.NamespacedName{Namespace: a.namespace, Name: v1alpha1.AgentLeaseName(node)}
	err := a.client.Get(ctx, name, lease)
	switch {
	case apierrors.IsNotFound(err):
		return sign{why: fmt.Sprintf("no podresize-agent runs on node %q: there is no Lease %q; deploy manifests/base", node, name)}, nil
	case err != nil:
		return sign{}, failure(fmt.Sprintf("reading Lease %q of the agent on node %q", name, node), leaseRule, err)
	case lease.Spec.RenewTime == nil:
		return sign{why: fmt.Sprintf("the podresize-agent of node %q has ended: nobody holds its Lease %q", node, name)}, nil
	}
	if age := a.age(node, lease.Spec.RenewTime.Time); age >= v1alpha1.AgentLeaseDuration {
		return sign{why: fmt.Sprintf("the podresize-agent of node %q last renewed its Lease %q %s ago", node, name, age.Round(time.Second))}, nil
	}
	return sign{alive: true}, nil
}

// age is how long ago the Lease was seen to change. At first sight its own time must do.
func (a *agents) age(node string, renewed time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if v, ok := a.seen.Get(node); ok {
		if s, ok := v.(sighting); ok {
			if !s.renewed.Equal(renewed) {
				s = sighting{renewed: renewed, at: now}
				a.seen.Add(node, s)
			}
			return now.Sub(s.at)
		}
	}
	age := now.Sub(renewed).Abs()
	a.seen.Add(node, sighting{renewed: renewed, at: now.Add(-age)})
	return age
}
