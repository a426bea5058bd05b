//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// starting is a pod of 1 CPU and 256Mi with the annotation by which it starts small.
func starting(name, annotation string, args ...string) *corev1.Pod {
	p := pod(name, container("app", amounts{"100m/1", "64Mi/256Mi"}, args...), container("log", amounts{"50m/100m", "32Mi/64Mi"}))
	p.Annotations = map[string]string{v1alpha1.StartLimitsAnnotation: annotation}
	return p
}

const startLimits = `{"app": {"cpu": "250m", "memory": "128Mi"}}`

var (
	startedAsSpec = kernel{"": {153, 110000, 320 * mi}, "app": {102, 100000, 256 * mi}, "log": {51, 10000, 64 * mi}}
	startedSmall  = kernel{"": {153, 110000, 320 * mi}, "app": {102, 25000, 128 * mi}, "log": {51, 10000, 64 * mi}}
)

// testStartsSmall: limits of the annotation hold from the start of a container on, until a CRIResize of the pod says otherwise.
func (e *env) testStartsSmall(t *testing.T) {
	t.Run("time", e.testStartTime)
	t.Run("restarts", e.testStartAgain)
	t.Run("a CRIResize beats it", e.testStartAndResize)
	t.Run("memory in use", e.testStartInUse)
	t.Run("left out", e.testStartLeftOut)
}

// testStartTime tells how long it takes, by the runtime's own time of the start.
func (e *env) testStartTime(t *testing.T) {
	var took []time.Duration
	for i := range 10 {
		p := e.run(t, starting(fmt.Sprintf("starts-%d", i), startLimits))
		e.holds(t, p, startedSmall)
		took = append(took, e.startedAfter(t, p))
		equal(t, "ids and restarts", runsOf(e.latest(t, p)), runsOf(p))
	}
	slices.Sort(took)
	t.Logf("from the start of a container to its lower limits: p50 %s, worst of %d %s", took[len(took)/2], len(took), took[len(took)-1])
}

// startedAfter is how long after the start of the pod's container its agent had made it small.
func (e *env) startedAfter(t *testing.T, p *corev1.Pod) time.Duration {
	t.Helper()
	line := regexp.MustCompile(`Container starts small.* pod=` + p.Namespace + "/" + p.Name + ` .*after=(\S+)`)
	var after time.Duration
	eventually(t, "the agent tells that it made the container small", func() error {
		found := line.FindStringSubmatch(e.agentSays(t))
		if found == nil {
			return errors.New("it does not")
		}
		var err error
		after, err = time.ParseDuration(found[1])
		return err
	})
	return after
}

// agentSays is the whole log of the node's agent.
func (e *env) agentSays(t *testing.T) string {
	t.Helper()
	agent := e.agentPod(t)
	log, err := e.Client().CoreV1().Pods(agent.Namespace).GetLogs(agent.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	must(t, err)
	return string(log)
}

// restartsApp kills the container app and waits for its next run.
func (e *env) restartsApp(t *testing.T, p *corev1.Pod) {
	t.Helper()
	before := runsOf(e.latest(t, p))["app"].Restarts
	e.kill(t, p, "app")
	eventually(t, "the container is started again", func() error {
		if now := runsOf(e.latest(t, p))["app"].Restarts; now != before+1 {
			return fmt.Errorf("%d restarts, %d before", now, before)
		}
		return nil
	})
}

// testStartAgain: each run of a container starts small, an agent or none.
func (e *env) testStartAgain(t *testing.T) {
	p := e.run(t, starting("starts-again", startLimits))
	e.holds(t, p, startedSmall)
	e.restartsApp(t, p)
	e.holds(t, p, startedSmall)
	e.deletePod(t, e.agentPod(t))
	e.untilHolds(t, e.agentPod(t).Name)
	equal(t, "the kernel under another agent", e.read(t, p), startedSmall)
	if e.criResize(t, p) != nil {
		t.Error("there is a CRIResize")
	}
}

// testStartAndResize: what is asked for holds, to spec's values too, and for later runs of the container.
func (e *env) testStartAndResize(t *testing.T) {
	r := e.newResizer(t)
	for _, c := range []struct {
		name string
		want want
		held kernel
	}{
		{"up-to-spec", want{"app": {"100m/1", "64Mi/256Mi"}}, startedAsSpec},
		{"up", want{"app": {"200m/2", "64Mi/512Mi"}}, kernel{"": {256, 210000, 576 * mi}, "app": {204, 200000, 512 * mi}, "log": {51, 10000, 64 * mi}}},
	} {
		p := e.run(t, starting("starts-"+c.name, startLimits))
		e.holds(t, p, startedSmall)
		if res, err := r.Resize(t.Context(), p, resize.Resources{}); err != nil || res.Reason != resize.ReasonNothingAsked || !strings.Contains(res.Message, v1alpha1.StartLimitsAnnotation) {
			t.Errorf("asked for nothing: %s: %s, %v", res.Reason, res.Message, err)
		}
		e.resizeTo(t, r, p, c.want.resources())
		equal(t, "the kernel when it is Done", e.read(t, p), c.held)
		e.restartsApp(t, p)
		e.holds(t, p, c.held)
	}
}

// testStartInUse: an agent that comes a little late leaves a memory limit out that is below what is in use by then.
func (e *env) testStartInUse(t *testing.T) {
	agent := e.agentPod(t)
	node, processes := agent.Spec.NodeName, e.processes(t, agent, "agent")
	resume := e.signaller(t, node, "CONT", processes...)
	e.signaller(t, node, "STOP", processes...)()
	t.Cleanup(resume)
	p := e.run(t, starting("starts-in-use", startLimits, "alloc", "160Mi"))
	eventually(t, "the memory is in use", func() error {
		out, err := e.Exec(t.Context(), node, "sh", "-c", `cat /sys/fs/cgroup/memory"$0"/memory.usage_in_bytes /sys/fs/cgroup"$0"/memory.current 2>/dev/null; true`, e.cgroupPath(t, p, "app"))
		if err == nil && len(strings.TrimSpace(out)) < len("160000000") {
			err = fmt.Errorf("only %s", out)
		}
		return err
	})
	equal(t, "the kernel without an agent", e.read(t, p), startedAsSpec)
	resume()
	e.holds(t, p, kernel{"app": {102, 25000, 256 * mi}})
	equal(t, "ids and restarts", runsOf(e.latest(t, p)), runsOf(p))
}

// testStartLeftOut: what nobody can read, and what would raise a limit, changes nothing.
func (e *env) testStartLeftOut(t *testing.T) {
	raises := e.run(t, starting("starts-higher", `{"app": {"cpu": "2", "memory": "1Gi"}, "log": {"cpu": "50m"}}`))
	broken := e.run(t, starting("starts-broken", `{"app": {"cpu": "a lot"}}`))
	lower := figures{51, 5000, 64 * mi}
	e.holds(t, raises, kernel{"": startedAsSpec[""], "app": startedAsSpec["app"], "log": lower})
	eventually(t, "the agent tells what it cannot read", func() error {
		for line := range strings.Lines(e.agentSays(t)) {
			if strings.Contains(line, "starts-broken") && strings.Contains(line, v1alpha1.StartLimitsAnnotation) && strings.Contains(line, "a lot") {
				return nil
			}
		}
		return errors.New("it does not")
	})
	equal(t, "the kernel of a pod whose annotation nobody can read", e.read(t, broken), startedAsSpec)
}
