//nolint:thelper // Most functions here are tests by themselves: a failure is in them, not in their caller.
package resizetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
)

// testTwoCalls: what is not named stays, whether or not what was named before is in force yet.
func testTwoCalls(t *testing.T, s *subject) {
	r, first := s.env.Resizer(t), s.live(t)
	for _, want := range []resize.Resources{app(cpu("80m", "")), app(cpu("", "160m")), app(memory("24Mi", "48Mi"))} {
		if _, err := s.look(t, r, first, want); err != nil {
			t.Fatal(err)
		}
	}
	s.settle(t, r, app(memory("24Mi", "48Mi")))
	s.holds(t)
	s.settle(t, r, of("log", cpu("30m", "90m")))
	s.settle(t, r, of("log", memory("24Mi", "48Mi")))
	s.holds(t)
}

func testStaysDone(t *testing.T, s *subject) {
	r, want := s.env.Resizer(t), app(both(cpu("80m", "160m"), memory("24Mi", "48Mi")))
	for _, want := range []resize.Resources{{}, app(resize.Requirements{}), begin(), want} {
		s.settle(t, r, want)
		for range 20 {
			res, err := s.look(t, r, s.live(t), want)
			if err != nil || res.State != resize.StateDone {
				t.Fatalf("it was Done and is %s (%s), error: %v", res.State, res.Message, err)
			}
		}
		s.holds(t)
	}
	s.settle(t, s.env.Resizer(t), want)
	s.settle(t, s.env.Resizer(t), resize.Resources{})
	s.holds(t)
}

// testNotTooEarly looks as fast as it can, with a pod of the look before and a new one in turn: a caller with a cache that reads
// past it at times.
func testNotTooEarly(t *testing.T, s *subject) {
	r, previous := s.env.Resizer(t), s.live(t)
	for _, want := range []resize.Resources{app(cpu("80m", "160m")), app(memory("24Mi", "48Mi")), app(cpu("60m", "100m")), app(cpu("", "200m"))} {
		for done, began := false, time.Now(); !done; {
			newer := s.live(t)
			if _, err := s.look(t, r, previous, want); err != nil {
				t.Fatal(err)
			}
			res, err := s.look(t, r, newer, want)
			if done = settled(t, res, err); !done && time.Since(began) > patience {
				t.Fatalf("not Done within %s: %s", patience, res.Message)
			}
			previous = newer
		}
		s.holds(t)
	}
}

// testThereAndBack: the pod that is passed when the old values are wanted again still has them.
func testThereAndBack(t *testing.T, s *subject) {
	r := s.env.Resizer(t)
	there, back := app(cpu("80m", "160m")), app(begin().Containers["app"])
	for range 3 {
		s.settle(t, r, back)
		s.thereAndBack(t, r, r, there, back)
	}
}

func testThereAndBackRestarted(t *testing.T, s *subject) {
	s.thereAndBack(t, s.env.Resizer(t), s.env.Resizer(t), app(cpu("80m", "160m")), app(begin().Containers["app"]))
}

// thereAndBack asks one for there and, with a pod read before that, the other for back.
func (s *subject) thereAndBack(t *testing.T, one, other resize.Resizer, there, back resize.Resources) {
	t.Helper()
	before := s.live(t)
	if _, err := s.look(t, one, before, there); err != nil {
		t.Fatal(err)
	}
	s.settleLate(t, other, before, back)
	s.settle(t, s.observer, resize.Resources{})
	s.holds(t)
}

// testRestart: who knows nothing of what was sent comes to the same end, wherever the first process stopped.
func testRestart(t *testing.T, s *subject) {
	for _, want := range []resize.Resources{app(cpu("80m", "160m")), app(memory("24Mi", "48Mi"))} {
		before := s.live(t)
		for range 2 {
			if _, err := s.look(t, s.env.Resizer(t), before, want); err != nil {
				t.Fatal(err)
			}
		}
		s.settleLate(t, s.env.Resizer(t), before, want)
		s.holds(t)
	}
}

// testTwoCallers lets them begin at the same moment, as two processes and as two workers of one.
func testTwoCallers(t *testing.T, s *subject) {
	shared := s.env.Resizer(t)
	s.together(t, []resize.Resizer{s.env.Resizer(t), s.env.Resizer(t)}, []resize.Resources{app(cpu("80m", "160m")), of("log", memory("24Mi", "48Mi"))})
	s.together(t, []resize.Resizer{shared, shared}, []resize.Resources{app(memory("24Mi", "48Mi")), app(cpu("60m", "120m"))})
}

