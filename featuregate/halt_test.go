package featuregate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/podresize/podresize/featuregate"
	"github.com/podresize/podresize/resize"
)

const haltOfFour = head + "default: {inPlace: On}\nhalt: {window: 10m, ratio: 25%, minimum: 4, failures: [Unconfirmed, Infeasible, KubeletError, Forbidden, Restart]}\n"

// answers of Resize.
func sent(restarts int32) resize.Result {
	return resize.Result{State: resize.StateInProgress, Reason: resize.ReasonSent, Containers: []resize.ContainerEvidence{{Name: "app", RestartCount: restarts}}}
}

func done(restarts int32) resize.Result {
	return resize.Result{State: resize.StateDone, Reason: resize.ReasonConfirmed, Containers: []resize.ContainerEvidence{{Name: "app", RestartCount: restarts}}}
}

func failed() resize.Result {
	return resize.Result{State: resize.StateUnconfirmed, Reason: resize.ReasonWaitingForKubelet}
}

// answer is one Report: of a pod, after a time.
type answer struct {
	pod   int
	after time.Duration
	res   resize.Result
	err   error
}

// good are resizes of so many pods that succeed.
func good(count int) []answer {
	var out []answer
	for i := range count {
		out = append(out, answer{pod: i, res: sent(0)}, answer{pod: i, res: done(0)})
	}
	return out
}

func TestHalt(t *testing.T) {
	const late = 11 * time.Minute
	rejected := resize.Result{State: resize.StateInfeasible, Reason: resize.ReasonRejected}
	old := rejected
	old.Since = simulated.Add(-time.Hour)
	forbidden := &resize.Error{Reason: resize.ReasonForbidden, Message: "no"}
	restarting := func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	}
	for _, tc := range []struct {
		name    string
		change  func(*corev1.Pod)
		answers []answer
		says    string // empty: not halted
	}{
		{name: "two of four", answers: append(good(2), answer{pod: 2, res: failed()}, answer{pod: 3, res: failed()}), says: "2 of 4 resizes within 10m0s failed, more than 25%: 2 Unconfirmed"},
		{name: "one of four is not more", answers: append(good(3), answer{pod: 3, res: failed()})},
		{name: "three are too few", answers: append(good(1), answer{pod: 1, res: failed()}, answer{pod: 2, res: failed()})},
		{name: "two pods that fail again and again are two", answers: []answer{{pod: 0, res: failed()}, {pod: 1, res: failed()}, {pod: 0, res: failed()}, {pod: 1, res: failed()}, {pod: 0, res: failed()}}},
		{name: "what failed and then succeeded is a success", answers: append(good(2), answer{pod: 2, res: failed()}, answer{pod: 2, res: done(0)}, answer{pod: 3, res: failed()})},
		{name: "failures of before the window", answers: append([]answer{{pod: 8, res: failed()}, {pod: 9, res: failed()}, {pod: 0, res: sent(0), after: late}}, good(3)...)},
		{name: "a failure that goes on counts once", answers: append([]answer{{pod: 8, res: failed()}, {pod: 8, res: failed(), after: 6 * time.Minute}, {pod: 8, res: failed(), after: 6 * time.Minute}}, append(good(2), answer{pod: 9, res: failed()})...)},
		{name: "states that began long ago, as a new process sees them", answers: append(good(2), answer{pod: 2, res: old}, answer{pod: 3, res: old})},
		{name: "by state, by reason and by error", answers: append(good(1), answer{pod: 1, res: rejected}, answer{pod: 2, res: resize.Result{State: resize.StateInProgress, Reason: resize.ReasonKubeletError}}, answer{pod: 3, err: forbidden}), says: "3 of 4 resizes within 10m0s failed, more than 25%: 1 Forbidden, 1 Infeasible, 1 KubeletError"},
		{name: "an error that does not count", answers: append(good(2), answer{pod: 2, err: errors.New("odd")}, answer{pod: 3, res: failed()})},
		{name: "what is looked at and was not resized", answers: []answer{{pod: 0, res: done(0)}, {pod: 1, res: done(0)}, {pod: 2, res: failed()}, {pod: 3, res: failed()}}},
		{name: "restarts", answers: append(good(2), answer{pod: 2, res: sent(3)}, answer{pod: 2, res: done(4)}, answer{pod: 3, res: sent(0)}, answer{pod: 3, res: done(0)}, answer{pod: 3, res: done(1)}), says: "2 of 4 resizes within 10m0s failed, more than 25%: 2 Restart"},
		{name: "restarts that were asked for", change: restarting, answers: append(good(2), answer{pod: 2, res: sent(3)}, answer{pod: 2, res: done(4)}, answer{pod: 3, res: sent(0)}, answer{pod: 3, res: done(1)})},
		{name: "withheld and observed ones", answers: append(good(4), answer{pod: 4, res: resize.Result{State: resize.StateRefused, Reason: resize.ReasonGateOff}}, answer{pod: 5, res: resize.Result{State: resize.StateRefused, Reason: resize.ReasonObserved}})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			halts := &store{}
			b := newBed(t, clocktesting.NewFakePassiveClock(simulated), halts)
			b.policy(t, haltOfFour)
			for _, a := range tc.answers {
				b.clock.SetTime(b.clock.Now().Add(a.after))
				pod := newPod("eu", types.UID(fmt.Sprint(a.pod)))
				if tc.change != nil {
					tc.change(pod)
				}
				b.report(t, pod, a.res, a.err)
			}
			got, halted := halts.halted["eu"]
			if halted != (tc.says != "") || got.Message != tc.says {
				t.Errorf("halted: %t, %s; want %s", halted, got.Message, tc.says)
			}
			d := b.decide(t, newPod("eu", "x"), resize.PathInPlace)
			if (d.Mode == resize.ModeOff) != halted || !strings.Contains(d.Message, tc.says) {
				t.Errorf("then %s: %s", d.Mode, d.Message)
			}
			if other := b.decide(t, newPod("us", "x"), resize.PathInPlace); other.Mode != resize.ModeOn {
				t.Errorf("another region is %s: %s", other.Mode, other.Message)
			}
		})
	}
}

