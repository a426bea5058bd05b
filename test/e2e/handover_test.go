//go:build e2e

package e2e_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

// TestHandOver: a node gains the in-place resize under a pod that was resized by the agent. From then on the kubelet holds what the agent
// held, and what is asked for next; the CRIResize is gone, and no container was restarted.
func TestHandOver(t *testing.T) {
	e := startMixed(t, "mixed:hand-over")
	if e == nil {
		return
	}
	e.deploy(t)
	up := e.run(t, pod("up", container("app", amounts{"100m/200m", "64Mi/128Mi"}), container("log", amounts{"50m/100m", "32Mi/64Mi"})))
	down := e.run(t, pod("down", container("app", amounts{"200m/400m", "64Mi/128Mi"})))
	untouched := e.run(t, pod("untouched", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	r := e.newResizer(t)
	e.resizeTo(t, r, up, want{"app": {"150m/300m", "64Mi/192Mi"}}.resources())
	e.resizeTo(t, r, down, want{"app": {"100m/150m", ""}}.resources())

	kubelet, err := e.Component("kubelet", "n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := kubelet.RestartWith(t.Context(), cluster.Settings{Gates: map[string]bool{setting.Gate: true}}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*corev1.Pod{up, down, untouched} {
		eventually(t, "the kubelet tells that it resizes in place", func() error {
			known, err := e.pods.Get(p.Name)
			if err == nil && known.Status.ContainerStatuses[0].Resources == nil {
				err = errors.New("no resources in the status")
			}
			return err
		})
	}
	e = e.on(setting.Node{Name: e.node, Path: resize.PathInPlace})
	e.resizeTo(t, r, up, want{"log": {"70m/140m", ""}}.resources()) // says nothing of what app has got
	e.resizeTo(t, r, down, resize.Resources{})                      // keeps what it has
	e.resizeTo(t, r, untouched, want{"app": {"150m/300m", ""}}.resources())

	equal(t, "the kernel of up", e.read(t, up), kernel{"": {225, 44000, 256 * mi}, "app": {153, 30000, 192 * mi}, "log": {71, 14000, 64 * mi}})
	// The kubelet found nothing to do: so the pod's cgroup has the room that the agent left.
	equal(t, "the kernel of down", e.read(t, down), kernel{"": {102, 40000, 128 * mi}, "app": {102, 15000, 128 * mi}})
	for _, p := range []*corev1.Pod{up, down, untouched} {
		if object := e.criResize(t, p); object != nil {
			t.Errorf("pod %q still has its CRIResize", p.Name)
		}
		for _, s := range e.latest(t, p).Status.ContainerStatuses {
			if s.RestartCount != 0 {
				t.Errorf("pod %q: container %q was restarted %d times", p.Name, s.Name, s.RestartCount)
			}
		}
	}
	spec := e.latest(t, up).Spec.Containers[0].Resources
	equal(t, "app's CPU limit in spec", spec.Limits.Cpu().String(), "300m")
	equal(t, "app's memory limit in spec", spec.Limits.Memory().String(), "192Mi")
}
