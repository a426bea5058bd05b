package resizetest

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podresize/podresize/resize"
)

// FakeOptions tune a Fake. The zero value works.
type FakeOptions struct {
	// Looks is how many calls of Resize find a change still in progress after the one that asked for it. There is no clock in a
	// Fake: a node that nobody looks at does nothing.
	Looks int
	// Plan says what the caller allows.
	Plan resize.PlanOptions
}

// Fake is a Resizer in memory, for tests of what uses a Resizer. It is cluster and library in one: it holds pods, what they should
// have and what they have, refuses what resize.Plan refuses, and tells of a change as the in-place path does: Sent, then
// InProgress for FakeOptions.Looks calls, then Done. Script makes it answer otherwise. It is safe for concurrent use.
type Fake struct {
	opts FakeOptions

	mu   sync.Mutex
	pods map[types.UID]*fakePod
}

var _ resize.Resizer = (*Fake)(nil)

// fakePod has in spec what should be, and in the status of containers what is.
type fakePod struct {
	pod      *corev1.Pod
	previous *resize.Resources
	looks    int // until what is asked for is in force
	script   []Answer
}

// Answer is what a Fake says instead of what it would.
type Answer struct {
	// Result needs State and Reason. Path, Containers, Previous, and a RetryAfter of a second for states that are waited in, are
	// filled in. An empty State, or Done, lets the Fake say what is true.
	//
	// Deferred, InProgress and Unconfirmed take what is wanted into the pod's spec and leave what is in force, as a node does
	// that has heard and does not act. Infeasible and Refused take nothing.
	Result resize.Result
	// Err is returned instead of Result if it is set; nothing is taken.
	Err *resize.Error
	// Times is how many calls get this answer; zero: one.
	Times int
}

// NewFake makes a Fake without pods.
func NewFake(opts FakeOptions) *Fake {
	return &Fake{opts: opts, pods: map[types.UID]*fakePod{}}
}

// Add makes the Fake hold a pod and returns it as it runs there: with a UID, unless it has one, all regular containers and sidecars
// running, and in force what spec says. A Resize of a pod that was not added ends in PodNotFound.
func (f *Fake) Add(pod *corev1.Pod) *corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	pod = pod.DeepCopy()
	if pod.UID == "" {
		pod.UID = types.UID(fmt.Sprintf("fake-%d", len(f.pods)+1))
	}
	pod.Generation, pod.Status.ObservedGeneration, pod.ResourceVersion, pod.Status.Phase = 1, 0, "1", corev1.PodRunning
	pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = nil, nil
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, running(pod, c.Name))
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, running(pod, c.Name))
		}
	}
	p := &fakePod{pod: pod}
	p.act()
	f.pods[pod.UID] = p
	return pod.DeepCopy()
}

func running(pod *corev1.Pod, container string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: container, ContainerID: fmt.Sprintf("fake://%s/%s", pod.UID, container), Ready: true,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}
}

// Remove makes the Fake forget a pod.
func (f *Fake) Remove(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[uid] = nil
}

// Pod is the pod as an API server would have it now: spec has what should be, status what is. Nil: there is none.
func (f *Fake) Pod(uid types.UID) *corev1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[uid]
	if p == nil {
		return nil
	}
	return p.pod.DeepCopy()
}

// Kernel is what a kernel would hold for the containers by name and for the pod by "".
func (f *Fake) Kernel(uid types.UID) map[string]resize.Kernel {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[uid]
	if p == nil {
		return nil
	}
	actual := resize.Resources{Containers: map[string]resize.Requirements{}}
	out := map[string]resize.Kernel{}
	for _, e := range p.evidence() {
		actual.Containers[e.Name] = *e.Actual
		out[e.Name] = kernelOf(*e.Actual)
	}
	out[""] = kernelOf(sum(actual))
	return out
}

// Script makes the next calls for a pod get these answers, in this order, instead of any that are left of an earlier script. After
// them, and at once if there are none, the Fake says what is true again.
func (f *Fake) Script(uid types.UID, answers ...Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[uid]
	if p == nil {
		return
	}
	p.script = nil
	for _, a := range answers {
		for range max(a.Times, 1) {
			p.script = append(p.script, a)
		}
	}
}