// TestHaltThatCannotBeStored holds at once all the same, and is stored later. Cleared, it begins anew.
func TestHaltThatCannotBeStored(t *testing.T) {
	halts := &store{}
	b := newBed(t, clocktesting.NewFakePassiveClock(simulated), halts)
	b.policy(t, haltOfFour)
	halts.fail = errors.New("no store")
	fail := func(pod int) error {
		return b.Report(t.Context(), newPod("bare", types.UID(fmt.Sprint(pod))), failed(), nil)
	}
	for pod := range 3 {
		if err := fail(pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := fail(3); err == nil || err.Error() != `storing that region "" is halted: no store` {
		t.Errorf("got %v", err)
	}
	off := func(mode resize.Mode) {
		t.Helper()
		if d := b.decide(t, newPod("bare", "x"), resize.PathInPlace); d.Mode != mode {
			t.Errorf("%s: %s, want %s", d.Mode, d.Message, mode)
		}
	}
	off(resize.ModeOff)
	halts.mu.Lock()
	halts.tell(nil) // what the store has, as it is told meanwhile
	halts.fail = nil
	halts.mu.Unlock()
	off(resize.ModeOff)
	b.report(t, newPod("us", "other"), done(0), nil)
	if _, halted := halts.halted[""]; !halted {
		t.Error("not stored with a later report")
	}
	halts.clear(t, "")
	off(resize.ModeOn)
	if err := fail(4); err != nil {
		t.Fatal(err)
	}
	off(resize.ModeOn)
}

// TestNoHalt: without a rule, a store or a region nothing is counted.
func TestNoHalt(t *testing.T) {
	halts := &store{}
	b := newBed(t, clocktesting.NewFakePassiveClock(simulated), halts)
	b.policy(t, head+"default: {inPlace: On}")
	without := newBed(t, clocktesting.NewFakePassiveClock(simulated), nil)
	without.policy(t, haltOfFour)
	for pod := range 10 {
		b.report(t, newPod("eu", types.UID(fmt.Sprint(pod))), failed(), nil)
		without.report(t, newPod("eu", types.UID(fmt.Sprint(pod))), failed(), nil)
	}
	b.policy(t, haltOfFour)
	for pod := range 10 {
		b.report(t, newPod("gone", types.UID(fmt.Sprint(pod))), failed(), nil)
	}
	if d := without.decide(t, newPod("eu", "x"), resize.PathInPlace); len(halts.halted) > 0 || d.Mode != resize.ModeOn {
		t.Errorf("halted %v; %s", halts.halted, d.Message)
	}
}

// TestDefaultsOfHalt: without a list it is podresize and the node that count, not the want, and 20 resizes have to have ended.
func TestDefaultsOfHalt(t *testing.T) {
	halts := &store{}
	b := newBed(t, clocktesting.NewFakePassiveClock(simulated), halts)
	b.policy(t, head+"default: {inPlace: On}\nhalt: {window: 10m, ratio: 5%}")
	pods := 0
	report := func(res resize.Result) {
		b.report(t, newPod("eu", types.UID(fmt.Sprint(pods))), res, nil)
		pods++
	}
	for range 30 {
		report(resize.Result{State: resize.StateInfeasible, Reason: resize.ReasonQOSChange})
		report(resize.Result{State: resize.StateDeferred, Reason: resize.ReasonNodeFull})
	}
	for range 19 {
		report(failed())
	}
	if len(halts.halted) > 0 {
		t.Errorf("halted: %v", halts.halted)
	}
	report(failed())
	if want := (featuregate.Halted{Since: simulated, Message: "20 of 20 resizes within 10m0s failed, more than 5%: 20 Unconfirmed"}); halts.halted["eu"] != want {
		t.Errorf("got %v", halts.halted)
	}
}
