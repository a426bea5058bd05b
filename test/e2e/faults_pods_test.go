//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// testFaultsOfPods are faults that leave the rest of the node alone, so that they run at the same time.
func (e *env) testFaultsOfPods(t *testing.T) {
	t.Run("crash loop", e.testCrashLoop)
	t.Run("exits during the update", e.testExits)
	t.Run("deleted and made anew", e.testMadeAnew)
	t.Run("not enforced", e.testNotEnforced)
	t.Run("another UID", e.testAnotherUID)
	t.Run("a hundred resizes", e.testHundred)
	t.Run("another writer", e.testAnotherWriter)
	t.Run("agent without API server", e.testAgentAlone)
}

// testCrashLoop: each run of a container that dies for ever gets what is wanted, is never refused a start, and the container beside it
// is left alone.
func (e *env) testCrashLoop(t *testing.T) {
	t.Parallel()
	r, pod := e.newResizer(t), e.run(t, pod("crashes", container("app", amounts{"200m/400m", "64Mi/128Mi"}, "exit", "1", "3s"), container("log", amounts{"100m/100m", "32Mi/32Mi"})))
	held := kernel{"": {204, 20000, 96 * mi}, "app": {102, 10000, 64 * mi}, "log": {102, 10000, 32 * mi}}
	ask(t, r, pod, want{"app": {"100m/100m", "32Mi/64Mi"}})
	var runs []int32 // that were seen with what is wanted
	eventually(t, "two later runs have what is wanted", func() error {
		status := e.criResize(t, pod).Status
		if !apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionApplied) {
			return fmt.Errorf("runs %v have; the agent says %+v", runs, status.Conditions)
		}
		run := status.Containers[0].RestartCount
		if run > 0 && !slices.Contains(runs, run) && e.held(t, pod, held) == nil {
			runs = append(runs, run)
		}
		if len(runs) < 2 {
			return fmt.Errorf("runs %v have", runs)
		}
		return nil
	})
	e.says(t, pod, v1alpha1.ReasonContainerNotRunning)
	latest := e.latest(t, pod)
	for _, s := range latest.Status.ContainerStatuses {
		if ended := s.LastTerminationState.Terminated; ended != nil && (s.Name != "app" || ended.ExitCode != 1 || ended.Reason != "Error") {
			t.Errorf("container %q ended: %+v", s.Name, ended)
		}
	}
	equal(t, "the container beside it", runsOf(latest)["log"], runsOf(pod)["log"])
	if said := e.reports(t, pod); said > 30 {
		t.Errorf("%d reports of some restarts", said)
	}
}

// testExits: a container ends when its pod's cgroup has been changed and it has not.
func (e *env) testExits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, first string // to be changed
		want        want
		to          kernel
	}{{"up", "", tripledUp, tripledLarge}, {"down", "a", tripledDown, tripledSmall}} {
		t.Run(c.name, func(t *testing.T) {
			r, pod := e.newResizer(t), e.run(t, tripled("exits-"+c.name))
			struck := e.cgroups(t, pod).strikes(t, c.first, e.processes(t, pod, "c")...)
			ask(t, r, pod, c.want)
			struck()
			e.settle(t, r, pod, c.want.resources(), func(res resize.Result) error {
				if res.State != resize.StateDone || res.Containers[2].RestartCount != 1 {
					return fmt.Errorf("%d restarts", res.Containers[2].RestartCount)
				}
				return nil
			})
			equal(t, "the kernel in the end", e.read(t, pod), c.to)
			is, was := runsOf(e.latest(t, pod)), runsOf(pod)
			delete(is, "c")
			delete(was, "c")
			equal(t, "the other containers", is, was)
			e.noWarnings(t, pod)
		})
	}
}

// noWarnings insists that no event warns of anything.
func (e *env) noWarnings(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, event := range e.events(t.Context(), pod) {
		if strings.HasPrefix(event, corev1.EventTypeWarning) {
			t.Errorf("event: %s", event)
		}
	}
}

// testMadeAnew: what is asked for after a CRIResize was deleted is what holds, whether or not the agent has seen that.
func (e *env) testMadeAnew(t *testing.T) {
	t.Parallel()
	r, pod := e.newResizer(t), e.run(t, tripled("made-anew"))
	e.ends(t, r, pod, tripledDown, tripledSmall)
	must(t, e.objects.Delete(t.Context(), e.criResize(t, pod)))
	e.ends(t, r, pod, tripledUp, tripledLarge)

	e.ends(t, r, pod, tripledDown, tripledSmall)
	must(t, e.objects.Delete(t.Context(), e.criResize(t, pod)))
	room := tripledHolds(tripledSmall["a"], tripledSmall[""].Shares)
	room[""] = figures{tripledSmall[""].Shares, tripledStart[""].Quota, tripledStart[""].Memory}
	e.holds(t, pod, room) // for containers that are restarted
	e.ends(t, r, pod, want{"a": tripledUp["a"]}, kernel{
		"": {409, 80000, 256 * mi}, "a": tripledLarge["a"], "b": tripledStart["b"], "c": tripledStart["c"],
	})
}

