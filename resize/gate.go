package resize

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
)

// Gate says whether a pod may be resized by a path: featuregate.Gate is one that goes by a policy. It is asked at every look at a
// pod that is not known to be Done, from many goroutines, so it should answer from memory.
type Gate interface {
	// Decide answers for one pod and path. It changes neither the pod nor anything else. An error means that it cannot tell now:
	// nothing is sent then.
	Decide(ctx context.Context, pod *corev1.Pod, path Path) (Decision, error)
}

// Mode is how far a Gate lets a change go.
type Mode string

const (
	// ModeOff: nothing new is sent. What was sent before is judged all the same, and what it replaced may be asked for. Whatever
	// is no other mode is Off too.
	ModeOff Mode = "Off"
	// ModeObserve: a change is planned and sent as a dry run, once for each pod and want; nothing changes.
	ModeObserve Mode = "Observe"
	// ModeOn: the change is made.
	ModeOn Mode = "On"
)

// Decision is a Gate's answer.
type Decision struct {
	Mode Mode
	// Message says why, in one line.
	Message string
	// StopEnforcing, with ModeOff: what the fallback holds is let go of as well; the pod keeps what it has.
	StopEnforcing bool
}

// DryRunner is what a path has that can try a change: InPlace and fallback.Resizer have it.
type DryRunner interface {
	// DryRun plans the change and has the API server try it. The Result is the one that Resize would give; nothing changes.
	DryRun(ctx context.Context, pod *corev1.Pod, want Resources) (Result, error)
}

// StopsEnforcing is what a fallback has that can let go of a pod without taking anything back: fallback.Resizer has it.
type StopsEnforcing interface {
	// StopEnforcing has the fallback let go of the pod, if it has a hold on it. The pod keeps what it has. A later change takes
	// hold again.
	StopEnforcing(ctx context.Context, pod *corev1.Pod) error
}

// passages is what an Adapter with a Gate remembers. Losing it costs a dry run, and the way back of what a lost process has sent.
type passages struct {
	gate Gate
	// back has for each UID what the last change replaced that the gate let through.
	back *lru.Cache
	// tried has for each UID the last dry run.
	tried *lru.Cache
}

// tried is a dry run and what came of it.
type tried struct {
	change  string
	outcome Outcome
}

// Gated has the Adapter ask gate before it sends anything; nil: no gate. It is to be called before the first use, and gives the Adapter.
func (a *Adapter) Gated(gate Gate) *Adapter {
	a.passages = nil
	if gate != nil {
		pods := a.inPlace.opts.Remember
		a.passages = &passages{gate: gate, back: lru.New(pods), tried: lru.New(pods)}
	}
	return a
}

// pass resizes by a path as far as the gate lets it.
func (a *Adapter) pass(ctx context.Context, path Resizer, pod *corev1.Pod, want Resources) (Result, error) {
	decision, gateErr := a.passages.gate.Decide(ctx, pod, a.nameOf(path))
	if gateErr != nil {
		decision = Decision{}
	}
	switch {
	case decision.Mode == ModeOn:
		return a.letThrough(ctx, path, pod, want)
	case decision.Mode == ModeObserve:
		decision.StopEnforcing = false
	case decision.StopEnforcing:
		if err := a.stopEnforcing(ctx, pod); err != nil {
			return Result{}, err
		}
	}
	judged, err := a.judge(ctx, path, pod)
	if err != nil {
		return judged, err
	}
	missing := missingOf(pod, judged, want)
	switch {
	case len(missing.Containers) == 0:
		return judged, nil
	case gateErr != nil:
		return Result{}, Failure(fmt.Sprintf("asking the gate about pod %q", key(pod)), gateErr)
	case decision.Mode == ModeObserve:
		return a.observe(ctx, path, pod, want, missing, judged, decision)
	case !decision.StopEnforcing && a.passages.leadsBack(pod, missing, judged):
		return a.takeBack(ctx, path, pod, want)
	default:
		return withheld(judged, ReasonGateOff, decision.Message), nil
	}
}

// letThrough makes the change, and remembers the way back from it.
func (a *Adapter) letThrough(ctx context.Context, path Resizer, pod *corev1.Pod, want Resources) (Result, error) {
	res, err := a.take(ctx, path, pod, want)
	if err == nil && res.Reason == ReasonSent && res.Previous != nil {
		a.passages.back.Add(pod.UID, *res.Previous)
	}
	return res, err
}

func (a *Adapter) nameOf(path Resizer) Path {
	if path == a.inPlace {
		return PathInPlace
	}
	return PathCRI
}

func (a *Adapter) stopEnforcing(ctx context.Context, pod *corev1.Pod) error {
	fallback, ok := a.fallback.(StopsEnforcing)
	if _, free := a.free.Get(pod.UID); free || !ok {
		return nil
	}
	return fallback.StopEnforcing(ctx, pod)
}

// judge tells how far what was asked for before has got, and asks for nothing. A pod that the fallback has not handed over yet is
// judged by the fallback.
func (a *Adapter) judge(ctx context.Context, path Resizer, pod *corev1.Pod) (Result, error) {
	nothing := Resources{}
	_, hands := a.fallback.(HandsOver)
	if _, free := a.free.Get(pod.UID); path != a.inPlace || free || !hands {
		return path.Resize(ctx, pod, nothing)
	}
	held, err := a.fallback.Resize(ctx, pod, nothing)
	if err != nil || held.Reason != ReasonNothingAsked && held.Reason != ReasonNoPath {
		return held, err
	}
	a.free.Add(pod.UID, nil)
	return path.Resize(ctx, pod, nothing)
}

