package resizetest

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize"
)

const (
	// patience is how long a resize may take to be Done. Kubelets of 1.27 to 1.31 take more than a minute to tell.
	patience = 3 * time.Minute
	// promptly is how long a call may take that has nothing to wait for.
	promptly = 5 * time.Second
)

// subject is one pod that is resized.
type subject struct {
	env Env
	// start is the pod as it came to run.
	start *corev1.Pod
	// asked is all that was asked for so far, one want on top of the other.
	asked resize.Resources
	// observer never asks for anything. It is asked what should be now.
	observer resize.Resizer
}

func newSubject(t *testing.T, env Env, name string) *subject {
	t.Helper()
	template := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, name := range []string{"app", "log"} {
		r := begin().Containers[name]
		template.Spec.Containers = append(template.Spec.Containers, corev1.Container{
			Name: name, Resources: corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits},
		})
	}
	s := &subject{env: env, start: env.Run(t, template), observer: env.Resizer(t)}
	s.holds(t)
	return s
}

// begin is what the pod of a subject has before it is resized: Burstable, with every request and limit.
func begin() resize.Resources {
	return resize.Resources{Containers: map[string]resize.Requirements{
		"app": both(cpu("50m", "100m"), memory("16Mi", "32Mi")),
		"log": both(cpu("20m", "60m"), memory("16Mi", "32Mi")),
	}}
}

func cpu(request, limit string) resize.Requirements {
	return amounts(corev1.ResourceCPU, request, limit)
}

func memory(request, limit string) resize.Requirements {
	return amounts(corev1.ResourceMemory, request, limit)
}

// amounts leaves out what is empty.
func amounts(name corev1.ResourceName, request, limit string) resize.Requirements {
	r := resize.Requirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	if request != "" {
		r.Requests[name] = resource.MustParse(request)
	}
	if limit != "" {
		r.Limits[name] = resource.MustParse(limit)
	}
	return r
}

func both(a, b resize.Requirements) resize.Requirements { return resize.Merge(a, b) }

func app(r resize.Requirements) resize.Resources { return of("app", r) }

func of(container string, r resize.Requirements) resize.Resources {
	return resize.Resources{Containers: map[string]resize.Requirements{container: r}}
}

// target is what the pod should have after all that was asked for.
func (s *subject) target() resize.Resources { return resize.Target(s.start, s.asked) }

func (s *subject) live(t *testing.T) *corev1.Pod {
	t.Helper()
	return s.env.Live(t, s.start)
}

// look is one call of Resize, with all that must hold after any call.
func (s *subject) look(t *testing.T, r resize.Resizer, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
	t.Helper()
	passed := pod.DeepCopy()
	res, err := r.Resize(t.Context(), pod, want)
	if !equality.Semantic.DeepEqual(pod, passed) {
		t.Fatal("Resize wrote to the pod that it was passed, which may be an informer's")
	}
	if err != nil {
		checkError(t, err)
		return res, err
	}
	checkResult(t, res)
	if res.State != resize.StateInfeasible && res.State != resize.StateRefused {
		s.asked = onTop(s.asked, want)
	}
	if res.State == resize.StateDone {
		s.checkDone(t, want)
	}
	return res, nil
}

// onTop lays want over base.
func onTop(base, want resize.Resources) resize.Resources {
	out := resize.Resources{Containers: map[string]resize.Requirements{}}
	for _, layer := range []resize.Resources{base, want} {
		for name, r := range layer.Containers {
			out.Containers[name] = resize.Merge(out.Containers[name], r)
		}
	}
	return out
}

func checkError(t *testing.T, err error) {
	t.Helper()
	var failure *resize.Error
	if !errors.As(err, &failure) {
		t.Fatalf("the error is a %T, not a *resize.Error: %v", err, err)
	}
	if failure.Reason == "" || failure.Message == "" {
		t.Fatalf("the error has reason %q and message %q", failure.Reason, failure.Message)
	}
}

func checkResult(t *testing.T, res resize.Result) {
	t.Helper()
	if res.Reason == "" {
		t.Fatalf("%s without a reason: %+v", res.State, res)
	}
	switch res.State {
	case resize.StateDone, resize.StateInfeasible:
		if res.RetryAfter != 0 {
			t.Fatalf("%s (%s) has nothing to wait for, and says to wait %s", res.State, res.Reason, res.RetryAfter)
		}
	case resize.StateInProgress, resize.StateDeferred, resize.StateUnconfirmed:
		if res.RetryAfter <= 0 {
			t.Fatalf("%s (%s) without a time to call again: %+v", res.State, res.Reason, res)
		}
	case resize.StateRefused:
	default:
		t.Fatalf("unknown state %q", res.State)
	}
}

