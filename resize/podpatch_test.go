package resize_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/podresize/podresize/resize"
)

// TestPodPatch is a resize where the API server is of 1.27 to 1.31: a dry run of the change, the patch of the pod, and no dry run
// for the next one.
func TestPodPatch(t *testing.T) {
	w := watch(t, &apiServer{kubelet: "v1.29.6", version: "v1.29.6", inPod: true, pod: newPod()})
	asked := want("app", "cpu=150m", "")
	res := w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonSent)
	if res.RetryAfter != 100*time.Millisecond {
		t.Errorf("RetryAfter %s", res.RetryAfter)
	}
	if diff := cmp.Diff([]string{askDiscovery, askVersion, askNode, askTry, askPod}, w.server.taken()); diff != "" {
		t.Errorf("requests of the first: %s", diff)
	}
	w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonWaitingForKubelet)
	w.expect(t, w.server.report(actuated, resizeField("Proposed")), asked, resize.StateDone, resize.ReasonConfirmed)
	w.server.taken()
	w.expect(t, w.server.now(), want("app", "cpu=160m", ""), resize.StateInProgress, resize.ReasonSent)
	if diff := cmp.Diff([]string{askNode, askPod}, w.server.taken()); diff != "" {
		t.Errorf("requests of the second: %s", diff)
	}
	if diff := cmp.Diff(`{"metadata":{"uid":"uid-1"},"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`, w.server.patches[0]); diff != "" {
		t.Error(diff)
	}
}

