package resize_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// gate says what the test says.
type gate struct {
	resize.Decision
	err   error
	asked []resize.Path
}

func (g *gate) Decide(_ context.Context, _ *corev1.Pod, path resize.Path) (resize.Decision, error) {
	g.asked = append(g.asked, path)
	return g.Decision, g.err
}

func (g *gate) is(mode resize.Mode) { g.Decision = resize.Decision{Mode: mode, Message: "by the test"} }

// gated is an Adapter with a gate before an API server, or a fallback.
type gated struct {
	*apiServer
	gate     gate
	fallback *gatedFallback
	adapter  *resize.Adapter
	dryRuns  int
}

func newGated(t *testing.T, pod *corev1.Pod) *gated {
	t.Helper()
	g := &gated{apiServer: &apiServer{resize: true, kubelet: "v1.35.0", pod: pod}, fallback: &gatedFallback{}}
	server := httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	g.adapter = resize.NewAdapter(client, g.fallback, resize.InPlaceOptions{LivePods: true}).Gated(&g.gate)
	return g
}

// serve answers dry runs as a real server does: with what would be, and without any change.
func (g *gated) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("dryRun") != metav1.DryRunAll {
		g.ServeHTTP(w, r)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dryRuns++
	if g.refuse != nil {
		g.refuse(w, r)
		return
	}
	patch, _ := io.ReadAll(r.Body)
	before, _ := json.Marshal(g.pod)
	after, _ := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	patched := &corev1.Pod{}
	_ = json.Unmarshal(after, patched)
	reply(w, http.StatusOK, patched)
}

// ask resizes the pod as it is now to so much CPU, and checks the answer.
func (g *gated) ask(t *testing.T, cpu string, state resize.State, reason resize.Reason) resize.Result {
	t.Helper()
	res, err := g.adapter.Resize(t.Context(), g.now(), want("app", "cpu="+cpu, ""))
	if err != nil {
		t.Fatal(err)
	}
	if res.State != state || res.Reason != reason {
		t.Fatalf("%s: got %s/%s: %s; want %s/%s", cpu, res.State, res.Reason, res.Message, state, reason)
	}
	return res
}

func (g *gated) sentTimes(t *testing.T, want int) {
	t.Helper()
	if got := g.count(askResize); got != want {
		t.Fatalf("sent %d times, want %d: %q", got, want, g.requests)
	}
}

// TestGateOff: what was sent goes on and is judged to its end, nothing new is sent, and what was replaced may be asked for, once.
func TestGateOff(t *testing.T) {
	g := newGated(t, newPod(observed))
	g.gate.is(resize.ModeOn)
	g.ask(t, "150m", resize.StateInProgress, resize.ReasonSent)
	g.gate.is(resize.ModeOff)
	g.ask(t, "150m", resize.StateInProgress, resize.ReasonWaitingForKubelet)
	res := g.ask(t, "160m", resize.StateRefused, resize.ReasonGateOff)
	if res.Message != "by the test" || res.RetryAfter == 0 || res.Path != resize.PathInPlace || len(res.Containers) != 1 ||
		!slices.ContainsFunc(res.Warnings, func(w string) bool {
			return strings.HasPrefix(w, "what was asked for before is InProgress (WaitingForKubelet)")
		}) {
		t.Errorf("got %+v", res)
	}
	if previous := res.Previous.Containers["app"]; previous.Requests.Cpu().String() != "100m" {
		t.Errorf("the way back is %v", previous)
	}
	g.report(actuated, observed)
	g.ask(t, "150m", resize.StateDone, resize.ReasonConfirmed)
	g.sentTimes(t, 1)

	g.ask(t, "100m", resize.StateInProgress, resize.ReasonSent)
	g.report(actuated, observed)
	g.ask(t, "100m", resize.StateDone, resize.ReasonConfirmed)
	g.ask(t, "150m", resize.StateRefused, resize.ReasonGateOff) // the way back is no way on
	g.sentTimes(t, 2)
	for _, path := range g.gate.asked {
		if path != resize.PathInPlace {
			t.Errorf("asked about %s", path)
		}
	}
	g.gate.is(resize.ModeOn)
	g.ask(t, "150m", resize.StateInProgress, resize.ReasonSent)
	g.sentTimes(t, 3)
}

