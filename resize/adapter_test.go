package resize_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/podresize/podresize/resize"
)

// otherWay is a fallback that notes what it was asked for.
type otherWay struct{ asked []resize.Resources }

func (o *otherWay) Resize(_ context.Context, _ *corev1.Pod, want resize.Resources) (resize.Result, error) {
	o.asked = append(o.asked, want)
	return resize.Result{Path: resize.PathCRI, State: resize.StateInProgress, Reason: resize.ReasonSent, RetryAfter: time.Second}, nil
}

// TestAdapterChoice: what discovery says times what the pod tells of its node times whether there is a fallback.
func TestAdapterChoice(t *testing.T) {
	const inPlace, cri, none = resize.PathInPlace, resize.PathCRI, resize.PathNone
	unscheduled := func(p *corev1.Pod) { p.Spec.NodeName = "" }
	for _, tc := range []struct {
		name       string
		resize     bool
		inPod      bool
		noFallback bool
		kubelet    string
		change     []change
		path       resize.Path
		state      resize.State
		reason     resize.Reason
	}{
		{name: "both can", resize: true, change: []change{observed}, path: inPlace, state: resize.StateInProgress, reason: resize.ReasonSent},
		{name: "both can, no fallback", resize: true, noFallback: true, path: inPlace, state: resize.StateInProgress, reason: resize.ReasonSent},
		{name: "case-21 node cannot: it would restart the container", resize: true, kubelet: "v1.30.14", change: []change{gateOff}, path: cri, state: resize.StateInProgress, reason: resize.ReasonSent},
		{name: "node cannot, no fallback", resize: true, noFallback: true, change: []change{gateOff}, path: none, state: resize.StateRefused, reason: resize.ReasonNoPath},
		{name: "case-16 neither can: the gate is off", kubelet: "v1.27.2", change: []change{gateOff}, path: cri, state: resize.StateInProgress, reason: resize.ReasonSent},
		{name: "case-19 neither can, no fallback", kubelet: "v1.30.3", noFallback: true, change: []change{gateOff}, path: none, state: resize.StateRefused, reason: resize.ReasonNoPath},
		{name: "case-13 the server's version is no proof", kubelet: "v1.32.0-alpha.1", change: []change{gateOff}, path: cri, state: resize.StateInProgress, reason: resize.ReasonSent},
		{name: "case-14", resize: true, kubelet: "v1.32.3+k3s1", path: inPlace, state: resize.StateInProgress, reason: resize.ReasonSent},

		{name: "nothing runs yet on a new node", resize: true, kubelet: "v1.35.0", change: []change{notRunning}, path: inPlace, state: resize.StateInProgress, reason: resize.ReasonSent},
		{name: "nothing runs yet on an older node", resize: true, kubelet: "v1.34.2", change: []change{notRunning}, path: none, state: resize.StateDeferred, reason: resize.ReasonNotRunning},
		{name: "nothing runs yet, node unreadable", resize: true, change: []change{notRunning}, path: none, state: resize.StateDeferred, reason: resize.ReasonNotRunning},
		{name: "nothing runs yet on a node without the gate", resize: true, kubelet: "v1.26.15", change: []change{notRunning}, path: cri, state: resize.StateInProgress, reason: resize.ReasonSent},
		{name: "patch of the pod", inPod: true, kubelet: "v1.28.15", path: inPlace, state: resize.StateInProgress, reason: resize.ReasonSent},
		{name: "case-21 patch of the pod, the node cannot", inPod: true, kubelet: "v1.28.15", change: []change{gateOff}, path: cri, state: resize.StateInProgress, reason: resize.ReasonSent},
		{name: "case-20 patch of the pod, the node cannot, no fallback", inPod: true, kubelet: "v1.31.14", noFallback: true, change: []change{gateOff}, path: none, state: resize.StateRefused, reason: resize.ReasonNoPath},
		{name: "patch of the pod, nothing runs yet", inPod: true, kubelet: "v1.28.15", change: []change{notRunning}, path: none, state: resize.StateDeferred, reason: resize.ReasonNotRunning},
		{name: "patch of the pod, nothing runs yet, node ahead", inPod: true, kubelet: "v1.35.0", change: []change{notRunning}, path: none, state: resize.StateDeferred, reason: resize.ReasonNotRunning},
		{name: "node ahead of the server", path: none, state: resize.StateRefused, reason: resize.ReasonNoPath},
		{name: "not scheduled", resize: true, kubelet: "v1.37.2", change: []change{notRunning, unscheduled}, path: none, state: resize.StateDeferred, reason: resize.ReasonNotRunning},
		{name: "one of two containers runs", resize: true, change: []change{sidekick("cpu=10m", ""), func(p *corev1.Pod) {
			p.Status.ContainerStatuses[1] = corev1.ContainerStatus{Name: "log"}
		}}, path: inPlace, state: resize.StateInProgress, reason: resize.ReasonSent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &apiServer{resize: tc.resize, inPod: tc.inPod, kubelet: tc.kubelet, pod: newPod(tc.change...)}
			other := &otherWay{}
			fallback := resize.Resizer(other)
			if tc.noFallback {
				fallback = nil
			}
			adapter := resize.NewAdapter(serve(t, s), fallback, resize.InPlaceOptions{})
			res, err := adapter.Resize(t.Context(), s.now(), want("app", "cpu=150m", ""))
			if err != nil {
				t.Fatal(err)
			}
			if res.Path != tc.path || res.State != tc.state || res.Reason != tc.reason {
				t.Errorf("got %s %s/%s: %s; want %s %s/%s", res.Path, res.State, res.Reason, res.Message, tc.path, tc.state, tc.reason)
			}
			if (tc.path == cri) != (len(other.asked) == 1) || (tc.state == resize.StateInProgress && tc.path == inPlace) != (s.count(askResize)+s.count(askPod) == 1) {
				t.Errorf("the fallback was asked %d times, the API server %q", len(other.asked), s.requests)
			}
			if res.RetryAfter == 0 { // also whoever refuses may change their mind
				t.Errorf("%s without RetryAfter", res.State)
			}
		})
	}
}