// testNotEnforced: what the containers have they keep; one that dies comes back at the first try, with what spec says.
func (e *env) testNotEnforced(t *testing.T) {
	t.Parallel()
	r, pod := e.newResizer(t), e.run(t, pod("free", container("app", amounts{"200m/400m", "64Mi/128Mi"})))
	w, held := want{"app": {"100m/100m", "32Mi/64Mi"}}, kernel{"": {102, 10000, 64 * mi}, "app": {102, 10000, 64 * mi}}
	e.ends(t, r, pod, w, held)
	e.enforceNot(t, pod)
	e.says(t, pod, v1alpha1.ReasonNotEnforced)
	equal(t, "the kernel when it is not enforced", e.read(t, pod), kernel{"": {102, 40000, 128 * mi}, "app": {102, 10000, 64 * mi}})
	e.kill(t, pod, "app")
	_, err := e.WaitPod(t.Context(), namespace, pod.Name, func(p *corev1.Pod) error {
		if s := p.Status.ContainerStatuses[0]; s.RestartCount != 1 || !s.Ready {
			return fmt.Errorf("%d restarts", s.RestartCount)
		}
		return nil
	})
	must(t, err)
	e.noWarnings(t, pod)
	equal(t, "the kernel after its death", e.read(t, pod), kernel{"": {102, 40000, 128 * mi}, "app": {204, 40000, 128 * mi}})
	e.ends(t, r, e.latest(t, pod), w, held)
}

func (e *env) enforceNot(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object := e.criResize(t, pod)
		object.Spec.Enforce = ptr.To(false)
		return e.objects.Update(t.Context(), object)
	}))
}

// testAnotherUID: a CRIResize that outlives its pod is not for the next pod of that name.
func (e *env) testAnotherUID(t *testing.T) {
	t.Parallel()
	r, old := e.newResizer(t), e.run(t, tripled("another-uid"))
	e.ends(t, r, old, tripledDown, tripledSmall)
	orphan := e.criResize(t, old)
	orphan.OwnerReferences = nil
	must(t, e.objects.Update(t.Context(), orphan))
	e.deletePod(t, old)

	next := e.run(t, tripled("another-uid"))
	e.says(t, old, v1alpha1.ReasonPodNotFound)
	must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		orphan := e.criResize(t, old)
		for i := range orphan.Spec.Containers {
			orphan.Spec.Containers[i].Wanted.Limits = orphan.Spec.Containers[i].Before.Limits
		}
		return e.objects.Update(t.Context(), orphan)
	}))
	e.says(t, old, v1alpha1.ReasonPodNotFound)
	equal(t, "the kernel of the next pod", e.read(t, next), tripledStart)
	e.ends(t, r, next, tripledUp, tripledLarge)
	must(t, e.objects.Delete(t.Context(), e.criResize(t, old)))
}

// testHundred: of many resizes in a row the last one wins, and none in between is left half applied.
func (e *env) testHundred(t *testing.T) {
	t.Parallel()
	const resizes = 100
	r, pod := e.newResizer(t), e.run(t, pod("hundred", container("app", amounts{"100m/200m", "32Mi/64Mi"}), container("log", amounts{"100m/200m", "32Mi/64Mi"})))
	for i := range resizes {
		up, down := i*7%50+1, 60-i*7%50
		ask(t, r, pod, want{
			"app": {fmt.Sprintf("%dm/%dm", 10*up, 20*up), fmt.Sprintf("32Mi/%dMi", 64+up)},
			"log": {fmt.Sprintf("%dm/%dm", 10*down, 20*down), fmt.Sprintf("32Mi/%dMi", 64+down)},
		})
	}
	last := want{"app": {"440m/880m", "32Mi/108Mi"}, "log": {"170m/340m", "32Mi/81Mi"}} // of 99: 99 * 7 % 50 = 43
	e.ends(t, r, pod, last, kernel{"": {624, 122000, 189 * mi}, "app": {450, 88000, 108 * mi}, "log": {174, 34000, 81 * mi}})
	if object := e.criResize(t, pod); object.Generation != resizes {
		t.Errorf("the CRIResize was written %d times", object.Generation)
	}
}

