//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	p.Annotations = map[string]string{v1alpha1.AnnotationStartLimits: annotation}
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

// testStartTime measures from the start of the container, by the runtime's own time, until the kernel is seen to hold the lower limits.
func (e *env) testStartTime(t *testing.T) {
	var took []time.Duration
	for i := range 10 {
		p := starting(fmt.Sprintf("starts-%d", i), startLimits)
		seen := make(chan time.Time, 1)
		go func() { seen <- e.seesSmall(t, p.Name) }()
		running := e.run(t, p)
		lowered := <-seen
		equal(t, "the kernel", e.read(t, running), startedSmall)
		equal(t, "ids and restarts", runsOf(e.latest(t, running)), runsOf(running))
		if began, told := e.began(t, running); told {
			took = append(took, lowered.Sub(began))
		}
	}
	if len(took) == 0 {
		return // a clock that is not this machine's
	}
	slices.Sort(took)
	t.Logf("from the start of a container to its lower limits: p50 %s, worst of %d %s", took[len(took)/2], len(took), took[len(took)-1])
}

// seesSmall looks every millisecond, and gives when the container has the lower limits; zero: it never did.
func (e *env) seesSmall(t *testing.T, name string) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var dir string
	for {
		if p, err := e.pods.Get(name); dir == "" && err == nil && p.Spec.NodeName != "" {
			dir, _ = e.CgroupPath(ctx, p, "app") // it does not run yet
		}
		if held, err := e.ReadCgroup(ctx, e.NodeName("n1"), dir); dir != "" && err == nil && figuresOf(held).Equal(startedSmall["app"]) {
			return time.Now()
		}
		select {
		case <-ctx.Done():
			return time.Time{}
		case <-tick.C:
		}
	}
}

// began is when the container app was started, where that can be compared with this machine's clock.
func (e *env) began(t *testing.T, p *corev1.Pod) (time.Time, bool) {
	t.Helper()
	runtime, ok := e.provider.(interface {
		ContainerStarted(ctx context.Context, pod *corev1.Pod, container string) (time.Time, error)
	})
	if !ok || os.Getenv("PODRESIZE_NODE") != "" {
		return time.Time{}, false
	}
	began, err := runtime.ContainerStarted(t.Context(), p, "app")
	must(t, err)
	return began, true
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
		if res, err := r.Resize(t.Context(), p, resize.Resources{}); err != nil || res.Reason != resize.ReasonNothingAsked || !strings.Contains(res.Message, v1alpha1.AnnotationStartLimits) {
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
	node, process := agent.Spec.NodeName, e.processes(t, agent, "agent")[0] // what follows are probes
	resume := e.signaller(t, node, "CONT", process)
	e.signaller(t, node, "STOP", process)()
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
			if strings.Contains(line, "starts-broken") && strings.Contains(line, v1alpha1.AnnotationStartLimits) && strings.Contains(line, "a lot") {
				return nil
			}
		}
		return errors.New("it does not")
	})
	equal(t, "the kernel of a pod whose annotation nobody can read", e.read(t, broken), startedAsSpec)
}
