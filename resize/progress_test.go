package resize_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/podresize/podresize/resize"
)

var (
	start         = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	conditionTime = start.Add(-time.Minute)
)

const within = 5 * time.Minute

// watcher calls Resize for one want, on a clock of its own.
type watcher struct {
	server  *apiServer
	resizer *resize.InPlace
	clock   *clocktesting.FakePassiveClock
}

func watch(t *testing.T, s *apiServer) *watcher {
	t.Helper()
	return watchWith(t, s, resize.InPlaceOptions{})
}

func watchWith(t *testing.T, s *apiServer, opts resize.InPlaceOptions) *watcher {
	t.Helper()
	w := &watcher{server: s, clock: clocktesting.NewFakePassiveClock(start)}
	opts.Clock = w.clock
	w.resizer = resize.NewInPlace(serve(t, s), opts)
	return w
}

// expect calls Resize with a pod, and checks what it answers.
func (w *watcher) expect(t *testing.T, pod *corev1.Pod, want resize.Resources, state resize.State, reason resize.Reason) resize.Result {
	t.Helper()
	res, err := w.resizer.Resize(t.Context(), pod, want)
	if err != nil {
		t.Fatal(err)
	}
	if res.Path != resize.PathInPlace || res.State != state || res.Reason != reason {
		t.Fatalf("got %s %s/%s: %s; want %s/%s", res.Path, res.State, res.Reason, res.Message, state, reason)
	}
	waits := state == resize.StateInProgress || state == resize.StateDeferred || state == resize.StateUnconfirmed
	if waits != (res.RetryAfter > 0) {
		t.Errorf("%s with RetryAfter %s", state, res.RetryAfter)
	}
	return res
}

