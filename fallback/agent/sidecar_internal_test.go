package agent

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// sidecarOptions are those of a sidecar in the namespace "shop".
func sidecarOptions(uid string) Options {
	return Options{Sidecar: true, PodUID: uid, PodNamespace: name.Namespace, RuntimeEndpoint: "/run/x.sock", CgroupRoot: "/sys/fs/cgroup"}
}

// TestOneHolder: of the agent of the node and the sidecars around, one acts on an object.
func TestOneHolder(t *testing.T) {
	agents := map[string]Options{
		"node": {NodeName: "n1"}, "another node": {NodeName: "n2"},
		"sidecar": sidecarOptions("uid-1"), "sidecar of another pod": sidecarOptions("uid-2"),
	}
	for named, holder := range map[string]string{"": "node", v1alpha1.SidecarContainer: "sidecar", "another": ""} {
		for who, opts := range agents {
			object := asking("cpu=400m memory=512Mi", "cpu=100m memory=128Mi")
			object.Spec.Sidecar = named
			b := newBed(t, false, object)
			b.agent.opts = opts
			if _, err := b.agent.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil {
				t.Fatal(err)
			}
			if acted := len(b.updates)+len(b.reports) > 0; acted != (who == holder) {
				t.Errorf("spec.sidecar is %q: the agent of the %s acted: %t", named, who, acted)
			}
		}
	}
}

// TestPulse: a sidecar renews its heartbeat every 30 s, also when it has nothing else to say or its runtime is away; a node's agent
// writes none.
func TestPulse(t *testing.T) {
	object := asking("cpu=400m memory=512Mi", "cpu=100m memory=128Mi")
	object.Spec.Sidecar = v1alpha1.SidecarContainer
	b := newBed(t, false, object)
	b.agent.opts = sidecarOptions("uid-1")
	look := func() int {
		t.Helper()
		_, _ = b.agent.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}) // fails without a runtime, as it should
		return len(b.reports)
	}
	look()
	first := b.reports[len(b.reports)-1]
	if first.Heartbeat == nil || !first.Heartbeat.Time.Equal(b.clock.Now()) || len(first.Applied) == 0 {
		t.Fatalf("the first status is %+v", first)
	}
	n := len(b.reports)
	b.clock.SetTime(b.clock.Now().Add(renewEvery - time.Second))
	if look() != n {
		t.Error("it was renewed before its time")
	}
	b.clock.SetTime(b.clock.Now().Add(time.Second))
	if look() != n+1 || !b.reports[n].Heartbeat.After(first.Heartbeat.Time) {
		t.Errorf("it was not renewed: %d statuses, %+v", len(b.reports), b.reports[len(b.reports)-1])
	}
	b.podErr = cri.ErrUnavailable
	look()
	n = len(b.reports)
	b.clock.SetTime(b.clock.Now().Add(renewEvery))
	if look() != n+1 {
		t.Error("it was not renewed without a runtime")
	}

	other := newBed(t, false, newObject())
	if _, err := other.agent.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil {
		t.Fatal(err)
	}
	if last := other.reports[len(other.reports)-1]; last.Heartbeat != nil {
		t.Errorf("a node's agent wrote %+v", last)
	}
}

// TestSidecarWatches: it asks for the one object alone, so that a Role in its namespace is enough, and keeps no Lease.
func TestSidecarWatches(t *testing.T) {
	opts := sidecarOptions("uid-1")
	if err := opts.Validate(); err != nil {
		t.Error(err)
	}
	watched := opts.watches()
	if _, only := watched.DefaultNamespaces["shop"]; !only || len(watched.DefaultNamespaces) != 1 || watched.DefaultFieldSelector.String() != "metadata.name=uid-1" || watched.DefaultLabelSelector != nil {
		t.Errorf("it watches %+v", watched)
	}
	// No API server answers there: a sidecar waits for one, and for the API type.
	manager, err := newManager(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, false, newObject())
	b.agent.opts = opts
	b.agent.lock.held.Store(false)
	if err := b.agent.register(manager); err != nil {
		t.Fatal(err)
	}
	if !b.agent.lock.held.Load() {
		t.Error("it waits for a Lease")
	}
	if state := b.agent.state(t.Context()); state == ready {
		t.Error("it is ready before it knows whether there is a CRIResize")
	}
	if err := b.agent.hear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state := b.agent.state(t.Context()); state != ready {
		t.Errorf("it is %q", state)
	}
}