// TestAdapterNeverFallsBack from what a server refused.
func TestAdapterNeverFallsBack(t *testing.T) {
	for _, tc := range answers {
		t.Run(tc.name, func(t *testing.T) {
			s := &apiServer{resize: true, pod: newPod(), refuse: tc.answer, allowed: tc.allowed}
			other := &otherWay{}
			adapter := resize.NewAdapter(serve(t, s), other, resize.InPlaceOptions{})
			res, err := adapter.Resize(t.Context(), newPod(), want("app", "cpu=150m", ""))
			if (err == nil) != (tc.state != "") || res.State != tc.state || len(other.asked) > 0 {
				t.Errorf("got %s, %v, fallback asked %d times", res.State, err, len(other.asked))
			}
		})
	}
}

// letting is a fallback that holds something of the pod.
type letting struct {
	otherWay
	held      *resize.Resources
	ended     bool
	asked     int
	forgotten bool
}

func (l *letting) HandOver(context.Context, *corev1.Pod) (*resize.Resources, bool, error) {
	l.asked++
	return l.held, l.ended, nil
}

func (l *letting) HandedOver(context.Context, *corev1.Pod) error {
	l.forgotten = true
	return nil
}

// TestAdapterTakesOver: a pod whose node has come to resize in place keeps what the fallback gave it. Nothing is sent before the fallback
// has let go, and it forgets nothing before that is Done.
func TestAdapterTakesOver(t *testing.T) {
	s := &apiServer{resize: true, kubelet: "v1.35.0", pod: newPod(observed)}
	held := want("app", "cpu=170m", "memory=300Mi")
	l := &letting{held: &held}
	adapter := resize.NewAdapter(serve(t, s), l, resize.InPlaceOptions{LivePods: true})
	ask := func(state resize.State, reason resize.Reason) resize.Result {
		t.Helper()
		res, err := adapter.Resize(t.Context(), s.now(), want("app", "cpu=150m", ""))
		if err != nil || res.State != state || res.Reason != reason || res.Path != resize.PathInPlace {
			t.Fatalf("got %s %s/%s: %s, %v; want %s/%s", res.Path, res.State, res.Reason, res.Message, err, state, reason)
		}
		return res
	}
	if res := ask(resize.StateInProgress, resize.ReasonHandingOver); res.RetryAfter == 0 || s.count(askResize) > 0 {
		t.Errorf("after %s, requests %q", res.RetryAfter, s.requests)
	}
	l.ended = true
	res := ask(resize.StateInProgress, resize.ReasonSent)
	got := s.now().Spec.Containers[0].Resources
	if got.Requests.Cpu().String() != "150m" || got.Limits.Memory().String() != "300Mi" {
		t.Errorf("spec has %v", got)
	}
	if previous := res.Previous.Containers["app"]; previous.Requests.Cpu().String() != "170m" || previous.Limits.Memory().String() != "300Mi" {
		t.Errorf("to go back is %v", previous)
	}
	if l.forgotten {
		t.Error("forgotten before it is Done")
	}
	s.report(actuated, observed)
	ask(resize.StateDone, resize.ReasonConfirmed)
	if !l.forgotten {
		t.Error("not forgotten")
	}
	asked := l.asked
	ask(resize.StateDone, resize.ReasonConfirmed)
	if l.asked != asked || len(l.otherWay.asked) > 0 {
		t.Errorf("the fallback was asked to hand over %d more times, and to resize %d times", l.asked-asked, len(l.otherWay.asked))
	}
}

