package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// candidate is an agent that has not asked for the Lease yet. It shares node and clock with the others of the bed.
func (b *bed) candidate(t *testing.T, identity string) *Agent {
	t.Helper()
	a := b.newAgent(t)
	a.opts.Identity = identity
	a.lock.held.Store(false)
	return a
}

// takes has the agent ask once and checks whether it holds the Lease then.
func takes(t *testing.T, a *Agent, want bool) time.Duration {
	t.Helper()
	moved := make(moves, 10)
	next := a.turn(t.Context(), moved)
	if a.lock.held.Load() != want {
		t.Errorf("%s holds the Lease: %t, want %t", a.opts.Identity, !want, want)
	}
	return next
}

func (b *bed) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentLeaseName("n1")}, lease); err != nil {
		t.Fatal(err)
	}
	return lease
}

// TestLock: of two agents one holds the Lease; the other takes it when the first lets it go, or has not renewed it for two minutes.
func TestLock(t *testing.T) {
	b := enlarging(t, false)
	first, second := b.candidate(t, "first"), b.candidate(t, "second")
	if next := takes(t, first, true); next != renewEvery {
		t.Errorf("renews after %s", next)
	}
	if next := takes(t, second, false); next != askEvery {
		t.Errorf("asks again after %s", next)
	}
	for range 6 {
		b.passes(renewEvery)
		takes(t, first, true)
		takes(t, second, false)
	}
	if l := b.lease(t).Spec; *l.HolderIdentity != "first" || *l.LeaseDurationSeconds != 120 || *l.LeaseTransitions != 1 || l.RenewTime.Sub(l.AcquireTime.Time) != 6*renewEvery {
		t.Errorf("the Lease has %+v", l)
	}
	b.passes(v1alpha1.AgentLeaseDuration - time.Second)
	takes(t, second, false)
	b.passes(time.Second)
	takes(t, second, true)
	takes(t, first, false)
	second.resign(t.Context())
	if l := b.lease(t).Spec; ptr.Deref(l.HolderIdentity, "") != "" || l.RenewTime != nil {
		t.Errorf("after it was let go the Lease has %+v", l)
	}
	takes(t, first, true)
	takes(t, b.candidate(t, "first"), true) // the next container of the same pod
}

// TestOneWriter: an agent without the Lease writes nothing, and looks at all as soon as it has it.
func TestOneWriter(t *testing.T) {
	b := enlarging(t, false)
	b.agent = b.candidate(t, "second")
	b.leaves(t)
	if len(b.reports) > 0 {
		t.Errorf("%d reports", len(b.reports))
	}
	moved := make(moves, 10)
	b.agent.turn(t.Context(), moved)
	if got := (<-moved).Object; got != name {
		t.Errorf("is to look at %v", got)
	}
	if _, err := b.agent.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil {
		t.Fatal(err)
	}
	b.says(t, v1alpha1.ReasonApplied)
}

// TestLockWithoutAPIServer: who holds the Lease holds it on while nobody answers.
func TestLockWithoutAPIServer(t *testing.T) {
	b := enlarging(t, false)
	a := b.candidate(t, "first")
	takes(t, a, true)
	watching, ok := b.client.(client.WithWatch)
	if !ok {
		t.Fatal("the client does not watch")
	}
	a.client = interceptor.NewClient(watching, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("away")
		},
	})
	b.passes(time.Hour)
	takes(t, a, true)
	if state := a.state(t.Context()); !strings.Contains(state, "API server does not answer") {
		t.Errorf("its state is %q", state)
	}
}

func TestHeartbeat(t *testing.T) {
	b := enlarging(t, false)
	file := filepath.Join(t.TempDir(), "heartbeat")
	if err := Probe(file, false); err == nil {
		t.Error("an agent without a heartbeat lives")
	}
	write := func() {
		if err := writeFile(file, b.agent.state(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if err := Probe(file, true); Probe(file, false) != nil || err == nil || !strings.Contains(err.Error(), "has not answered yet") {
		t.Errorf("before the API server answers: %v, %v", Probe(file, false), err)
	}
	takes(t, b.agent, true)
	write()
	if err := errors.Join(Probe(file, false), Probe(file, true)); err != nil {
		t.Error(err)
	}
	b.podErr = errors.New("no runtime")
	write()
	if err := Probe(file, true); Probe(file, false) != nil || err == nil || !strings.Contains(err.Error(), "no runtime") {
		t.Errorf("without a runtime: %v, %v", Probe(file, false), err)
	}
	long := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(file, long, long); err != nil {
		t.Fatal(err)
	}
	if err := Probe(file, false); err == nil || !strings.Contains(err.Error(), "2m0s ago") {
		t.Errorf("after two minutes: %v", err)
	}
}
