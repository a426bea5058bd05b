package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// newStart is a bed whose pod has the annotation and no CRIResize, and whose containers have just begun to run.
func newStart(t *testing.T, unified bool, annotation string) *bed {
	t.Helper()
	b := newBed(t, unified, newObject())
	if err := b.client.Delete(t.Context(), newObject()); err != nil {
		t.Fatal(err)
	}
	b.pod.UID, b.pod.Annotations = name.Name, map[string]string{v1alpha1.AnnotationStartLimits: annotation}
	for i := range b.pod.Containers {
		b.pod.Containers[i].StartedAt = b.clock.Now()
		b.pod.Containers[i].CPUShares = figures.Before(&newObject().Spec).Containers[b.pod.Containers[i].Name].Shares
	}
	return b
}

// finds has the finder decide about the pod, and gives the pods that it wants to have looked at.
func (b *bed) finds(t *testing.T) []types.NamespacedName {
	t.Helper()
	moved := make(moves, 10)
	b.agent.findPods(t.Context(), "/kubepods/burstable", moved)
	b.agent.findAt(t.Context(), podPath, moved)
	close(moved)
	var names []types.NamespacedName
	for e := range moved {
		names = append(names, e.Object)
	}
	return names
}

// starts has the finder decide and the agent look at the pod.
func (b *bed) starts(t *testing.T) {
	t.Helper()
	for range b.finds(t) {
		b.mustLook(t)
	}
}

// before with other figures for app.
func beforeBut(change func(*figures.Cgroup)) figures.Pod {
	p := figures.Before(&newObject().Spec)
	app := p.Containers["app"]
	change(&app)
	p.Containers["app"] = app
	return p
}

const halved = `{"app": {"cpu": "100m", "memory": "128Mi"}}`

func isHalved(c *figures.Cgroup) { c.Quota, c.Memory = 10000, 128<<20 }

// TestStartsSmall: limits of the annotation that are lower hold as soon as the container runs; the pod's cgroup and all weights stay.
func TestStartsSmall(t *testing.T) {
	for _, tc := range []struct {
		name       string
		annotation string
		prepare    func(*testing.T, *bed)
		want       func(*figures.Cgroup) // nil: nothing is written
	}{
		{"both limits", halved, nil, isHalved},
		{"cpu alone", `{"app": {"cpu": "100m"}}`, nil, func(c *figures.Cgroup) { c.Quota = 10000 }},
		{"memory alone", `{"app": {"memory": "128Mi"}}`, nil, func(c *figures.Cgroup) { c.Memory = 128 << 20 }},
		{"the smallest quota", `{"app": {"cpu": "1m"}}`, nil, func(c *figures.Cgroup) { c.Quota = 1000 }},
		{"what is not lower", `{"app": {"cpu": "200m", "memory": "1Gi"}}`, nil, nil},
		{"one is lower", `{"app": {"cpu": "100m", "memory": "1Gi"}}`, nil, func(c *figures.Cgroup) { c.Quota = 10000 }},
		{"memory in use", halved, usingMuch, func(c *figures.Cgroup) { c.Quota = 10000 }},
		{"an unknown container", `{"web": {"cpu": "100m"}}`, nil, nil},
		{"beside a sidecar, which does so itself", halved, func(_ *testing.T, b *bed) {
			b.pod.Containers = append(b.pod.Containers, cri.Container{ID: "c-side", Name: v1alpha1.SidecarContainer, CgroupsPath: podPath + "/c-side", StartedAt: b.clock.Now()})
		}, nil},
		{"no JSON", "100m", nil, nil},
		{"no quantity", `{"app": {"cpu": "lots"}}`, nil, nil},
		{"nothing", `{"app": {"cpu": "0"}}`, nil, nil},
		{"less than nothing", `{"app": {"memory": "-1Gi"}}`, nil, nil},
		{"more than any machine has", `{"app": {"cpu": "9E"}}`, nil, nil},
		{"another resource", `{"app": {"pids": "100"}}`, nil, nil},
		{"empty", "", nil, nil},
		{"started long ago", halved, func(_ *testing.T, b *bed) { b.passes(startFor + time.Second) }, nil},
		{"a kubelet with the gate, 1.27 to 1.30", halved, func(_ *testing.T, b *bed) { b.pod.Containers[0].InPlace = true }, nil},
		{"pinned", halved, func(_ *testing.T, b *bed) { b.pod.Containers[0].CPUs = "1-2" }, nil},
		{"a kubelet that resizes in place", halved, withKubelet("v1.33.1-eks-595af52"), nil},
		{"one that does not", halved, withKubelet("v1.32.3+k3s1"), isHalved},
		{"another pod than the sidecar's", halved, func(_ *testing.T, b *bed) { b.agent.opts.Sidecar, b.agent.opts.PodUID = true, "uid-2" }, nil},
		{"the sidecar's pod", halved, func(_ *testing.T, b *bed) { b.agent.opts.Sidecar, b.agent.opts.PodUID = true, "uid-1" }, isHalved},
		{"another namespace", halved, func(_ *testing.T, b *bed) { b.agent.opts.Namespaces = []string{"other"} }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for version, unified := range versions() {
				t.Run(version, func(t *testing.T) {
					b := newStart(t, unified, tc.annotation)
					if tc.prepare != nil {
						tc.prepare(t, b)
					}
					b.starts(t)
					if tc.want == nil {
						b.holds(t, figures.Before(&newObject().Spec))
						if len(b.updates) > 0 {
							t.Errorf("written: %v", b.updates)
						}
						return
					}
					b.holds(t, beforeBut(tc.want))
					if !slices.Equal(b.updates, []string{"app"}) {
						t.Errorf("updates of %v", b.updates)
					}
				})
			}
		})
	}
}