// TestPodPatchNeedsTheNode is case-21: no API server of 1.27 to 1.31 looks at the node, so what the pod tells of it decides at every
// change, and what the dry run shows, which is newer.
func TestPodPatchNeedsTheNode(t *testing.T) {
	t.Run("at every change", func(t *testing.T) {
		w := watch(t, &apiServer{kubelet: "v1.28.15", inPod: true, pod: newPod()})
		w.expect(t, w.server.now(), want("app", "cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
		w.server.taken()
		res, err := w.resizer.Resize(t.Context(), w.server.report(gateOff), want("app", "cpu=160m", ""))
		if err != nil || res.State != resize.StateRefused || res.Reason != resize.ReasonNoPath || !strings.Contains(res.Message, "restart") {
			t.Errorf("got %s/%s: %s, %v", res.State, res.Reason, res.Message, err)
		}
		res, err = w.resizer.Resize(t.Context(), w.server.report(notRunning), want("app", "cpu=160m", ""))
		if err != nil || res.State != resize.StateDeferred || res.Reason != resize.ReasonNotRunning || res.RetryAfter == 0 {
			t.Errorf("got %s/%s: %s, %v", res.State, res.Reason, res.Message, err)
		}
		if w.server.count(askPod)+w.server.count(askTry) > 0 {
			t.Errorf("asked for %q", w.server.requests)
		}
	})
	t.Run("an old copy", func(t *testing.T) {
		s := &apiServer{kubelet: "v1.28.15", inPod: true, pod: newPod()}
		old := s.now()
		s.report(gateOff)
		res, err := resize.NewInPlace(serve(t, s), resize.InPlaceOptions{}).Resize(t.Context(), old, want("app", "cpu=150m", ""))
		if err != nil || res.State != resize.StateRefused || res.Reason != resize.ReasonNoPath || s.count(askPod) > 0 {
			t.Errorf("got %s/%s: %s, %v after %q", res.State, res.Reason, res.Message, err, s.requests)
		}
	})
}

// TestDryRunAnswers: only an answer that is understood says what the API server takes.
func TestDryRunAnswers(t *testing.T) {
	fixed := "pod updates may not change fields other than `spec.containers[*].image`,`spec.containers[*].resources` (for CPU/memory only)"
	for _, tc := range []struct {
		name    string
		answer  http.HandlerFunc
		allowed bool
		state   resize.State // empty: an error
		reason  resize.Reason
		known   bool // what the API server takes is known then
		say     string
	}{
		{name: "case-16 gate off", answer: resourcesFixed, state: resize.StateRefused, reason: resize.ReasonNoPath, known: true, say: "InPlacePodVerticalScaling"},
		{name: "gate on, another field", answer: refusal(422, metav1.StatusReasonInvalid, fixed, aboutPod()), state: resize.StateInfeasible, reason: resize.ReasonRejected, say: "may not change"},
		{name: "QoS", answer: refusal(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: metadata: Invalid value: "Guaranteed": Pod QoS is immutable`, aboutPod()), state: resize.StateInfeasible, reason: resize.ReasonQOSChange},
		{name: "quota", answer: refusal(403, metav1.StatusReasonForbidden, "exceeded quota: q", aboutPod()), state: resize.StateDeferred, reason: resize.ReasonQuotaExceeded},
		{name: "webhook denies", answer: refusal(403, metav1.StatusReasonForbidden, `admission webhook "w.example" denied the request: no`, nil), allowed: true, reason: resize.ReasonUnknown, say: "w.example"},
		{name: "webhook knows no dry run", answer: refusal(400, metav1.StatusReasonBadRequest, `admission webhook "w.example" does not support dry run`, nil), reason: resize.ReasonUnknown, say: "w.example"},
		{name: "case-24 RBAC", answer: refusal(403, metav1.StatusReasonForbidden, `pods "web" is forbidden: User "u" cannot patch resource "pods"`, aboutPod()), reason: resize.ReasonForbidden, say: `resources: ["pods"], verbs: ["patch"]`},
		{name: "pod gone", answer: refusal(404, metav1.StatusReasonNotFound, `pods "web" not found`, aboutPod()), reason: resize.ReasonPodNotFound},
		{name: "503", answer: refusal(503, metav1.StatusReasonServiceUnavailable, "starting", nil), reason: resize.ReasonUnavailable},
		{name: "of the future", answer: refusal(418, "Teapot", "short and stout", nil), reason: resize.ReasonUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &apiServer{kubelet: "v1.29.6", inPod: true, pod: newPod(), allowed: tc.allowed, refuseTo: map[string]http.HandlerFunc{askTry: tc.answer}}
			other := &otherWay{}
			adapter := resize.NewAdapter(serve(t, s), other, resize.InPlaceOptions{})
			res, err := adapter.Resize(t.Context(), s.now(), want("app", "cpu=150m", ""))
			if tc.state == "" {
				retryable := tc.reason != resize.ReasonForbidden && tc.reason != resize.ReasonPodNotFound
				checkError(t, err, tc.reason, retryable, 0, tc.say)
			} else {
				checkRefusal(t, res, err, tc.state, tc.reason, tc.say)
			}
			if s.count(askPod) > 0 || len(other.asked) > 0 {
				t.Errorf("sent or fell back after %q", s.requests)
			}
			// What proves nothing is asked again, for another change.
			s.set(func() { s.refuseTo = nil })
			_, _ = adapter.Resize(t.Context(), s.now(), want("app", "cpu=160m", ""))
			if tries := s.count(askTry); (tries == 1) != tc.known {
				t.Errorf("%d dry runs", tries)
			}
		})
	}
}

// TestUpgrade is an API server that changes its version under a running library: at most an error that is worth another try, and
// never a refusal (kubeblocks#8999).
func TestUpgrade(t *testing.T) {
	older := func(s *apiServer) { s.resize, s.inPod, s.version = false, true, "v1.31.14" }
	newer := func(s *apiServer) { s.resize, s.inPod, s.version = true, false, "v1.32.13" }
	for _, tc := range []struct {
		name     string
		from, to func(*apiServer)
		ask      string
		errs     int
	}{
		{name: "case-17 1.31 to 1.32", from: older, to: newer, ask: askResize, errs: 1},
		{name: "1.32 to 1.31", from: newer, to: older, ask: askPod, errs: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &apiServer{kubelet: "v1.31.14", pod: newPod()}
			tc.from(s)
			r := resize.NewInPlace(serve(t, s), resize.InPlaceOptions{})
			if res, err := r.Resize(t.Context(), s.now(), want("app", "cpu=150m", "")); err != nil || res.Reason != resize.ReasonSent {
				t.Fatalf("got %s/%s, %v", res.State, res.Reason, err)
			}
			s.set(func() { tc.to(s) })
			s.taken()
			for range tc.errs {
				_, err := r.Resize(t.Context(), s.now(), want("app", "cpu=160m", ""))
				checkError(t, err, resize.ReasonUnknown, true, 0, "has changed")
			}
			if res, err := r.Resize(t.Context(), s.now(), want("app", "cpu=160m", "")); err != nil || res.Reason != resize.ReasonSent || s.count(tc.ask) == 0 {
				t.Errorf("got %s/%s, %v after %q", res.State, res.Reason, err, s.requests)
			}
		})
	}
	t.Run("case-17 before the first patch", func(t *testing.T) {
		s := &apiServer{kubelet: "v1.31.14", pod: newPod()}
		older(s)
		r := resize.NewInPlace(serve(t, s), resize.InPlaceOptions{})
		if f, err := r.Plan(t.Context(), s.now(), resize.Resources{}); err != nil || len(f.Findings) != 1 { // an access review says no
			t.Fatal(f, err)
		}
		s.set(func() { newer(s) })
		if res, err := r.Resize(t.Context(), s.now(), want("app", "cpu=160m", "")); err != nil || res.Reason != resize.ReasonSent || s.count(askResize) != 1 {
			t.Errorf("got %s/%s: %s, %v after %q", res.State, res.Reason, res.Message, err, s.requests)
		}
	})
}

// TestTouches: kubelets of 1.27 to 1.31 are made to report, a bounded number of times, and no others.
func TestTouches(t *testing.T) {
	const minutes = 3 * time.Minute
	for _, tc := range []struct {
		name, kubelet string
		resize        bool // pods/resize
		opts          resize.InPlaceOptions
		drops         bool // the API server drops allocatedResources
		touches       int
	}{
		{name: "1.31 behind 1.32", kubelet: "v1.31.14", resize: true, drops: true},
		{name: "1.27", kubelet: "v1.27.16", touches: 5},
		{name: "1.31", kubelet: "v1.31.14", touches: 5},
		{name: "1.31 behind 1.33", kubelet: "v1.31.14", resize: true, touches: 5},
		{name: "1.32", kubelet: "v1.32.13", resize: true},
		{name: "off", kubelet: "v1.31.14", opts: resize.InPlaceOptions{NoTouch: true}},
		{name: "node unreadable", kubelet: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &apiServer{kubelet: tc.kubelet, resize: tc.resize, inPod: !tc.resize, pod: newPod()}
			if tc.drops {
				s.mutate = func(p *corev1.Pod) { p.Status.ContainerStatuses[0].AllocatedResources = nil }
			}
			w := watchWith(t, s, tc.opts)
			asked := want("app", "cpu=150m", "")
			res := w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonSent)
			for began := w.clock.Now(); w.clock.Now().Sub(began) < minutes; w.later(res.RetryAfter) {
				res = w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonWaitingForKubelet)
			}
			if got := w.server.count(askTouch); got != tc.touches {
				t.Errorf("touched %d times, want %d", got, tc.touches)
			}
			w.expect(t, w.server.report(actuated), asked, resize.StateDone, resize.ReasonConfirmed)
		})
	}
}

// TestTouchTimes: not before the kubelet has set the cgroups, not again before its report is due, not once it has reported, and with
// nothing but the annotation.
func TestTouchTimes(t *testing.T) {
	w := watch(t, &apiServer{kubelet: "v1.31.14", inPod: true, pod: newPod()})
	asked := want("app", "cpu=150m", "")
	w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonSent)
	for _, step := range []struct {
		later, retryAfter time.Duration
		touches           int
	}{
		{0, 100 * time.Millisecond, 0},
		{60 * time.Millisecond, 40 * time.Millisecond, 0},
		{40 * time.Millisecond, time.Second, 1},
		{300 * time.Millisecond, 800 * time.Millisecond, 1},
		{800 * time.Millisecond, time.Second, 2},
	} {
		w.later(step.later)
		res := w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonWaitingForKubelet)
		if got := w.server.count(askTouch); res.RetryAfter != step.retryAfter || got != step.touches {
			t.Errorf("%s later: RetryAfter %s and %d touches, want %s and %d", step.later, res.RetryAfter, got, step.retryAfter, step.touches)
		}
	}
	w.expect(t, w.server.report(actuated), asked, resize.StateDone, resize.ReasonConfirmed)
	w.later(time.Minute)
	w.expect(t, w.server.now(), asked, resize.StateDone, resize.ReasonConfirmed)
	if got := w.server.count(askTouch); got != 2 {
		t.Errorf("touched %d times", got)
	}
	if got, want := w.server.patches[1], `{"metadata":{"annotations":{"podresize.dev/touched":"2025-06-01T12:00:00.1Z"},"uid":"uid-1"}}`; got != want {
		t.Errorf("touched with %s, want %s", got, want)
	}
}

// TestTouchedByOthers: two processes do not touch a pod at the same time, and one that began later touches too.
func TestTouchedByOthers(t *testing.T) {
	s := &apiServer{kubelet: "v1.30.14", inPod: true, pod: newPod()}
	clock := clocktesting.NewFakePassiveClock(start)
	asked := want("app", "cpu=150m", "")
	one, other := resize.NewInPlace(serve(t, s), resize.InPlaceOptions{Clock: clock}), resize.NewInPlace(serve(t, s), resize.InPlaceOptions{Clock: clock})
	for range 40 {
		for _, r := range []*resize.InPlace{one, other} {
			if _, err := r.Resize(t.Context(), s.now(), asked); err != nil {
				t.Fatal(err)
			}
		}
		clock.SetTime(clock.Now().Add(50 * time.Millisecond))
	}
	if got := s.count(askTouch); got != 2 { // at 100 ms and at 1.2 s
		t.Errorf("touched %d times in 2 s", got)
	}
	if got := s.count(askPod); got != 1 {
		t.Errorf("%d patches", got)
	}
}

// TestUntouchable: without the right to touch pods it only takes longer, and that is said once.
func TestUntouchable(t *testing.T) {
	w := watch(t, &apiServer{kubelet: "v1.31.14", resize: true, pod: newPod(), refuseTo: map[string]http.HandlerFunc{
		askTouch: refusal(403, metav1.StatusReasonForbidden, `pods "web" is forbidden: User "u" cannot patch resource "pods"`, aboutPod()),
	}})
	asked := want("app", "cpu=150m", "")
	w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonSent)
	var warnings []string
	for range 20 {
		w.later(150 * time.Millisecond)
		warnings = append(warnings, w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonWaitingForKubelet).Warnings...)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], `resources: ["pods"], verbs: ["patch"]`) || w.server.count(askTouch) != 1 {
		t.Errorf("warnings %q after %d touches", warnings, w.server.count(askTouch))
	}
	w.expect(t, w.server.report(actuated), asked, resize.StateDone, resize.ReasonConfirmed)
}

// TestNeverActuated: what a kubelet of 1.27 to 1.31 would only reserve is not asked for, and said where somebody else has.
func TestNeverActuated(t *testing.T) {
	free := sidekick("cpu=10m memory=16Mi", "memory=32Mi") // no limits.cpu
	requestsOnly := spec("cpu=100m memory=128Mi", "")
	for _, tc := range []struct {
		name    string
		kubelet string
		change  []change
		want    resize.Resources
		say     string // empty: it can be done
	}{
		{name: "a container without limits", change: []change{requestsOnly, actuated}, want: want("app", "cpu=150m", ""), say: `"app" of the pod has no limits.cpu`},
		{name: "beside one", change: []change{free}, want: want("app", "cpu=150m", ""), say: `"log" of the pod has no limits.cpu`},
		{name: "beside an init container without limits", change: []change{initContainer("", false)}, want: want("app", "", "memory=1Gi"), say: `"setup" of the pod has no limits.memory`},
		{name: "memory beside one without a limit of cpu", change: []change{free}, want: want("app", "", "memory=1Gi")},
		{name: "case-46 a memory request alone", change: []change{requestsOnly, actuated}, want: want("app", "memory=256Mi", "")},
		{name: "a new request", change: []change{spec("memory=128Mi", "memory=256Mi"), actuated}, want: want("app", "cpu=10m", "cpu=20m"), say: "requests.cpu was not set"},
		{name: "a newer kubelet", kubelet: "v1.32.0", change: []change{requestsOnly, actuated}, want: want("app", "cpu=150m", "")},
		{name: "case-38 a sidecar on an older node", kubelet: "v1.32.0", change: []change{initContainer("cpu=2", true), sidecar}, want: want("setup", "cpu=1500m", ""), say: "sidecar"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kubelet := tc.kubelet
			if kubelet == "" {
				kubelet = "v1.31.14"
			}
			s := &apiServer{kubelet: kubelet, resize: true, version: "v1.33.1", pod: newPod(tc.change...)}
			w := watch(t, s)
			if tc.say == "" {
				w.expect(t, s.now(), tc.want, resize.StateInProgress, resize.ReasonSent)
				return
			}
			res := w.expect(t, s.now(), tc.want, resize.StateInfeasible, resize.ReasonUnsupportedContainer)
			if !strings.Contains(res.Message, tc.say) || s.count(askResize) > 0 {
				t.Errorf("message %q after %d patches", res.Message, s.count(askResize))
			}
		})
	}
	t.Run("asked for by somebody else", func(t *testing.T) {
		s := &apiServer{kubelet: "v1.31.14", pod: newPod(requestsOnly, actuated, spec("cpu=150m memory=128Mi", ""), allocated("cpu=150m memory=128Mi"), resizeField(corev1.PodResizeStatusInProgress))}
		w := watch(t, s)
		w.expect(t, s.now(), resize.Resources{}, resize.StateInProgress, resize.ReasonWaitingForKubelet)
		w.later(time.Second)
		for range 2 {
			w.expect(t, s.now(), resize.Resources{}, resize.StateInfeasible, resize.ReasonUnsupportedContainer)
		}
		if diff := cmp.Diff([]string{askNode}, s.taken()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRawComparison: kubelets of 1.27 to 1.31 stay InProgress for ever where the kernel rounds what spec says; the evidence decides.
func TestRawComparison(t *testing.T) {
	inProgress := resizeField(corev1.PodResizeStatusInProgress)
	rounded := func(change ...change) *corev1.Pod { return newPod(append(change, inProgress)...) }
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		done bool
	}{
		{"case-42", rounded(spec("cpu=2m memory=128Mi", "cpu=5m memory=256Mi"), actuated, actual("cpu=2m memory=128Mi", "cpu=10m memory=256Mi")), true},
		{"case-43", rounded(spec("cpu=1m memory=128Mi", "cpu=1 memory=256Mi"), actuated, actual("cpu=2m memory=128Mi", "cpu=1 memory=256Mi")), true},
		{"case-46", rounded(spec("cpu=100m memory=200Mi", "memory=1Gi"), actuated, actual("cpu=100m memory=128Mi", "memory=1Gi")), true},
		{"case-48 about another spec", rounded(), false},
		{"1.32, which does not tell what is reserved", rounded(spec("cpu=2m memory=128Mi", "cpu=5m memory=256Mi"), actuated, actual("cpu=2m memory=128Mi", "cpu=10m memory=256Mi"), func(p *corev1.Pod) { p.Status.ContainerStatuses[0].AllocatedResources = nil }), false},
		{"not reserved", rounded(spec("cpu=2m memory=128Mi", "cpu=5m memory=256Mi"), actuated, actual("cpu=2m memory=128Mi", "cpu=10m memory=256Mi"), allocated("cpu=2m memory=64Mi")), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := watch(t, &apiServer{kubelet: "v1.31.14"})
			reason := resize.ReasonWaitingForKubelet
			if tc.done {
				reason = resize.ReasonLookAgain
			}
			w.expect(t, tc.pod, resize.Resources{}, resize.StateInProgress, reason)
			w.later(2 * time.Second)
			if tc.done {
				w.expect(t, tc.pod, resize.Resources{}, resize.StateDone, resize.ReasonConfirmed)
			} else {
				w.expect(t, tc.pod, resize.Resources{}, resize.StateInProgress, resize.ReasonWaitingForKubelet)
			}
		})
	}
}

// TestPlanPodPatch: a plan finds out too what the API server takes, without changing anything, and which rights are missing.
func TestPlanPodPatch(t *testing.T) {
	asked := want("app", "cpu=150m", "")
	for _, tc := range []struct {
		name     string
		server   *apiServer
		requests []string
		findings []resize.Reason
		warns    string
	}{
		{
			name: "1.31", server: &apiServer{kubelet: "v1.31.14", inPod: true, allowed: true, pod: newPod()},
			requests: []string{askNode, askDiscovery, askVersion, askTry, askReview},
		},
		{
			name: "gate off", server: &apiServer{kubelet: "v1.31.14", allowed: true, pod: newPod()},
			requests: []string{askNode, askDiscovery, askVersion, askTry, askDiscovery, askVersion, askReview}, findings: []resize.Reason{resize.ReasonNoPath},
		},
		{
			name: "node gate off", server: &apiServer{kubelet: "v1.31.14", inPod: true, allowed: true, pod: newPod(gateOff)},
			requests: []string{askNode, askDiscovery, askVersion, askReview}, findings: []resize.Reason{resize.ReasonNoPath},
		},
		{
			name: "1.31 behind 1.33, no rights", server: &apiServer{kubelet: "v1.31.14", resize: true, pod: newPod()},
			requests: []string{askNode, askDiscovery, askVersion, askReview, askReview}, findings: []resize.Reason{resize.ReasonForbidden},
			warns: `resources: ["pods"], verbs: ["patch"]`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := resize.NewInPlace(serve(t, tc.server), resize.InPlaceOptions{})
			f, err := r.Plan(t.Context(), tc.server.now(), asked)
			if err != nil {
				t.Fatal(err)
			}
			var reasons []resize.Reason
			for _, finding := range f.Findings {
				reasons = append(reasons, finding.Reason)
			}
			if diff := cmp.Diff(tc.findings, reasons); diff != "" {
				t.Errorf("findings: %s", diff)
			}
			if got := strings.Join(f.Warnings, "\n"); (tc.warns == "") != (got == "") || !strings.Contains(got, tc.warns) {
				t.Errorf("warnings %q", got)
			}
			if diff := cmp.Diff(tc.requests, tc.server.taken()); diff != "" {
				t.Errorf("requests: %s", diff)
			}
		})
	}
}