func (w *watcher) later(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// TestEvidence judges statuses that do not prove their spec, and those that do, without anything having been sent.
func TestEvidence(t *testing.T) {
	const pending, inProgress = corev1.PodResizePending, corev1.PodResizeInProgress
	ahead := func(p *corev1.Pod) { p.Status.ObservedGeneration, p.Generation = 3, 4 }
	for _, tc := range []struct {
		name   string
		change []change
		state  resize.State // empty: it is proof
		reason resize.Reason
		say    string
		since  time.Time
	}{
		{name: "as spec says", change: []change{}},
		{name: "generation observed", change: []change{observed}},
		{name: "stale generation", change: []change{ahead}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "generation 3, spec is at 4", since: start},
		{name: "stale generation hides a stale condition", change: []change{ahead, withCondition(pending, corev1.PodReasonInfeasible, "old")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "generation 3", since: start},

		{name: "pending Infeasible", change: []change{observed, withCondition(pending, corev1.PodReasonInfeasible, "Node didn't have enough capacity: cpu")}, state: resize.StateInfeasible, reason: resize.ReasonNodeTooSmall, say: "enough capacity: cpu", since: conditionTime},
		{name: "case-64", change: []change{withCondition(pending, corev1.PodReasonInfeasible, "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy")}, state: resize.StateInfeasible, reason: resize.ReasonRejected, say: "static policy", since: conditionTime},
		{name: "pending Deferred", change: []change{observed, withCondition(pending, corev1.PodReasonDeferred, "Node didn't have enough resource: cpu")}, state: resize.StateDeferred, reason: resize.ReasonNodeFull, say: "enough resource: cpu", since: conditionTime},
		{name: "pending for a reason of the future", change: []change{withCondition(pending, "Sleepy", "zzz")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "Sleepy: zzz", since: start},
		{name: "in progress", change: []change{withCondition(inProgress, "", "")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, since: conditionTime},
		{name: "in progress with an error", change: []change{withCondition(inProgress, corev1.PodReasonError, "EBUSY")}, state: resize.StateInProgress, reason: resize.ReasonKubeletError, say: "EBUSY", since: conditionTime},
		{name: "both conditions", change: []change{withCondition(inProgress, "", ""), withCondition(pending, corev1.PodReasonDeferred, "full")}, state: resize.StateDeferred, reason: resize.ReasonNodeFull, say: "full", since: conditionTime},

		{name: "status.resize InProgress", change: []change{resizeField(corev1.PodResizeStatusInProgress)}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, since: start},
		{name: "status.resize of the future", change: []change{resizeField("Sleepy")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, since: start},
		{name: "status.resize Deferred", change: []change{resizeField(corev1.PodResizeStatusDeferred)}, state: resize.StateDeferred, reason: resize.ReasonNodeFull},
		{name: "status.resize Infeasible", change: []change{resizeField(corev1.PodResizeStatusInfeasible)}, state: resize.StateInfeasible, reason: resize.ReasonRejected},

		{name: "not allocated", change: []change{allocated("cpu=90m memory=128Mi")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "allocated cpu is 90m, want 100m", since: start},
		{name: "memory not allocated", change: []change{allocated("cpu=100m memory=64Mi")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "allocated memory", since: start},
		{name: "allocation not told", change: []change{func(p *corev1.Pod) { p.Status.ContainerStatuses[0].AllocatedResources = nil }}},
		{name: "new request not allocated", change: []change{allocated("memory=128Mi")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "allocated cpu", since: start},
		{name: "limit not actuated", change: []change{actual("cpu=100m memory=128Mi", "cpu=200m memory=255Mi")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "limits.memory is 255Mi, want 256Mi", since: start},
		{name: "new limit not actuated", change: []change{actual("cpu=100m memory=128Mi", "memory=256Mi")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "limits.cpu", since: start},
		{name: "request not actuated", change: []change{actual("cpu=90m memory=128Mi", "cpu=200m memory=256Mi")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "requests.cpu is 90m", since: start},
		{name: "no resources reported", change: []change{gateOff}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "no resources", since: start},
		{name: "no container status", change: []change{notRunning}, state: resize.StateInProgress, reason: resize.ReasonWaitingForContainer, say: `"app" is not running`, since: start},
		{name: "second container not actuated", change: []change{sidekick("cpu=10m", ""), func(p *corev1.Pod) { p.Spec.Containers[1].Resources.Requests = list("cpu=20m") }}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: `"log"`, since: start},

		{name: "case-42", change: []change{spec("cpu=2m memory=128Mi", "cpu=5m memory=256Mi"), actuated, actual("cpu=2m memory=128Mi", "cpu=10m memory=256Mi")}},
		{name: "case-42 both below the floor", change: []change{spec("cpu=2m memory=128Mi", "cpu=8m memory=256Mi"), actuated, actual("cpu=2m memory=128Mi", "cpu=5m memory=256Mi")}},
		{name: "case-42 above the floor", change: []change{spec("cpu=2m memory=128Mi", "cpu=15m memory=256Mi"), actuated, actual("cpu=2m memory=128Mi", "cpu=10m memory=256Mi")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "limits.cpu", since: start},
		{name: "case-43", change: []change{spec("cpu=1m memory=128Mi", ""), actuated, actual("cpu=2m memory=128Mi", "")}},
		{name: "case-43 above the floor", change: []change{spec("cpu=3m memory=128Mi", ""), actuated, actual("cpu=2m memory=128Mi", "")}, state: resize.StateInProgress, reason: resize.ReasonWaitingForKubelet, say: "requests.cpu", since: start},
		{name: "case-46", change: []change{spec("cpu=100m memory=200Mi", "memory=1Gi"), actuated, actual("cpu=100m memory=128Mi", "memory=1Gi")}},
		{name: "quota in steps of the systemd driver", change: []change{spec("cpu=50m memory=128Mi", "cpu=51m memory=256Mi"), actuated, actual("cpu=50m memory=128Mi", "cpu=60m memory=256Mi")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := watch(t, &apiServer{kubelet: "v1.33.1"})
			pod := newPod(tc.change...)
			if tc.state == "" { // a kubelet as old as this one is believed at the second look
				w.expect(t, pod, resize.Resources{}, resize.StateInProgress, resize.ReasonLookAgain)
				w.later(2 * time.Second)
				w.expect(t, pod, resize.Resources{}, resize.StateDone, resize.ReasonConfirmed)
				return
			}
			res := w.expect(t, pod, resize.Resources{}, tc.state, tc.reason)
			if !strings.Contains(res.Message, tc.say) || !res.Since.Equal(tc.since) {
				t.Errorf("got %q since %s, want %q since %s", res.Message, res.Since, tc.say, tc.since)
			}
			if got := w.server.count(askNode); got != 0 {
				t.Errorf("the node was read %d times, though nothing was to be confirmed", got)
			}
		})
	}
}

// TestSecondLook: a match is believed at first sight only from a kubelet that says which generation its status speaks of, in a pod
// that was just read.
func TestSecondLook(t *testing.T) {
	proposed := resizeField("Proposed")
	for _, tc := range []struct {
		name, kubelet string
		cached        bool
		change        []change
		atOnce        bool
		warns         string
	}{
		{name: "1.37", kubelet: "v1.37.2", change: []change{observed}, atOnce: true},
		{name: "1.37 from a cache", kubelet: "v1.37.2", cached: true, change: []change{observed}},
		{name: "1.34", kubelet: "v1.34.0-eks-1", change: []change{observed}, atOnce: true},
		{name: "1.34 behind an API server that drops observedGeneration", kubelet: "v1.34.0"},
		{name: "1.33", kubelet: "v1.33.13"},
		{name: "1.33 with observedGeneration", kubelet: "v1.33.13", change: []change{observed}},
		{name: "1.32", kubelet: "v1.32.3+k3s1"},
		{name: "1.31 leaves Proposed", kubelet: "v1.31.14", change: []change{proposed}},
		{name: "version not understood", kubelet: "unknown", change: []change{observed}},
		{name: "node unreadable", change: []change{observed}, warns: `node "n1" cannot be read`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := watchWith(t, &apiServer{kubelet: tc.kubelet}, resize.InPlaceOptions{LivePods: !tc.cached})
			pod := newPod(tc.change...)
			if tc.atOnce {
				w.expect(t, pod, resize.Resources{}, resize.StateDone, resize.ReasonConfirmed)
				return
			}
			res := w.expect(t, pod, resize.Resources{}, resize.StateInProgress, resize.ReasonLookAgain)
			if got := strings.Join(res.Warnings, "\n"); (tc.warns == "") != (got == "") || !strings.Contains(got, tc.warns) {
				t.Errorf("warnings %q, want %q", got, tc.warns)
			}
			if res.RetryAfter != 2*time.Second {
				t.Errorf("RetryAfter %s, want 2s", res.RetryAfter)
			}
			w.later(1500 * time.Millisecond)
			if res := w.expect(t, pod, resize.Resources{}, resize.StateInProgress, resize.ReasonLookAgain); res.RetryAfter != 500*time.Millisecond {
				t.Errorf("RetryAfter %s, want 500ms", res.RetryAfter)
			}
			w.later(500 * time.Millisecond)
			w.expect(t, pod, resize.Resources{}, resize.StateDone, resize.ReasonConfirmed)
		})
	}
}

// TestProposed is case-20: kubelets of 1.32 take Proposed back when they have seen the change, so until then a match proves nothing.
func TestProposed(t *testing.T) {
	w := watch(t, &apiServer{kubelet: "v1.32.1"})
	w.expect(t, newPod(resizeField("Proposed")), resize.Resources{}, resize.StateInProgress, resize.ReasonWaitingForKubelet)
	w.later(time.Minute)
	w.expect(t, newPod(resizeField("Proposed")), resize.Resources{}, resize.StateInProgress, resize.ReasonWaitingForKubelet)
	w.later(within)
	w.expect(t, newPod(resizeField("Proposed")), resize.Resources{}, resize.StateUnconfirmed, resize.ReasonWaitingForKubelet)
	w.expect(t, newPod(), resize.Resources{}, resize.StateDone, resize.ReasonConfirmed)
}

// TestMismatchSeen: a match that is news needs no second look; one that did not hold does not count.
func TestMismatchSeen(t *testing.T) {
	w := watch(t, &apiServer{kubelet: "v1.32.1", pod: newPod()})
	w.expect(t, newPod(), resize.Resources{}, resize.StateInProgress, resize.ReasonLookAgain)
	w.later(time.Second)
	w.expect(t, newPod(actual("cpu=100m", "cpu=300m")), resize.Resources{}, resize.StateInProgress, resize.ReasonWaitingForKubelet)
	w.later(time.Second)
	w.expect(t, newPod(), resize.Resources{}, resize.StateDone, resize.ReasonConfirmed)
	// Another spec starts anew.
	w.expect(t, newPod(spec("cpu=50m memory=128Mi", "cpu=60m memory=256Mi"), actuated, version("11")), resize.Resources{}, resize.StateInProgress, resize.ReasonLookAgain)
}

// TestUnconfirmed: a status that never comes is never Done (case-47).
func TestUnconfirmed(t *testing.T) {
	t.Run("case-47", func(t *testing.T) {
		w := watch(t, &apiServer{kubelet: "v1.31.1", resize: true, pod: newPod()})
		asked := want("app", "cpu=150m", "")
		w.expect(t, newPod(), asked, resize.StateInProgress, resize.ReasonSent)
		w.later(within - time.Second)
		w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonWaitingForKubelet)
		w.later(time.Second)
		res := w.expect(t, w.server.now(), asked, resize.StateUnconfirmed, resize.ReasonWaitingForKubelet)
		if !strings.Contains(res.Message, "not confirmed after 5m0s") || !res.Since.Equal(start) {
			t.Errorf("got %q since %s", res.Message, res.Since)
		}
		w.expect(t, w.server.report(actuated), asked, resize.StateDone, resize.ReasonConfirmed)
		if got := w.server.count(askResize); got != 1 {
			t.Errorf("%d patches, want 1", got)
		}
	})
	t.Run("kubelet error", func(t *testing.T) {
		w := watch(t, &apiServer{})
		pod := newPod(withCondition(corev1.PodResizeInProgress, corev1.PodReasonError, "EBUSY"))
		w.expect(t, pod, resize.Resources{}, resize.StateInProgress, resize.ReasonKubeletError)
		w.later(within)
		w.expect(t, pod, resize.Resources{}, resize.StateUnconfirmed, resize.ReasonKubeletError)
	})
	t.Run("Deferred does not expire", func(t *testing.T) {
		w := watch(t, &apiServer{})
		pod := newPod(withCondition(corev1.PodResizePending, corev1.PodReasonDeferred, "full"))
		w.expect(t, pod, resize.Resources{}, resize.StateDeferred, resize.ReasonNodeFull)
		w.later(24 * time.Hour)
		w.expect(t, pod, resize.Resources{}, resize.StateDeferred, resize.ReasonNodeFull)
	})
}

// TestBackAndForth is case-48: up and quickly back, while the caller's pod is one event behind.
func TestBackAndForth(t *testing.T) {
	a, b := want("app", "cpu=100m", ""), want("app", "cpu=150m", "")
	for _, tc := range []struct {
		name, kubelet string
		told          change // what the kubelet adds to each of its reports
	}{
		{name: "case-48 1.37", kubelet: "v1.37.2", told: observed},
		{name: "case-48 1.33", kubelet: "v1.33.1", told: func(*corev1.Pod) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := watch(t, &apiServer{kubelet: tc.kubelet, resize: true, pod: newPod(tc.told)})
			old := w.server.now()
			w.expect(t, old, b, resize.StateInProgress, resize.ReasonSent)
			between := w.server.now()
			// The caller still has the pod from before both: its spec says A, but A must be asked for.
			w.expect(t, old, a, resize.StateInProgress, resize.ReasonSent)
			// Nor is the event of the first change a reason to ask again, or proof of anything, however long it stays.
			for range 3 {
				w.later(2 * time.Second)
				w.expect(t, between, a, resize.StateInProgress, resize.ReasonWaitingForKubelet)
				w.expect(t, old, a, resize.StateInProgress, resize.ReasonWaitingForKubelet)
			}
			// The kubelet is still busy with B.
			w.expect(t, w.server.report(allocated("cpu=150m memory=128Mi")), a, resize.StateInProgress, resize.ReasonWaitingForKubelet)
			w.expect(t, w.server.report(actuated, tc.told), a, resize.StateDone, resize.ReasonConfirmed)
			if got := w.server.count(askResize); got != 2 {
				t.Errorf("%d patches, want 2", got)
			}
		})
	}
}

// TestStaleCondition: before 1.34 nothing tells which spec a condition speaks of, so one that was there before the change is given
// time to go.
func TestStaleCondition(t *testing.T) {
	infeasible := withCondition(corev1.PodResizePending, corev1.PodReasonInfeasible, "Node didn't have enough capacity: cpu")
	w := watch(t, &apiServer{kubelet: "v1.33.1", resize: true, pod: newPod(spec("cpu=3 memory=128Mi", ""), infeasible)})
	asked := want("app", "cpu=100m", "")
	w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonSent)
	w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonWaitingForKubelet)
	w.later(5 * time.Second)
	w.expect(t, w.server.now(), asked, resize.StateInfeasible, resize.ReasonNodeTooSmall)
}

// TestRestartNoticed is case-23.
func TestRestartNoticed(t *testing.T) {
	w := watch(t, &apiServer{kubelet: "v1.37.2", resize: true, pod: newPod(observed, restarted)})
	asked := want("app", "cpu=150m", "")
	w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonSent)
	res := w.expect(t, w.server.report(restarted, actuated, observed), asked, resize.StateDone, resize.ReasonConfirmed)
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], `container "app" was restarted since: restartCount 2, was 1`) {
		t.Errorf("warnings %q", res.Warnings)
	}
}

// TestSidecarWithoutReport: a kubelet of 1.32 tells nothing of sidecars, and one of 1.31 not their requests; neither resizes them.
func TestSidecarWithoutReport(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for kubelet, told := range map[string]*corev1.ResourceRequirements{
		"v1.32.13": nil,
		"v1.31.14": {Limits: list("cpu=20m")},
	} {
		pod := newPod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{
				Name: "proxy", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("cpu=10m"), Limits: list("cpu=20m")},
			}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", State: running(), Resources: told}}
		})
		w := watch(t, &apiServer{kubelet: kubelet, resize: true, pod: pod})
		w.expect(t, pod, resize.Resources{}, resize.StateInProgress, resize.ReasonLookAgain)
		w.later(2 * time.Second)
		w.expect(t, pod, resize.Resources{}, resize.StateDone, resize.ReasonConfirmed)
	}
}