// TestGateOffInAnotherProcess: what the node still runs with may be asked for, whoever has sent the change.
func TestGateOffInAnotherProcess(t *testing.T) {
	g := newGated(t, newPod(allocated("cpu=90m memory=128Mi"), actual("cpu=90m memory=128Mi", "cpu=200m memory=256Mi"), observed))
	g.ask(t, "100m", resize.StateInProgress, resize.ReasonWaitingForKubelet) // no mode is as Off
	g.ask(t, "95m", resize.StateRefused, resize.ReasonGateOff)
	g.sentTimes(t, 0)
	g.ask(t, "90m", resize.StateInProgress, resize.ReasonSent)
}

// TestGateObserves: one dry run for each pod and want, nothing changes, and the result says what would have been.
func TestGateObserves(t *testing.T) {
	g := newGated(t, newPod(observed))
	g.gate.is(resize.ModeObserve)
	for range 3 {
		res := g.ask(t, "150m", resize.StateRefused, resize.ReasonObserved)
		if res.WouldBe == nil || res.WouldBe.State != resize.StateInProgress || res.WouldBe.Reason != resize.ReasonSent ||
			res.Message != "by the test; tried by a dry run, it would be InProgress (Sent): the API server takes the change" {
			t.Errorf("got %+v: %s", res.WouldBe, res.Message)
		}
	}
	tried := func(times int) {
		t.Helper()
		if g.dryRuns != times || g.count(askResize) > 0 {
			t.Errorf("%d dry runs, want %d; %q", g.dryRuns, times, g.requests)
		}
	}
	tried(1)
	g.ask(t, "160m", resize.StateRefused, resize.ReasonObserved)
	tried(2)
	if res := g.ask(t, "300m", resize.StateRefused, resize.ReasonObserved); res.WouldBe.Reason != resize.ReasonLimitBelowRequest {
		t.Errorf("got %+v", res.WouldBe)
	}
	tried(2) // the plan stops that one
	g.refuse = refusal(http.StatusForbidden, metav1.StatusReasonForbidden, `pods "web" is forbidden: exceeded quota: q`, aboutPod())
	if res := g.ask(t, "170m", resize.StateRefused, resize.ReasonObserved); res.WouldBe.State != resize.StateDeferred || res.WouldBe.Reason != resize.ReasonQuotaExceeded {
		t.Errorf("got %+v", res.WouldBe)
	}
	tried(3)
	g.refuse = refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "starting", nil)
	if _, err := g.adapter.Resize(t.Context(), g.now(), want("app", "cpu=180m", "")); err == nil {
		t.Error("no error")
	}
	g.refuse = nil
	g.ask(t, "180m", resize.StateRefused, resize.ReasonObserved)
	tried(5) // a failure to ask is no outcome
	g.ask(t, "100m", resize.StateDone, resize.ReasonConfirmed)
	if cpu := g.now().Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "100m" {
		t.Errorf("spec has %s", cpu)
	}
}

// TestGateCannotTell: what was sent is judged, nothing is sent.
func TestGateCannotTell(t *testing.T) {
	g := newGated(t, newPod(observed))
	g.gate.err = errors.New("no node")
	_, err := g.adapter.Resize(t.Context(), g.now(), want("app", "cpu=150m", ""))
	var failure *resize.Error
	if !errors.As(err, &failure) || !failure.Retryable || failure.Error() != `asking the gate about pod "shop/web": no node` {
		t.Errorf("got %v", err)
	}
	g.ask(t, "100m", resize.StateDone, resize.ReasonConfirmed)
	g.sentTimes(t, 0)
}