func (s *subject) together(t *testing.T, callers []resize.Resizer, wants []resize.Resources) {
	t.Helper()
	pod, errs := s.live(t), make([]error, len(callers))
	var calls sync.WaitGroup
	for i, r := range callers {
		calls.Go(func() { _, errs[i] = r.Resize(t.Context(), pod, wants[i]) })
	}
	calls.Wait()
	for i, err := range errs {
		if err != nil {
			checkError(t, err)
		}
		s.asked = onTop(s.asked, wants[i])
	}
	for i, r := range callers {
		s.settle(t, r, wants[i])
	}
	s.holds(t)
}

// testOppositeCallers: each Done is true when it is said, so that there are never two. While both insist, none may be right.
func testOppositeCallers(t *testing.T, s *subject) {
	callers := []resize.Resizer{s.env.Resizer(t), s.env.Resizer(t)}
	wants := []resize.Resources{app(cpu("60m", "120m")), app(cpu("90m", "180m"))}
	for range 20 {
		var done int
		for i, r := range callers {
			res, err := s.look(t, r, s.live(t), wants[i])
			if err == nil && res.State == resize.StateDone {
				done++
			}
		}
		if done > 1 {
			t.Fatal("both are told that they have it")
		}
	}
	for range 2 {
		for i, r := range callers {
			s.settle(t, r, wants[i])
			s.holds(t)
		}
	}
}

// impossible is a want that no Resizer can give the pod of a subject.
type impossible struct {
	name   string
	want   resize.Resources
	reason resize.Reason
}

func impossibles() []impossible {
	guaranteed := begin()
	for name, r := range guaranteed.Containers {
		guaranteed.Containers[name] = resize.Requirements{Requests: r.Limits, Limits: r.Limits}
	}
	beside := app(cpu("80m", "160m")) // what is possible is not done if something beside it is not
	beside.Containers["ap"] = cpu("80m", "")
	return []impossible{
		{"unknown container", of("ap", cpu("80m", "160m")), resize.ReasonUnknownContainer},
		{"unknown container beside a known one", beside, resize.ReasonUnknownContainer},
		{"limit below request", app(cpu("", "40m")), resize.ReasonLimitBelowRequest},
		{"request above limit", app(memory("48Mi", "")), resize.ReasonLimitBelowRequest},
		{"another QoS class", guaranteed, resize.ReasonQOSChange},
		{"neither cpu nor memory", app(amounts(corev1.ResourceEphemeralStorage, "1Gi", "1Gi")), resize.ReasonUnsupportedResource},
		{"a negative request", app(cpu("-80m", "")), resize.ReasonInvalidQuantity},
		{"a limit of zero", app(memory("", "0")), resize.ReasonInvalidQuantity},
	}
}

func testImpossible(t *testing.T, s *subject) {
	r := s.env.Resizer(t)
	for _, c := range impossibles() {
		s.infeasible(t, r, c.want, c.reason)
		s.unchanged(t)
	}
	for _, nothing := range []resize.Resources{{}, app(resize.Requirements{})} {
		s.settle(t, r, nothing)
		s.unchanged(t)
	}
	s.settle(t, r, app(cpu("80m", "160m")))
	s.holds(t)
	for _, c := range impossibles() { // whatever was done before
		s.infeasible(t, s.env.Resizer(t), c.want, c.reason)
	}
	s.settle(t, r, resize.Resources{})
	s.holds(t)
}

func (s *subject) infeasible(t *testing.T, r resize.Resizer, want resize.Resources, reason resize.Reason) {
	t.Helper()
	res, err := s.look(t, r, s.live(t), want)
	if err != nil {
		t.Fatal(err)
	}
	if res.State != resize.StateInfeasible || res.Reason != reason || res.Message == "" {
		t.Fatalf("%+v is %s (%s): %q; it should be Infeasible (%s)", want, res.State, res.Reason, res.Message, reason)
	}
}

// testMemoryLimit: it is lowered, or by the rules of the place said to be impossible, before anything is sent and at the call.
func testMemoryLimit(t *testing.T, s *subject) {
	r, raised, lowered := s.env.Resizer(t), app(memory("16Mi", "48Mi")), app(memory("16Mi", "24Mi"))
	s.forecast(t, r, raised, resize.ReasonNoWayBack)
	s.settle(t, r, raised)
	s.holds(t)
	s.forecast(t, r, lowered, resize.ReasonMemoryLimit)
	if !s.env.KeepsMemoryLimit {
		s.settle(t, r, lowered)
		s.holds(t)
		return
	}
	s.infeasible(t, r, lowered, resize.ReasonMemoryLimit)
	s.settle(t, r, resize.Resources{})
	s.holds(t)
}

