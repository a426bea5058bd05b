//go:build e2e

package e2e_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

// staticName is the cluster of TestStaticCPUs.
const staticName = "e2e-static"

// TestStaticCPUs is case-64: on a node that gives whole CPUs to Guaranteed pods those are not resized, and are told why; others are. It
// runs with the suites on 1.26.
func TestStaticCPUs(t *testing.T) {
	if !slices.ContainsFunc(settings(t), func(s setting.Setting) bool { return s.Name == "1.26" }) {
		return
	}
	t.Parallel()
	e := startWith(t, cluster.Config{Name: clusterName(staticName), Kubernetes: "1.26", Nodes: []cluster.Node{{
		Name: "n1", Kubelet: map[string]any{"cpuManagerPolicy": "static", "kubeReserved": map[string]string{"cpu": "500m"}},
	}}})
	e.minor, e.path = 26, resize.PathCRI
	e.deploy(t)
	r := e.newResizer(t)
	exclusive := e.run(t, pod("case-64", container("app", amounts{"1/1", "32Mi/32Mi"})))
	shared := e.run(t, pod("case-64-shared", container("app", amounts{"100m/200m", "32Mi/64Mi"})))
	fraction := e.run(t, pod("case-64-fraction", container("app", amounts{"100m/100m", "32Mi/32Mi"})))

	t.Run("case-64", func(t *testing.T) {
		held := e.read(t, exclusive)
		equal(t, "the kernel before", held, kernel{"": {1024, 100000, 32 * mi}, "app": {1024, 100000, 32 * mi}})
		for _, w := range []want{{"app": {cpu: "500m/500m"}}, {"app": {memory: "64Mi/64Mi"}}} {
			e.refusedForPolicy(t, r, exclusive, w)
			equal(t, "the kernel", e.read(t, exclusive), held)
		}
		equal(t, "ids and restarts", runsOf(e.latest(t, exclusive)), runsOf(exclusive))
	})
	t.Run("in the shared pool", func(t *testing.T) {
		e.resized(t, r, shared, want{"app": {"150m/300m", "32Mi/96Mi"}}, kernel{"": {153, 30000, 96 * mi}, "app": {153, 30000, 96 * mi}})
	})
	t.Run("Guaranteed in the shared pool", func(t *testing.T) { // which a kubelet that resizes in place refuses as well
		held := e.read(t, fraction)
		e.refusedForPolicy(t, r, fraction, want{"app": {cpu: "200m/200m"}})
		equal(t, "the kernel", e.read(t, fraction), held)
	})
}

// refusedForPolicy insists on Infeasible with the policy as the reason.
func (e *env) refusedForPolicy(t *testing.T, r resize.Resizer, pod *corev1.Pod, w want) {
	t.Helper()
	res := e.settle(t, r, pod, w.resources(), func(res resize.Result) error {
		if res.State != resize.StateInfeasible {
			return errors.New("not Infeasible")
		}
		return nil
	})
	if res.Reason != resize.ReasonUnsupportedPod || !strings.Contains(res.Message, "static policy of the CPU manager") || !strings.Contains(res.Message, `"app"`) {
		t.Errorf("%s: %s", res.Reason, res.Message)
	}
}