// checkDone insists that what is named by want is what should be, and is what the kernel holds.
func (s *subject) checkDone(t *testing.T, want resize.Resources) {
	t.Helper()
	kernel := s.env.Kernel(t, s.start) // first, before time heals
	if len(want.Containers) == 0 {
		want = s.target()
	}
	for name, r := range want.Containers {
		if l := lacks(r, kernel[name]); l != "" {
			t.Fatalf("Done is said, and container %q does not have it: %s", name, l)
		}
	}
	if missing := resize.Changes(withResources(s.start, s.desired(t)), want); len(missing.Containers) > 0 {
		t.Fatalf("Done is said while something else is asked for: of %+v this is missing: %+v", want, missing)
	}
}

// withResources is the pod with these resources.
func withResources(pod *corev1.Pod, all resize.Resources) *corev1.Pod {
	pod = pod.DeepCopy()
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Resources.Requests, c.Resources.Limits = all.Containers[c.Name].Requests, all.Containers[c.Name].Limits
	}
	return pod
}

// desired is what the pod should have by the word of one who asks for nothing.
func (s *subject) desired(t *testing.T) resize.Resources {
	t.Helper()
	res, err := s.observer.Resize(t.Context(), s.live(t), resize.Resources{})
	if err != nil {
		t.Fatalf("asking for nothing: %v", err)
	}
	out := resize.Resources{Containers: map[string]resize.Requirements{}}
	for _, c := range res.Containers {
		out.Containers[c.Name] = c.Desired
	}
	return out
}

// holds insists that the kernel has for pod and containers all that was asked for, and nothing else.
func (s *subject) holds(t *testing.T) {
	t.Helper()
	kernel, target := s.env.Kernel(t, s.start), s.target()
	for name, r := range target.Containers {
		if l := lacks(r, kernel[name]); l != "" {
			t.Fatalf("container %q: %s", name, l)
		}
	}
	if l := lacks(sum(target), kernel[""]); l != "" {
		t.Fatalf("the pod: %s", l)
	}
}

// settle looks with ever newer pods until it is Done.
func (s *subject) settle(t *testing.T, r resize.Resizer, want resize.Resources) {
	t.Helper()
	s.repeat(t, func() bool {
		res, err := s.look(t, r, s.live(t), want)
		return settled(t, res, err)
	})
}

// settleLate is settle with pods that are each one read old; previous is the first.
func (s *subject) settleLate(t *testing.T, r resize.Resizer, previous *corev1.Pod, want resize.Resources) {
	t.Helper()
	s.repeat(t, func() bool {
		newer := s.live(t)
		res, err := s.look(t, r, previous, want)
		previous = newer
		return settled(t, res, err)
	})
}

// settled says whether it is Done, and ends the test where it will not be.
func settled(t *testing.T, res resize.Result, err error) bool {
	t.Helper()
	var failure *resize.Error
	switch {
	case errors.As(err, &failure) && !failure.Retryable:
		t.Fatal(err)
	case err != nil:
		return false
	case res.State == resize.StateInfeasible, res.State == resize.StateRefused:
		t.Fatalf("%s (%s): %s", res.State, res.Reason, res.Message)
	}
	return res.State == resize.StateDone
}

// repeat asks every 20 ms until done says so.
func (s *subject) repeat(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !done(); <-tick.C {
		if time.Since(began) > patience {
			t.Fatalf("not Done within %s", patience)
		}
	}
}

// unchanged insists that nothing was done or asked for since the pod came to run.
func (s *subject) unchanged(t *testing.T) {
	t.Helper()
	s.asked = resize.Resources{}
	s.holds(t)
	if missing := resize.Changes(withResources(s.start, s.desired(t)), s.target()); len(missing.Containers) > 0 {
		t.Fatalf("something else is asked for: this is missing: %+v", missing)
	}
	if missing := resize.Changes(s.live(t), s.target()); len(missing.Containers) > 0 {
		t.Fatalf("the pod's spec was changed: this is missing: %+v", missing)
	}
}

// unharmed insists that no container was restarted.
func (s *subject) unharmed(t *testing.T) {
	t.Helper()
	before := map[string]corev1.ContainerStatus{}
	for _, c := range s.start.Status.ContainerStatuses {
		before[c.Name] = c
	}
	for _, c := range s.live(t).Status.ContainerStatuses {
		if b := before[c.Name]; c.RestartCount != b.RestartCount || c.ContainerID != b.ContainerID {
			t.Errorf("container %q was restarted: %d times, as %q; before %d times, as %q", c.Name, c.RestartCount, c.ContainerID, b.RestartCount, b.ContainerID)
		}
	}
}
