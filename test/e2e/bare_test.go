//go:build e2e

package e2e_test

import (
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
)

// testNothingInstalled: in place needs nothing but rights; elsewhere the cluster has no path, and says what to do.
func (e *env) testNothingInstalled(t *testing.T) {
	e.testBare(t, "nothing-installed", refusal{
		name: "set", args: "set nothing-installed --cpu 200m", code: exitRefused, reason: "NoPath", says: []string{"criresizes.podresize.dev", "manifests/base"},
	})
}

// testNoAgent: the API type is there, and nobody who would act on it.
func (e *env) testNoAgent(t *testing.T) {
	e.apply(t, "e2e/manifests/crd")
	e.testBare(t, "no-agent",
		refusal{name: "set", args: "set no-agent --cpu 200m", code: exitAgentNotReady, reason: "AgentNotReady", says: []string{strconv.Quote(e.NodeName("n1")), "podresize-agent"}},
		refusal{name: "set and wait", args: "set no-agent --memory 128Mi --wait --timeout 1s", code: exitAgentNotReady, reason: "AgentNotReady", says: []string{"1s", "podresize-agent"}},
	)
}

func (e *env) testBare(t *testing.T, name string, refusals ...refusal) {
	t.Helper()
	bare := e.run(t, pod(name, container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	if e.path == resize.PathInPlace {
		held := kernel{"": {204, 40000, 128 * mi}, "app": {204, 40000, 128 * mi}}
		e.resizeTo(t, e.newResizer(t), bare, want{"app": {cpu: "200m/400m"}}.resources())
		equal(t, "the kernel", e.read(t, bare), held)
		return
	}
	e.refuseAll(t, []*corev1.Pod{bare}, refusals)
}