// forecast insists that a plan has the finding if and only if memory limits cannot be lowered here.
func (s *subject) forecast(t *testing.T, r resize.Resizer, want resize.Resources, reason resize.Reason) {
	t.Helper()
	planner, ok := r.(resize.Planner)
	if !ok {
		return // who does not plan says so at the call
	}
	f, err := planner.Plan(t.Context(), s.live(t), want)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, finding := range f.Findings {
		found = found || finding.Reason == reason
	}
	if found != s.env.KeepsMemoryLimit {
		t.Fatalf("memory limits can be lowered here: %t; the plan says: %+v", !s.env.KeepsMemoryLimit, f)
	}
}

// testPrevious: the values that a change replaced are those to go back to, whether or not it came into force.
func testPrevious(t *testing.T, s *subject) {
	r, want := s.env.Resizer(t), app(both(cpu("80m", "160m"), memory("24Mi", "48Mi")))
	if s.env.KeepsMemoryLimit {
		want = app(both(cpu("80m", "160m"), memory("24Mi", "")))
	}
	for _, wait := range []bool{true, false} {
		res, err := s.look(t, r, s.live(t), want)
		if err != nil {
			t.Fatal(err)
		}
		if res.Previous == nil {
			t.Fatalf("%s (%s) without Previous", res.State, res.Reason)
		}
		if wait {
			s.settle(t, r, want)
			s.holds(t)
		}
		s.settle(t, r, *res.Previous)
		s.unchanged(t)
	}
}

func testQuickChanges(t *testing.T, s *subject) {
	r, previous := s.env.Resizer(t), s.live(t)
	var want resize.Resources
	for i := range 20 {
		newer := s.live(t)
		want = app(cpu(fmt.Sprintf("%dm", 55+i*7%20), fmt.Sprintf("%dm", 110+i*70%200)))
		if _, err := s.look(t, r, previous, want); err != nil {
			t.Fatal(err)
		}
		previous = newer
	}
	s.settleLate(t, r, previous, want)
	s.settle(t, s.observer, resize.Resources{})
	s.holds(t)
}

// testCancelled: a call that is given up ends at once. Given up before it begins it changes nothing; given up on its way it may
// have been heard, and the next call finds that out.
func testCancelled(t *testing.T, s *subject) {
	want := app(cpu("80m", "160m"))
	for _, r := range []resize.Resizer{s.env.Resizer(t), s.observer} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.givenUp(ctx, t, r, want)
		checkError(t, err)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("the error does not say that the context was cancelled: %v", err)
		}
		s.unchanged(t)
	}
	r := s.env.Resizer(t)
	for i, request := range []string{"60m", "70m", "80m"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond<<(2*i))
		if err := s.givenUp(ctx, t, r, app(cpu(request, ""))); err != nil {
			checkError(t, err)
		}
		cancel()
	}
	s.settle(t, r, want)
	s.holds(t)
}

// givenUp calls Resize and insists that it ends promptly.
func (s *subject) givenUp(ctx context.Context, t *testing.T, r resize.Resizer, want resize.Resources) error {
	t.Helper()
	pod, ended := s.live(t), make(chan error, 1)
	go func() {
		_, err := r.Resize(ctx, pod, want)
		ended <- err
	}()
	timeout := time.NewTimer(promptly)
	defer timeout.Stop()
	select {
	case err := <-ended:
		return err
	case <-timeout.C:
		t.Fatalf("the call goes on %s after its context has ended", promptly)
		return nil
	}
}

// testReplaced: a pod is known by its UID.
func testReplaced(t *testing.T, s *subject) {
	r, old := s.env.Resizer(t), s.start
	s.settle(t, r, app(cpu("80m", "160m")))
	latest := s.live(t)
	s.env.Delete(t, old)
	gone := []*corev1.Pod{old, latest}
	for _, pod := range gone {
		s.gone(t, r, pod)
	}
	*s = *newSubject(t, s.env, old.Name)
	if s.start.UID == old.UID {
		t.Fatal("the new pod has the UID of the old one")
	}
	for _, pod := range gone {
		s.gone(t, r, pod)
		s.gone(t, s.env.Resizer(t), pod)
	}
	s.unchanged(t)
	s.settle(t, r, app(cpu("70m", "140m")))
	s.holds(t)
}

// gone insists that a change of a pod that is no more is told so.
func (s *subject) gone(t *testing.T, r resize.Resizer, pod *corev1.Pod) {
	t.Helper()
	res, err := r.Resize(t.Context(), pod, app(cpu("90m", "180m")))
	var failure *resize.Error
	switch {
	case err == nil && res.State == resize.StateInfeasible && res.Reason == resize.ReasonPodEnded:
	case errors.As(err, &failure) && failure.Reason == resize.ReasonPodNotFound && !failure.Retryable:
	default:
		t.Fatalf("of a pod that is gone it is said: %s (%s), error: %v", res.State, res.Reason, err)
	}
}