// TestAdapterPlans: what no path could do costs no request.
func TestAdapterPlans(t *testing.T) {
	s := &apiServer{resize: true, pod: newPod()}
	res, err := resize.NewAdapter(serve(t, s), &otherWay{}, resize.InPlaceOptions{}).Resize(t.Context(), newPod(), want("db", "cpu=1", ""))
	if err != nil || res.Reason != resize.ReasonUnknownContainer || len(s.requests) > 0 {
		t.Errorf("got %s, %v after %q", res.Reason, err, s.requests)
	}
}

// TestAdapterLeavesSumsToThePath: on the CRI path a container has what its CRIResize says, which spec does not tell.
func TestAdapterLeavesSumsToThePath(t *testing.T) {
	s := &apiServer{pod: newPod(gateOff)}
	other := &otherWay{}
	asked := want("app", "cpu=600m", "") // above spec's limit, which was raised to 1 by an earlier resize
	if _, err := resize.NewAdapter(serve(t, s), other, resize.InPlaceOptions{}).Resize(t.Context(), s.now(), asked); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]resize.Resources{asked}, other.asked); diff != "" {
		t.Error(diff)
	}
}

// TestDiscoveryIsCached for minutes, and dropped when an answer contradicts it.
func TestDiscoveryIsCached(t *testing.T) {
	s := &apiServer{resize: true, kubelet: "v1.37.2", pod: newPod(observed)}
	clock := clocktesting.NewFakePassiveClock(start)
	adapter := resize.NewAdapter(serve(t, s), &otherWay{}, resize.InPlaceOptions{Clock: clock})
	ask := func(cpu string, path resize.Path, discoveries int) error {
		t.Helper()
		res, err := adapter.Resize(t.Context(), s.now(), want("app", "cpu="+cpu, ""))
		if res.Path != path || s.count(askDiscovery) != discoveries {
			t.Errorf("got path %q after %d discoveries, want %q after %d", res.Path, s.count(askDiscovery), path, discoveries)
		}
		return err
	}
	for _, step := range []struct {
		cpu         string
		later       time.Duration
		discoveries int
	}{
		{cpu: "110m", discoveries: 1},
		{cpu: "120m", later: 4 * time.Minute, discoveries: 1},
		{cpu: "130m", later: time.Minute, discoveries: 2},
	} {
		clock.SetTime(clock.Now().Add(step.later))
		if err := ask(step.cpu, resize.PathInPlace, step.discoveries); err != nil {
			t.Fatal(err)
		}
	}
	s.set(func() { s.resize = false }) // another API server behind the same name, without pods/resize
	checkError(t, ask("140m", resize.PathNone, 2), resize.ReasonUnknown, true, 0, "has changed")
	if err := ask("140m", resize.PathNone, 4); err != nil { // asked once more after the dry run: Refused, as the kubelet would undo what another path does
		t.Fatal(err)
	}
	if err := ask("140m", resize.PathNone, 4); err != nil { // and that is believed for half a minute
		t.Fatal(err)
	}
	clock.SetTime(clock.Now().Add(30 * time.Second))
	// A refusal of the values contradicts nothing.
	s.set(func() {
		s.resize = true
		s.refuse = refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "no", nil)
	})
	for range 2 {
		if err := ask("150m", resize.PathInPlace, 5); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiscoveryFails: unknown is retryable, and never a reason to fall back.
func TestDiscoveryFails(t *testing.T) {
	s := &apiServer{pod: newPod(), down: true}
	other := &otherWay{}
	adapter := resize.NewAdapter(serve(t, s), other, resize.InPlaceOptions{})
	_, err := adapter.Resize(t.Context(), newPod(), want("app", "cpu=150m", ""))
	checkError(t, err, resize.ReasonUnavailable, true, 0, "discovering")
	if len(other.asked) > 0 {
		t.Error("fell back")
	}
	s.set(func() { s.down, s.resize = false, true })
	if _, err := adapter.Resize(t.Context(), newPod(), want("app", "cpu=150m", "")); err != nil {
		t.Errorf("after it is up again: %v", err)
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("cause")
	err := &resize.Error{Message: "doing", Err: cause}
	if err.Error() != "doing: cause" || !errors.Is(err, cause) {
		t.Errorf("got %q", err)
	}
	if alone := (&resize.Error{Message: "doing"}).Error(); alone != "doing" {
		t.Errorf("got %q", alone)
	}
}