func usingMuch(t *testing.T, b *bed) {
	t.Helper()
	b.uses(t, podPath+"/c-app", 125<<20)
}

// withKubelet gives the node a kubelet of that version.
func withKubelet(version string) func(*testing.T, *bed) {
	return func(t *testing.T, b *bed) {
		t.Helper()
		n := &corev1.Node{}
		if err := b.client.Get(t.Context(), types.NamespacedName{Name: "n1"}, n); err != nil {
			t.Fatal(err)
		}
		n.Status.NodeInfo.KubeletVersion = version
		if err := b.client.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStartsSmallOnce: each run of a container is made small once. What then raises it is not undone; the next run is made small again.
func TestStartsSmallOnce(t *testing.T) {
	b := newStart(t, false, halved)
	b.starts(t)
	b.set(t, podPath+"/c-app", figures.Before(&newObject().Spec).Containers["app"])
	b.mustLook(t)
	b.holds(t, figures.Before(&newObject().Spec))

	b.restarts(t, "c-app2")
	b.pod.Containers[1].StartedAt = b.clock.Now()
	b.mustLook(t)
	held, err := b.tree.Read(podPath + "/c-app2")
	if err != nil || held.Quota != 10000 || held.Memory != 128<<20 {
		t.Errorf("the next run has %+v, %v", held, err)
	}
}

// TestCRIResizeBeatsStart, whether or not the agent was restarted in between, and for runs of a container that begin later too.
func TestCRIResizeBeatsStart(t *testing.T) {
	for version, unified := range versions() {
		for _, restarted := range []bool{false, true} {
			t.Run(version, func(t *testing.T) {
				b := newStart(t, unified, halved)
				b.starts(t)
				if restarted {
					b.agent = b.newAgent(t)
				}
				object := asking("cpu=300m memory=512Mi", "cpu=100m memory=128Mi")
				object.ResourceVersion = ""
				if err := b.client.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
				b.finds(t)
				b.mustLook(t)
				b.says(t, v1alpha1.ReasonApplied)
				b.holds(t, figures.Wanted(&object.Spec))
			})
		}
	}
}

// TestDeletedCRIResizeShrinksNothing: who deletes a CRIResize is promised that containers keep what they have.
func TestDeletedCRIResizeShrinksNothing(t *testing.T) {
	b := newStart(t, false, halved)
	object := asking("cpu=300m memory=512Mi", "cpu=100m memory=128Mi")
	if err := b.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	b.finds(t)
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
	if err := b.client.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	b.mustLook(t)
	b.mustLook(t)
	want := figures.Wanted(&object.Spec).Containers["app"]
	if held := b.kernel(t)["app"]; held.Quota != want.Quota || held.Memory != want.Memory {
		t.Errorf("the container has %+v", held)
	}
}

// TestStartsSmallWhenTheNodeIsKnown: until then nothing is written.
func TestStartsSmallWhenTheNodeIsKnown(t *testing.T) {
	b, failure := newStart(t, false, halved), errors.New("no answer")
	b.reads(t, &failure)
	for range b.finds(t) {
		if _, err := b.look(t); err == nil {
			t.Error("it is not tried again")
		}
	}
	b.holds(t, figures.Before(&newObject().Spec))
	failure = nil
	b.mustLook(t)
	b.holds(t, beforeBut(isHalved))
}

// TestFinder runs the whole finder on a tree of files: a pod of which the sandbox, and then a container, comes later.
func TestFinder(t *testing.T) {
	b := newStart(t, false, halved)
	for _, top := range []string{"cpu/kubepods/besteffort", "memory/kubepods/besteffort"} {
		if err := os.MkdirAll(filepath.Join(b.root, top), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	moved := make(moves)
	go func() { _ = b.agent.watcher.Run(ctx, b.agent.tells(ctx, moved)) }()
	go func() { _ = b.agent.find(ctx, moved) }()
	select {
	case e := <-moved:
		if e.Object != name {
			t.Errorf("found %v", e.Object)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the pod is not found")
	}
	for len(moved) > 0 {
		<-moved
	}
	b.mustLook(t)
	b.holds(t, beforeBut(isHalved))

	go b.restarts(t, "c-app2") // a directory in the pod's cgroup
	var again event.TypedGenericEvent[types.NamespacedName]
	select {
	case again = <-moved:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody tells of the new container")
	}
	if again.Object != name {
		t.Errorf("told of %v", again.Object)
	}
}

// TestStartWaits: while a cgroup in the pod's has no running container the agent looks again at once, and after a while less often.
func TestStartWaits(t *testing.T) {
	b := newStart(t, true, halved)
	app := b.pod.Containers[0]
	b.pod.Containers = b.pod.Containers[1:]
	b.finds(t)
	expect := func(after time.Duration) {
		t.Helper()
		result, err := b.look(t)
		if err != nil || result.RequeueAfter != after {
			t.Errorf("looks again after %s, %v; want %s", result.RequeueAfter, err, after)
		}
	}
	expect(soonest)
	b.passes(4 * lookSoon)
	expect(lookSoon)
	b.pod.Containers = append(b.pod.Containers, app)
	expect(lookRarely)
	b.holds(t, beforeBut(isHalved))

	b.podErr = cri.ErrNotFound // its sandbox is replaced
	expect(lookSoon)
	if err := os.RemoveAll(filepath.Join(b.root, podPath)); err != nil {
		t.Fatal(err)
	}
	expect(0)
	if len(b.agent.pods.allStarting()) > 0 {
		t.Error("the pod is not forgotten")
	}
}

// TestOthersDoNotStartSmall: the runtime is asked once about a pod without the annotation.
func TestOthersDoNotStartSmall(t *testing.T) {
	b := newStart(t, false, halved)
	b.pod.Annotations = nil
	for range 3 {
		if found := b.finds(t); len(found) > 0 {
			t.Errorf("found %v", found)
		}
	}
	b.pod.Annotations = map[string]string{v1alpha1.AnnotationStartLimits: halved}
	if found := b.finds(t); len(found) > 0 {
		t.Errorf("found %v by an annotation that came later", found)
	}
}
