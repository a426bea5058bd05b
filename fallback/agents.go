package fallback

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// maxAgents bounds how many agents' last signs of life are remembered.
const maxAgents = 8192

// agents tells which agents live: that of a node by the Lease that it renews, a sidecar by its container and heartbeat.
type agents struct {
	client    client.Reader
	namespace string
	clock     clock.PassiveClock

	mu   sync.Mutex
	seen *lru.Cache // name of a node, or namespace/name/UID of a sidecar's object, to sighting
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
	return &agents{client: c, namespace: opts.AgentNamespace, clock: opts.Clock, seen: lru.New(maxAgents)}
}

// alive judges the agent of a pod, of which object is the CRIResize; nil: there is none yet.
func (a *agents) alive(ctx context.Context, pod *corev1.Pod, object *v1alpha1.CRIResize) (sign, error) {
	if name := sidecarOf(pod, object); name != "" {
		return a.sidecar(pod, object, name), nil
	}
	return a.node(ctx, pod.Spec.NodeName)
}

func (a *agents) node(ctx context.Context, node string) (sign, error) {
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

// age is how long ago a sign of life was seen to change. At first sight its own time must do.
func (a *agents) age(agent string, renewed time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if v, ok := a.seen.Get(agent); ok {
		if s, ok := v.(sighting); ok {
			if !s.renewed.Equal(renewed) {
				s = sighting{renewed: renewed, at: now}
				a.seen.Add(agent, s)
			}
			return now.Sub(s.at)
		}
	}
	age := now.Sub(renewed).Abs()
	a.seen.Add(agent, sighting{renewed: renewed, at: now.Add(-age)})
	return age
}