// Resize implements resize.Resizer.
func (f *Fake) Resize(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
	if err := ctx.Err(); err != nil {
		return resize.Result{}, &resize.Error{
			Reason: resize.ReasonUnavailable, Retryable: true, Message: fmt.Sprintf("resizing pod %q", pod.Namespace+"/"+pod.Name), Err: err,
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[pod.UID]
	if p == nil {
		return resize.Result{}, &resize.Error{
			Reason: resize.ReasonPodNotFound, Message: fmt.Sprintf("pod %q with UID %q does not exist", pod.Namespace+"/"+pod.Name, pod.UID),
		}
	}
	if a := p.scripted(); a != nil {
		return p.answer(a, want)
	}
	if stops := resize.Stops(resize.Plan(p.pod, nil, resize.Server{Resize: true}, want, f.opts.Plan)); len(stops) > 0 {
		return resize.Stopped(resize.PathInPlace, p.pod, stops), nil
	}
	if p.take(want) {
		p.looks = f.opts.Looks
		return p.say(resize.StateInProgress, resize.ReasonSent, "the change was taken"), nil
	}
	return p.look(), nil
}

// scripted is the next answer of the script; nil: there is none.
func (p *fakePod) scripted() *Answer {
	if len(p.script) == 0 {
		return nil
	}
	a := p.script[0]
	p.script = p.script[1:]
	if a.Err == nil && (a.Result.State == "" || a.Result.State == resize.StateDone) {
		return nil
	}
	return &a
}

func (p *fakePod) answer(a *Answer, want resize.Resources) (resize.Result, error) {
	if a.Err != nil {
		return resize.Result{}, a.Err
	}
	if a.Result.State != resize.StateInfeasible && a.Result.State != resize.StateRefused {
		p.take(want)
	}
	full, res := p.say(a.Result.State, a.Result.Reason, a.Result.Message), a.Result
	res.Path, res.Containers, res.Previous = full.Path, full.Containers, full.Previous
	if res.RetryAfter == 0 {
		res.RetryAfter = full.RetryAfter
	}
	return res, nil
}

// take writes what is wanted into spec and says whether that changed anything.
func (p *fakePod) take(want resize.Resources) bool {
	delta := resize.Changes(p.pod, want)
	if len(delta.Containers) == 0 {
		return false
	}
	previous := resize.Replaced(p.pod, delta)
	p.previous = &previous
	target := resize.Target(p.pod, delta)
	for _, list := range [][]corev1.Container{p.pod.Spec.Containers, p.pod.Spec.InitContainers} {
		for i := range list {
			c, r := &list[i], target.Containers[list[i].Name]
			c.Resources.Requests, c.Resources.Limits = over(c.Resources.Requests, r.Requests), over(c.Resources.Limits, r.Limits)
		}
	}
	p.pod.Generation++
	p.moved()
	return true
}

func over(base, top corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(base)
	if out == nil {
		out = corev1.ResourceList{}
	}
	maps.Copy(out, top)
	return out
}

// moved counts the versions of the pod.
func (p *fakePod) moved() {
	version, _ := strconv.Atoi(p.pod.ResourceVersion) // nobody else writes it
	p.pod.ResourceVersion = strconv.Itoa(version + 1)
}

// look lets the node work while it is looked at.
func (p *fakePod) look() resize.Result {
	if p.looks > 0 {
		p.looks--
		return p.say(resize.StateInProgress, resize.ReasonWaitingForKubelet, "the node is changing the containers")
	}
	p.act()
	return p.say(resize.StateDone, resize.ReasonConfirmed, "the node has what spec says")
}

// act brings into force what spec says.
func (p *fakePod) act() {
	if p.pod.Status.ObservedGeneration == p.pod.Generation {
		return
	}
	p.pod.Status.ObservedGeneration = p.pod.Generation
	target := resize.Target(p.pod, resize.Resources{})
	for _, list := range [][]corev1.ContainerStatus{p.pod.Status.ContainerStatuses, p.pod.Status.InitContainerStatuses} {
		for i := range list {
			r := target.Containers[list[i].Name]
			list[i].AllocatedResources = maps.Clone(r.Requests)
			list[i].Resources = &corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits}
		}
	}
	p.moved()
}

func (p *fakePod) say(state resize.State, reason resize.Reason, message string) resize.Result {
	res := resize.Result{
		Path: resize.PathInPlace, State: state, Reason: reason, Message: message, Previous: p.previous, Containers: p.evidence(),
	}
	switch state {
	case resize.StateInProgress, resize.StateDeferred, resize.StateUnconfirmed:
		res.RetryAfter = time.Second
	default:
	}
	return res
}

func (p *fakePod) evidence() []resize.ContainerEvidence {
	var out []resize.ContainerEvidence
	desired := resize.Target(p.pod, resize.Resources{})
	for _, list := range [][]corev1.ContainerStatus{p.pod.Status.ContainerStatuses, p.pod.Status.InitContainerStatuses} {
		for i := range list {
			s := list[i].DeepCopy()
			out = append(out, resize.ContainerEvidence{
				Name: s.Name, Desired: desired.Containers[s.Name], Allocated: s.AllocatedResources, RestartCount: s.RestartCount,
				Actual: &resize.Requirements{Requests: s.Resources.Requests, Limits: s.Resources.Limits},
			})
		}
	}
	return out
}