// TestGatePlans: the plan is made all the same, and says that the gate is in the way.
func TestGatePlans(t *testing.T) {
	g := newGated(t, newPod(observed))
	g.allowed = true
	for _, tc := range []struct {
		mode   resize.Mode
		err    error
		reason resize.Reason
	}{
		{mode: resize.ModeOn}, {mode: resize.ModeOff, reason: resize.ReasonGateOff}, {mode: resize.ModeObserve, reason: resize.ReasonObserved}, {err: errors.New("no")},
	} {
		g.gate.is(tc.mode)
		g.gate.err = tc.err
		f, err := g.adapter.Plan(t.Context(), g.now(), want("app", "cpu=150m", ""))
		if err != nil {
			t.Fatal(err)
		}
		stops := resize.Stops(f.Findings)
		if len(f.Changes.Containers) != 1 || (tc.reason == "") != (len(stops) == 0) || len(stops) > 0 && stops[0].Reason != tc.reason || (tc.err != nil) != (len(f.Warnings) > 0) {
			t.Errorf("%s: got %+v", tc.mode, f)
		}
	}
	g.sentTimes(t, 0)
}

// gatedFallback holds what it was asked for.
type gatedFallback struct {
	held    resize.Resources
	object  bool // it has a hold on the pod
	written int
	tried   int
	stopped int
}

func (f *gatedFallback) Resize(_ context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
	previous := resize.Target(pod, f.held)
	res := resize.Result{Path: resize.PathCRI, State: resize.StateDone, Reason: resize.ReasonConfirmed, Previous: &previous}
	if len(want.Containers) > 0 {
		f.held, f.object = resize.Target(pod, want), true
		f.written++
		res.State, res.Reason = resize.StateInProgress, resize.ReasonSent
	} else if !f.object {
		res.Reason = resize.ReasonNothingAsked
	}
	res.Containers = []resize.ContainerEvidence{{Name: "app", Desired: resize.Target(pod, f.held).Containers["app"]}}
	return res, nil
}

func (f *gatedFallback) DryRun(context.Context, *corev1.Pod, resize.Resources) (resize.Result, error) {
	f.tried++
	return resize.Result{Path: resize.PathCRI, State: resize.StateDeferred, Reason: resize.ReasonAgentNotReady}, nil
}

func (f *gatedFallback) StopEnforcing(context.Context, *corev1.Pod) error {
	f.stopped++
	return nil
}

func (f *gatedFallback) HandOver(context.Context, *corev1.Pod) (*resize.Resources, bool, error) {
	if !f.object {
		return nil, true, nil
	}
	return &f.held, true, nil
}

func (f *gatedFallback) HandedOver(context.Context, *corev1.Pod) error {
	f.object = false
	return nil
}

// TestGateCRI: Off and Observe mean the same on the CRI path. The kill switch stops the enforcement too, and then nothing is sent at
// all.
func TestGateCRI(t *testing.T) {
	g := newGated(t, newPod(gateOff))
	writes := func(written, tried, stopped int) {
		t.Helper()
		if f := g.fallback; f.written != written || f.tried != tried || f.stopped != stopped || g.count(askResize) > 0 {
			t.Fatalf("%d written, %d tried, %d stopped; want %d, %d, %d", f.written, f.tried, f.stopped, written, tried, stopped)
		}
	}
	g.gate.is(resize.ModeOff)
	g.ask(t, "150m", resize.StateRefused, resize.ReasonGateOff)
	g.gate.is(resize.ModeObserve)
	for range 2 {
		if res := g.ask(t, "150m", resize.StateRefused, resize.ReasonObserved); res.Path != resize.PathCRI || res.WouldBe.Reason != resize.ReasonAgentNotReady {
			t.Errorf("got %+v", res)
		}
	}
	writes(0, 1, 0)
	g.gate.is(resize.ModeOn)
	g.ask(t, "150m", resize.StateInProgress, resize.ReasonSent)
	g.gate.is(resize.ModeOff)
	g.ask(t, "150m", resize.StateDone, resize.ReasonConfirmed)
	g.ask(t, "160m", resize.StateRefused, resize.ReasonGateOff)
	writes(1, 1, 0)
	g.gate.StopEnforcing = true
	g.ask(t, "150m", resize.StateDone, resize.ReasonConfirmed)
	g.ask(t, "100m", resize.StateRefused, resize.ReasonGateOff)
	writes(1, 1, 2)
	g.gate.is(resize.ModeOff)
	g.ask(t, "100m", resize.StateInProgress, resize.ReasonSent) // what spec says
	writes(2, 1, 2)
	for _, path := range g.gate.asked {
		if path != resize.PathCRI {
			t.Errorf("asked about %s", path)
		}
	}
}

