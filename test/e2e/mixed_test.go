//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

// startMixed starts a mixed cluster if it is one of those to run on; nil: it is not.
func startMixed(t *testing.T, name string) *env {
	t.Helper()
	for _, s := range settings(t) {
		if s.Name == name {
			return start(t, s, "")
		}
	}
	return nil
}

// TestMixedNodes: an API server of 1.33 with nodes of 1.31, gate off and on, and of 1.33, one of which is upgraded.
func TestMixedNodes(t *testing.T) {
	if e := startMixed(t, "mixed:nodes"); e != nil {
		t.Run("upgraded", e.on(setting.Node{Name: "on", Path: resize.PathInPlace}).testNodeUpgraded)
	}
}

// testNodeUpgraded: a node gets another kubelet while a resize is on its way.
func (e *env) testNodeUpgraded(t *testing.T) {
	p := e.run(t, pod("upgraded", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	before, r := runsOf(p), e.newResizer(t)
	kubelet, err := e.Component("kubelet", e.node)
	if err != nil {
		t.Fatal(err)
	}
	if err := kubelet.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := want{"app": {"200m/400m", "64Mi/"}}.resources()
	for range 2 {
		res, err := r.Resize(t.Context(), e.latest(t, p), asked)
		if err != nil || res.State != resize.StateInProgress || res.Path != resize.PathInPlace {
			t.Fatalf("%s (%s) by path %q, %v: %s", res.State, res.Reason, res.Path, err, res.Message)
		}
	}
	if err := kubelet.RestartWith(t.Context(), cluster.Settings{Kubernetes: "1.33", Gates: map[string]bool{}}); err != nil {
		t.Fatal(err)
	}
	e.resizeTo(t, r, p, asked)
	equal(t, "the kernel when Done is said", e.read(t, p), kernel{"": {204, 40000, 128 * mi}, "app": {204, 40000, 128 * mi}})
	equal(t, "ids and restarts", runsOf(e.latest(t, p)), before)
	e.resizeTo(t, r, p, want{"app": {cpu: "300m/600m"}}.resources())
	equal(t, "the kernel after another resize", e.read(t, p), kernel{"": {307, 60000, 128 * mi}, "app": {307, 60000, 128 * mi}})
}

// TestMixedGates: an API server of 1.28 takes resources in a patch of the pod, and its kubelet would restart the container for it.
func TestMixedGates(t *testing.T) {
	if e := startMixed(t, "mixed:gates"); e != nil {
		e.deploy(t)
		t.Run("case-21", e.testNoRestart)
	}
}

// testNoRestart is enhancements#2474: the patch that restarts the container when somebody else makes it is never made.
func (e *env) testNoRestart(t *testing.T) {
	app := container("app", amounts{"100m/200m", "64Mi/128Mi"})
	p := e.run(t, pod("case-21", app))
	before, config := runsOf(p), e.as(t, resizerUser, resizers)
	res, err := resize.NewInPlace(newKubernetes(t, config), resize.InPlaceOptions{}).Resize(t.Context(), p, want{"app": {cpu: "200m/400m"}}.resources())
	if err != nil || res.State != resize.StateRefused || res.Reason != resize.ReasonNoPath || !strings.Contains(res.Message, "restart") {
		t.Errorf("in place alone: %s (%s), %v: %s", res.State, res.Reason, err, res.Message)
	}
	equal(t, "requests on the pod", e.onPod(t, p), []string(nil))
	e.resizeTo(t, e.newResizer(t), p, want{"app": {cpu: "200m/400m"}}.resources())
	equal(t, "the kernel", e.read(t, p), kernel{"": {204, 40000, 128 * mi}, "app": {204, 40000, 128 * mi}})

	other := e.run(t, pod("case-21-by-hand", app))
	patch := []byte(`{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"200m"}}}]}}`)
	if _, err := e.Client().CoreV1().Pods(namespace).Patch(t.Context(), other.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kubelet restarts the container that was patched by hand", func() error {
		if runsOf(e.latest(t, other))["app"].Restarts == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	equal(t, "ids and restarts of the one that podresize has resized", runsOf(e.latest(t, p)), before)
	equal(t, "changes of it", e.changesOf(t, p), 0)
}

// TestMixedUpgrade: an API server of 1.31 becomes one of 1.32 under a running library, which changes where pods are resized.
func TestMixedUpgrade(t *testing.T) {
	if e := startMixed(t, "mixed:upgrade"); e != nil {
		t.Run("case-17", e.testServerUpgraded)
	}
}

func (e *env) testServerUpgraded(t *testing.T) {
	p := e.run(t, pod("case-17", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	before, r := runsOf(p), e.newResizer(t)
	e.resizeTo(t, r, p, want{"app": {cpu: "200m/400m"}}.resources())
	server, err := e.Component("kube-apiserver", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.RestartWith(t.Context(), cluster.Settings{Kubernetes: "1.32"}); err != nil {
		t.Fatal(err)
	}
	last := e.settleSlowly(t, r, p, want{"app": {cpu: "300m/600m"}}.resources())
	equal(t, "path", last.Path, resize.PathInPlace)
	equal(t, "the kernel", e.read(t, p), kernel{"": {307, 60000, 128 * mi}, "app": {307, 60000, 128 * mi}})
	equal(t, "ids and restarts", runsOf(e.latest(t, p)), before)
	asked := slices.DeleteFunc(e.onPod(t, p), func(request string) bool { return strings.HasPrefix(request, "touch") })
	equal(t, "requests", asked, []string{"try pods 200", "patch pods 200", "patch pods 422", "patch pods/resize 200"})
}

// settleSlowly calls Resize until it is Done, and insists that nothing worse than waiting is said before. A kubelet of 1.31 loses what
// it has reserved each time an API server of 1.32 takes a patch of the pod, and begins a resize only at its next sync, after more than
// a minute; it takes another to report.
func (e *env) settleSlowly(t *testing.T, r resize.Resizer, p *corev1.Pod, asked resize.Resources) resize.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		res, err := r.Resize(ctx, e.latest(t, p), asked)
		var failure *resize.Error
		switch {
		case errors.As(err, &failure) && failure.Retryable:
		case err != nil || res.State != resize.StateInProgress && res.State != resize.StateDone:
			t.Fatalf("a false answer: %s (%s): %s, %v", res.State, res.Reason, res.Message, err)
		case res.State == resize.StateDone:
			return res
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not Done: %s (%s): %s, %v", res.State, res.Reason, res.Message, err)
		}
	}
}
