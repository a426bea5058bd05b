package featuregate_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/podresize/podresize/resize"
)

const week = 7 * 24 * time.Hour

// simulated is when the roll-out begins.
var simulated = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)

// simulation has 10,000 pods in each of three regions, which follow each other by a week.
type simulation struct {
	*bed
	halts *store
	pods  map[string][]*corev1.Pod
	in    map[types.UID]bool
}

func regionNames() []string { return []string{"eu-west-1", "us-east-1", "ap-south-1"} }

// rolloutOf writes four stages for each region, a week each: Observe, 5%, 50%, On.
func rolloutOf(start time.Time) string {
	text := head + "regions:\n"
	for i, region := range regionNames() {
		text += "  - name: " + region + "\n    stages:\n"
		for stage, level := range []string{"Observe", "5%", "50%", "On"} {
			text += fmt.Sprintf("      - {notBefore: %s, inPlace: %s}\n", start.Add(time.Duration(i+stage)*week).Format(time.RFC3339), level)
		}
	}
	return text + "halt: {window: 1h, ratio: 5%, minimum: 100}\n"
}

func newSimulation(t *testing.T, start time.Time) *simulation {
	t.Helper()
	s := &simulation{halts: &store{}, pods: map[string][]*corev1.Pod{}, in: map[types.UID]bool{}}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same pods in every run
	for _, region := range regionNames() {
		for range 10_000 {
			uid := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint32(), random.IntN(1<<16), random.IntN(1<<12), random.IntN(1<<12), random.Int64N(1<<48))
			s.pods[region] = append(s.pods[region], newPod(region, types.UID(uid)))
		}
	}
	s.restart(t, clocktesting.NewFakePassiveClock(start), rolloutOf(start))
	return s
}

// restart is another process, with the same store.
func (s *simulation) restart(t *testing.T, clock *clocktesting.FakePassiveClock, policy string) {
	t.Helper()
	if s.bed != nil {
		s.stop()
	}
	s.bed = newBed(t, clock, s.halts)
	s.policy(t, policy)
}

// counts are how many pods of a region are in each mode. Who was in has to be in again, unless the region is off.
func (s *simulation) counts(t *testing.T, region string) (on, observe, off int) {
	t.Helper()
	left := 0
	for _, pod := range s.pods[region] {
		mode := s.decide(t, pod, resize.PathInPlace).Mode
		switch mode {
		case resize.ModeOn:
			on++
		case resize.ModeObserve:
			observe++
		default:
			off++
		}
		if s.in[pod.UID] && mode != resize.ModeOn {
			left++
		}
		s.in[pod.UID] = s.in[pod.UID] || mode == resize.ModeOn
	}
	if left > 0 && off < 10_000 {
		t.Errorf("%s: %d pods were in and are not any more", region, left)
	}
	return on, observe, off
}

func (s *simulation) expect(t *testing.T, when, region string, on, observe, off int) {
	t.Helper()
	gotOn, gotObserve, gotOff := s.counts(t, region)
	if gotOn != on || gotObserve != observe || gotOff != off {
		t.Errorf("%s, %s: %d on, %d observed, %d off; want %d, %d, %d", when, region, gotOn, gotObserve, gotOff, on, observe, off)
	}
}

// below counts the pods whose share is below so many hundredths of a percent, by the standard library's hash.
func (s *simulation) below(region string, share uint64) int {
	count := 0
	for _, pod := range s.pods[region] {
		h := fnv.New64a()
		_, _ = h.Write([]byte(pod.UID))
		if h.Sum64()%10_000 < share {
			count++
		}
	}
	return count
}

// TestSimulation plays a roll-out: exact counts in every week, pods that were in stay in, a region that fails is halted, stays so over
// a restart and the next stage, and goes on where the policy says when it is cleared.
func TestSimulation(t *testing.T) {
	start := simulated
	s := newSimulation(t, start)
	few := map[string]int{"eu-west-1": 502, "us-east-1": 518, "ap-south-1": 515}     // 5%
	half := map[string]int{"eu-west-1": 4953, "us-east-1": 5051, "ap-south-1": 4992} // 50%
	for _, region := range regionNames() {
		if few[region] != s.below(region, 500) || half[region] != s.below(region, 5000) {
			t.Errorf("%s: %d and %d", region, s.below(region, 500), s.below(region, 5000))
		}
	}
	s.clock.SetTime(start.Add(-time.Second))
	for _, region := range regionNames() {
		s.expect(t, "before", region, 0, 0, 10_000)
	}
	for w := range 6 {
		when := fmt.Sprintf("week %d", w)
		for _, second := range []time.Duration{0, week - time.Second} { // the first and the last of the week
			s.clock.SetTime(start.Add(time.Duration(w)*week + second))
			for i, region := range regionNames() {
				switch stage := w - i; {
				case stage < 0:
					s.expect(t, when, region, 0, 0, 10_000)
				case stage == 0:
					s.expect(t, when, region, 0, 10_000, 0)
				case stage == 1:
					s.expect(t, when, region, few[region], 0, 10_000-few[region])
				case stage == 2 && region == "us-east-1" && second == 0:
					s.playFailures(t, when, region, half[region])
				case stage == 2:
					s.expect(t, when, region, half[region], 0, 10_000-half[region])
				default:
					s.expect(t, when, region, 10_000, 0, 0)
				}
			}
		}
	}
}

// playFailures halts a region and clears it again.
func (s *simulation) playFailures(t *testing.T, when, region string, in int) {
	t.Helper()
	now := s.clock.Now()
	s.expect(t, when, region, in, 0, 10_000-in)
	s.resizeAll(t, region, 20) // one of 20 fails, which is just what may
	s.expect(t, when+", as many failures as may be", region, in, 0, 10_000-in)
	s.clock.SetTime(now.Add(2 * time.Hour)) // these are past
	s.resizeAll(t, region, 19)
	s.expect(t, when+", halted", region, 0, 0, 10_000)
	for _, other := range regionNames() {
		if on, observe, _ := s.counts(t, other); other != region && on+observe == 0 {
			t.Errorf("%s, %s: off too", when, other)
		}
	}
	s.clock.SetTime(now.Add(3 * week))
	s.expect(t, when+", halted, at the next stage", region, 0, 0, 10_000)
	s.clock.SetTime(now)
	s.restart(t, s.clock, rolloutOf(simulated))
	s.expect(t, when+", halted, in another process", region, 0, 0, 10_000)
	s.halts.clear(t, region)
	s.expect(t, when+", cleared", region, in, 0, 10_000-in)
}

// resizeAll resizes the pods that are in; one of so many fails.
func (s *simulation) resizeAll(t *testing.T, region string, each int) {
	t.Helper()
	n := 0
	for _, pod := range s.pods[region] {
		if s.decide(t, pod, resize.PathInPlace).Mode != resize.ModeOn {
			continue
		}
		s.report(t, pod, resize.Result{State: resize.StateInProgress, Reason: resize.ReasonSent}, nil)
		res := resize.Result{State: resize.StateDone, Reason: resize.ReasonConfirmed}
		if n++; n%each == 0 {
			res = resize.Result{State: resize.StateUnconfirmed, Reason: resize.ReasonWaitingForKubelet}
		}
		s.report(t, pod, res, nil)
	}
}