// TestGateOffBeforeHandOver: a pod whose node has come to resize in place stays with the fallback as long as the gate is Off.
func TestGateOffBeforeHandOver(t *testing.T) {
	g := newGated(t, newPod(observed))
	g.fallback.held, g.fallback.object = resize.Target(newPod(), want("app", "cpu=170m", "")), true
	g.gate.is(resize.ModeOff)
	if res := g.ask(t, "170m", resize.StateDone, resize.ReasonConfirmed); res.Path != resize.PathCRI {
		t.Errorf("judged by %q", res.Path)
	}
	g.ask(t, "180m", resize.StateRefused, resize.ReasonGateOff)
	g.sentTimes(t, 0)
	g.gate.is(resize.ModeOn)
	g.ask(t, "180m", resize.StateInProgress, resize.ReasonSent)
	g.report(actuated, observed)
	g.ask(t, "180m", resize.StateDone, resize.ReasonConfirmed)
	if g.fallback.object || g.fallback.written > 0 {
		t.Error("not handed over")
	}
}

// TestRequestsGate proves what docs/embedding.md says of the CRI path with a gate.
func TestRequestsGate(t *testing.T) {
	pod := newPod(gateOff, func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBurstable })
	s := &objectServer{objects: map[string]client.Object{pathNode: node("v1.26.15"), pathLease: lease(), pathPod: pod}}
	g := &gate{}
	adapter := withFallback(t, s, false).Gated(g)
	step := func(what string, state resize.State, requests ...string) {
		t.Helper()
		res, err := adapter.Resize(t.Context(), pod, want("app", "cpu=150m", ""))
		if err != nil || res.State != state {
			t.Errorf("%s: got %s/%s: %s, %v; want %s", what, res.State, res.Reason, res.Message, err, state)
		}
		if diff := cmp.Diff(requests, s.taken(), cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	const read = "GET " + pathObject
	checks := []string{"GET " + pathNode, "GET " + pathLease, "GET " + pathPod, "GET " + pathPods, "GET " + pathHeld}
	step("Off", resize.StateRefused, read)
	g.is(resize.ModeObserve)
	step("observe", resize.StateRefused, append(checks, read, read, "POST "+pathObjects)...)
	step("observe again", resize.StateRefused, read)
	g.is(resize.ModeOn)
	step("On", resize.StateInProgress, append(checks, read, "POST "+pathObjects)...)
	s.apply()
	g.is(resize.ModeOff)
	step("Off and Done", resize.StateDone, read)
	g.StopEnforcing = true
	step("kill switch", resize.StateUnconfirmed, // this server keeps no times
		read, "PUT "+pathObject, read, "GET "+pathLease)
	step("kill switch again", resize.StateUnconfirmed, read, read, "GET "+pathLease)
	if object, ok := s.objects[pathObject].(*v1alpha1.CRIResize); !ok || *object.Spec.Enforce {
		t.Error("still enforced")
	}
}

// TestGateObservesPodPatch: on an API server of 1.27 to 1.31 finding out whether it takes the change is the dry run.
func TestGateObservesPodPatch(t *testing.T) {
	g := newGated(t, newPod(observed))
	g.resize, g.inPod = false, true
	g.gate.is(resize.ModeObserve)
	for i, cpu := range []string{"150m", "150m", "160m", "160m"} {
		if res := g.ask(t, cpu, resize.StateRefused, resize.ReasonObserved); res.WouldBe.Reason != resize.ReasonSent {
			t.Errorf("got %+v", res.WouldBe)
		}
		if want := i/2 + 1; g.dryRuns != want || g.count(askPod) > 0 {
			t.Errorf("%d dry runs, want %d; %q", g.dryRuns, want, g.requests)
		}
	}
	g.refuse = refusal(http.StatusForbidden, metav1.StatusReasonForbidden, `pods "web" is forbidden: exceeded quota: q`, aboutPod())
	if res := g.ask(t, "170m", resize.StateRefused, resize.ReasonObserved); res.WouldBe.Reason != resize.ReasonQuotaExceeded {
		t.Errorf("got %+v", res.WouldBe)
	}
}
