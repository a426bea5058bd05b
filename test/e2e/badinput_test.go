//go:build e2e

package e2e_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/podresize/podresize/resize"
)

// testBadInput: what cannot be done is refused with the same reason and exit code on every path.
func (e *env) testBadInput(t *testing.T) {
	pods := []*corev1.Pod{
		e.run(t, pod("burstable", container("app", amounts{"100m/200m", "64Mi/128Mi"}))),
		e.run(t, pod("guaranteed", container("app", amounts{"100m/100m", "64Mi/64Mi"}))),
		e.run(t, pod("besteffort", container("app", amounts{}))),
		e.run(t, pod("two", container("app", amounts{"100m/200m", "64Mi/128Mi"}), container("log", amounts{"50m/100m", "32Mi/64Mi"}))),
	}
	e.refuseAll(t, pods, badInput())
	t.Run("unreachable", e.testUnreachable)
	if e.path == resize.PathInPlace {
		t.Run("restart not allowed", e.testRestartNotAllowed)
	}
}

func badInput() []refusal {
	return []refusal{
		{name: "unknown container", args: "set burstable -c ap --cpu 200m", code: exitUnknownContainer, reason: "UnknownContainer", says: []string{`"ap"`, `did you mean "app"?`}},
		{name: "unknown container, none alike", args: "set two -c other --memory 1Gi", code: exitUnknownContainer, reason: "UnknownContainer", says: []string{`"other"`, "app", "log"}},
		{name: "pod not found", args: "set ghost --cpu 200m", code: exitPodNotFound, reason: "PodNotFound", says: []string{`"e2e/ghost"`}},
		{name: "pod not found, status", args: "status ghost", code: exitPodNotFound, reason: "PodNotFound", says: []string{`"e2e/ghost"`}},
		{name: "no quantity", args: "set burstable --cpu 12x", code: exitInvalidQuantity, reason: "InvalidQuantity", says: []string{"--cpu", `"12x"`}},
		{name: "no quantity in memory", args: "set burstable --memory-limit 1Qb", code: exitInvalidQuantity, reason: "InvalidQuantity", says: []string{"--memory-limit", `"1Qb"`}},
		{name: "negative quantity", args: "set burstable --memory=-64Mi", code: exitInvalidQuantity, reason: "InvalidQuantity", says: []string{"--memory", `"-64Mi"`}},
		{name: "limit of zero", args: "set burstable --cpu-limit 0", code: exitInvalidQuantity, reason: "InvalidQuantity", says: []string{"limits.cpu"}},
		{name: "no change", args: "set burstable --cpu 0.1 --memory 65536Ki", code: exitNoChange, reason: "NoChange", says: []string{`"app"`, "already"}},
		{name: "no flags", args: "set burstable", code: exitNoChange, reason: "NoChange", says: []string{"--cpu"}},
		{name: "limit below request", args: "set burstable --cpu-limit 50m", code: exitInfeasible, reason: "LimitBelowRequest", says: []string{`"app"`, "50m", "100m"}},
		{name: "memory limit below request", args: "set two -c log --memory-request 128Mi", code: exitInfeasible, reason: "LimitBelowRequest", says: []string{`"log"`, "64Mi", "128Mi"}},
		{name: "no longer guaranteed", args: "set guaranteed --cpu-request 50m", code: exitInfeasible, reason: "QOSChange", says: []string{"Guaranteed to Burstable"}},
		{name: "no longer burstable", args: "set burstable --cpu-request 200m --memory-request 128Mi", code: exitInfeasible, reason: "QOSChange", says: []string{"Burstable to Guaranteed"}},
		{name: "no longer best effort", args: "set besteffort --cpu 100m", code: exitInfeasible, reason: "QOSChange", says: []string{"BestEffort to Burstable"}},
		{name: "more CPU than the node", args: "set burstable --cpu 64", code: exitInfeasible, reason: "NodeTooSmall", says: []string{"64", "cpu"}},
		{name: "more memory than the node", args: "set guaranteed --memory 4Ti --wait", code: exitInfeasible, reason: "NodeTooSmall", says: []string{"4Ti", "memory"}},
		{name: "which container", args: "set two --cpu 200m --wait", code: exitUsage, reason: "Usage", says: []string{"--container", "app, log"}},
		{name: "no pod", args: "set --cpu 200m", code: exitUsage, reason: "Usage", says: []string{"one pod"}},
		{name: "two pods", args: "set burstable guaranteed --cpu 200m", code: exitUsage, reason: "Usage", says: []string{"one pod"}},
		{name: "flags that contradict", args: "set burstable --cpu 200m --cpu-limit 1", code: exitUsage, reason: "Usage", says: []string{"--cpu-limit"}},
		{name: "unknown flag", args: "set burstable --cpus 2", code: exitUsage, reason: "Usage", says: []string{"--cpus"}},
		{name: "unknown output", args: "set burstable --cpu 200m -o yaml", code: exitUsage, reason: "Usage", says: []string{"--output", `"yaml"`}},
	}
}

// testRestartNotAllowed: resizePolicy may turn a resize into a restart, which must be asked for.
func (e *env) testRestartNotAllowed(t *testing.T) {
	c := container("app", amounts{"100m/200m", "64Mi/128Mi"})
	c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	restarting := e.run(t, pod("restarting", c))
	e.refuseAll(t, []*corev1.Pod{restarting}, []refusal{
		{name: "by memory", args: "set restarting --memory 128Mi", code: exitRefused, reason: "RestartNotAllowed", says: []string{`"app"`, "memory"}},
	})
	if got := e.runCommand(t, e.kubeconfig(t, resizerUser, resizers), "set", "restarting", "--cpu", "200m", "--wait"); got.code != exitOK {
		t.Errorf("a resize that restarts nothing: %+v", got)
	}
}

// testUnreachable: a login without a cluster ends at once.
func (e *env) testUnreachable(t *testing.T) {
	got := e.runCommand(t, "/nonexistent/kubeconfig", "set", "burstable", "--cpu", "200m")
	if got.code == exitOK || got.stdout != "" {
		t.Errorf("without a kubeconfig: %+v", got)
	}
	path := e.kubeconfig(t, resizerUser, resizers)
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["e2e"].Server = "https://127.0.0.1:1"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	got = e.runCommand(t, path, "set", "burstable", "--cpu", "200m")
	if got.code != exitOther || got.stdout != "" {
		t.Errorf("without an API server: %+v", got)
	}
	checkLine(t, got.stderr, "Unavailable", "connection refused", `"e2e/burstable"`)
}