// missingOf is the part of want that was not asked for yet, on any path.
func missingOf(pod *corev1.Pod, judged Result, want Resources) Resources {
	out := Resources{Containers: map[string]Requirements{}}
	for name, w := range want.Containers {
		have := evidenceOf(judged, name)
		c, _ := find(pod, name)
		switch {
		case have == nil && c == nil:
			continue
		case have == nil:
			have = &ContainerEvidence{Desired: specOf(c)}
		}
		missing := Requirements{Requests: missingFrom(have.Desired.Requests, w.Requests), Limits: missingFrom(have.Desired.Limits, w.Limits)}
		if len(missing.Requests)+len(missing.Limits) > 0 {
			out.Containers[name] = missing
		}
	}
	return out
}

func evidenceOf(res Result, container string) *ContainerEvidence {
	i := slices.IndexFunc(res.Containers, func(c ContainerEvidence) bool { return c.Name == container })
	if i < 0 {
		return nil
	}
	return &res.Containers[i]
}

// leadsBack says whether what is missing is nothing new: what the last change replaced, what spec has (on the CRI path), or what the
// node still runs the containers with.
func (p *passages) leadsBack(pod *corev1.Pod, missing Resources, judged Result) bool {
	if len(Changes(pod, missing).Containers) == 0 {
		return true
	}
	if back, ok := p.back.Get(pod.UID); ok && within(missing, back.(Resources)) { //nolint:forcetypeassert // it holds nothing else
		return true
	}
	running := Resources{Containers: map[string]Requirements{}}
	for _, c := range judged.Containers {
		if c.Actual != nil {
			running.Containers[c.Name] = *c.Actual
		}
	}
	return within(missing, running)
}

// within says whether all that part names is the same in all.
func within(part, all Resources) bool {
	for name, p := range part.Containers {
		have := all.Containers[name]
		if len(missingFrom(have.Requests, p.Requests))+len(missingFrom(have.Limits, p.Limits)) > 0 {
			return false
		}
	}
	return true
}

// takeBack asks for what the last change replaced. What that change asked for is then something new.
func (a *Adapter) takeBack(ctx context.Context, path Resizer, pod *corev1.Pod, want Resources) (Result, error) {
	res, err := a.take(ctx, path, pod, want)
	if err == nil && res.Reason == ReasonSent {
		a.passages.back.Remove(pod.UID)
	}
	return res, err
}

// observe tries a change, unless the last one tried was the same, and tells what would have become of it.
func (a *Adapter) observe(ctx context.Context, path Resizer, pod *corev1.Pod, want, missing Resources, judged Result, d Decision) (Result, error) {
	change, err := json.Marshal(missing)
	if err != nil {
		return Result{}, &Error{Reason: ReasonUnknown, Message: fmt.Sprintf("encoding the change of pod %q", key(pod)), Err: err}
	}
	last, _ := a.passages.tried.Get(pod.UID)
	t, ok := last.(tried)
	if id := string(a.nameOf(path)) + string(change); !ok || t.change != id {
		outcome, err := dryRun(ctx, path, pod, want)
		if err != nil {
			return Result{}, err
		}
		t = tried{change: id, outcome: outcome}
		a.passages.tried.Add(pod.UID, t)
	}
	res := withheld(judged, ReasonObserved, fmt.Sprintf("%s; tried by a dry run, it would be %s (%s): %s", d.Message, t.outcome.State, t.outcome.Reason, t.outcome.Message))
	res.Path, res.WouldBe = a.nameOf(path), &t.outcome
	return res, nil
}

func dryRun(ctx context.Context, path Resizer, pod *corev1.Pod, want Resources) (Outcome, error) {
	runner, ok := path.(DryRunner)
	if !ok {
		return Outcome{State: StateInProgress, Reason: ReasonSent, Message: "this path has no dry run, so nobody was asked"}, nil
	}
	res, err := runner.DryRun(ctx, pod, want)
	return Outcome{State: res.State, Reason: res.Reason, Message: res.Message}, err
}

// withheld is the answer to a change that the gate keeps from being made: with all that is known of what was asked for before.
func withheld(judged Result, reason Reason, message string) Result {
	res := judged
	if judged.State != StateDone {
		res.Warnings = append(slices.Clip(res.Warnings), fmt.Sprintf("what was asked for before is %s (%s): %s", judged.State, judged.Reason, judged.Message))
	}
	res.State, res.Reason, res.Message = StateRefused, reason, message
	if res.RetryAfter == 0 || res.RetryAfter > pollDeferred {
		res.RetryAfter = pollDeferred
	}
	return res
}

// gateFinding is what a gate that is not open adds to a plan; nil: it is open, or there is nothing to send.
func (a *Adapter) gateFinding(ctx context.Context, path Resizer, pod *corev1.Pod, f *Forecast) {
	if a.passages == nil || len(f.Changes.Containers) == 0 {
		return
	}
	decision, err := a.passages.gate.Decide(ctx, pod, a.nameOf(path))
	finding := Finding{State: StateRefused, Reason: ReasonGateOff, Message: decision.Message}
	switch {
	case err != nil:
		f.Warnings = append(f.Warnings, fmt.Sprintf("the gate cannot tell now, and nothing is sent until it can: %v", err))
		return
	case decision.Mode == ModeOn:
		return
	case decision.Mode == ModeObserve:
		finding.Reason = ReasonObserved
	}
	f.Findings = append(f.Findings, finding)
}