// testAnotherWriter: one who writes other figures all the time is answered after pauses that grow, and told of; when it ends, what is
// wanted is applied after the pause.
func (e *env) testAnotherWriter(t *testing.T) {
	t.Parallel()
	r, pod := e.newResizer(t), e.run(t, pod("contended", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	w, held := want{"app": {"300m/600m", "64Mi/128Mi"}}, kernel{"": {307, 60000, 128 * mi}, "app": {307, 60000, 128 * mi}}
	e.ends(t, r, pod, w, held)
	before := e.reports(t, pod)
	stop := e.writes(t, pod, "app")
	e.says(t, pod, v1alpha1.ReasonContended)
	counted := e.reports(t, pod)
	if reports := counted - before; reports > 8 {
		t.Errorf("%d reports of three repairs", reports)
	}
	looks, dirs, seen := e.looks(t, pod), e.cgroups(t, pod), map[int64]bool{}
	eventually(t, "it writes on", func() error {
		if seen[dirs.read(t)["app"].Quota] = true; len(seen) < 50 {
			return fmt.Errorf("%d times", len(seen))
		}
		return nil
	})
	if more := e.reports(t, pod) - counted; more > 3 {
		t.Errorf("%d reports in a pause, or a repair more", more)
	}
	if more := e.looks(t, pod) - looks; more > 10 {
		t.Errorf("%d looks in a pause, or a repair more", more)
	}
	stop()
	e.ends(t, r, pod, w, held)
	if object := e.criResize(t, pod); object.Status.Repairs < 1 || object.Status.Repairs > 4 {
		t.Errorf("%d repairs are told", object.Status.Repairs)
	}
}

// writes has another writer set the CPU quotas of a container and its pod, to ever other figures, until stop is called.
func (e *env) writes(t *testing.T, pod *corev1.Pod, container string) (stop func()) {
	t.Helper()
	const loop = `for d in /sys/fs/cgroup/cpu /sys/fs/cgroup; do [ -e "$d$0" ] && break; done
f=cpu.cfs_quota_us period=; [ -e "$d$0/$f" ] || f=cpu.max period=' 100000'
i=0; while :; do i=$((i+1)); for c in "$0" "$1"; do echo "$((20000+i%10000))$period" >"$d$c/$f"; done 2>/dev/null; sleep 0.005; done`
	ctx, cancel := context.WithCancel(t.Context())
	ended, paths := make(chan struct{}), e.cgroups(t, pod).dirs
	go func() {
		defer close(ended)
		_, _ = e.Exec(ctx, pod.Spec.NodeName, "sh", "-c", loop, paths[""], paths[container]) // it ends by being killed
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// looks counts how often the agent has looked at a pod.
func (e *env) looks(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	agent := e.agentPod(t)
	log, err := e.Client().CoreV1().Pods(agent.Namespace).GetLogs(agent.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	must(t, err)
	return looksIn(string(log), pod)
}

// looksIn counts them in the log of an agent.
func looksIn(log string, pod *corev1.Pod) int {
	return strings.Count(log, fmt.Sprintf("pod=%s/%s ", pod.Namespace, pod.Name))
}

// testAgentAlone: an agent that never reached an API server says so, and lives on.
func (e *env) testAgentAlone(t *testing.T) {
	t.Parallel()
	const name = "agent-without-server"
	pod := e.newAgent(t, name)
	c := &pod.Spec.Containers[0]
	c.Args[0] = "--node-name=" + name
	c.Env = append(c.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: "1"})
	c.StartupProbe = nil
	for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
		probe.InitialDelaySeconds, probe.PeriodSeconds = 2, 1
	}
	e.endAgent(t, name)
	pod, err := e.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	e.livesOn(t, pod, "the API server has not answered yet")
}

// livesOn insists that an agent is not ready for a reason, at several probes, and is not restarted for that.
func (e *env) livesOn(t *testing.T, agent *corev1.Pod, reason string) {
	t.Helper()
	eventually(t, "it is not ready", func() error {
		list, err := e.Client().CoreV1().Events(agent.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(agent.UID)})
		must(t, err)
		for _, event := range list.Items {
			if strings.HasPrefix(event.Message, "Liveness probe failed") {
				t.Fatal(event.Message)
			}
			if strings.HasPrefix(event.Message, "Readiness probe failed") && strings.Contains(event.Message, reason) && event.Count >= 3 {
				return nil
			}
		}
		return fmt.Errorf("%d events: %s", len(list.Items), e.events(t.Context(), agent))
	})
	if s := e.latest(t, agent).Status.ContainerStatuses[0]; s.State.Running == nil || s.Ready || s.RestartCount > 0 {
		t.Errorf("its container is %+v", s)
	}
}
