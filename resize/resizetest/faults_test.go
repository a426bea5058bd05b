package resizetest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/resizetest"
)

// faultVariable names the fault that TestFake is to run with.
const faultVariable = "RESIZETEST_FAULT"

// fault is something that a Resizer may do wrong.
type fault struct {
	// rule is one that must find it.
	rule  string
	spoil func(*resizetest.Env, *resizetest.Fake)
}

// resizer is a Resizer that is a function.
type resizer func(context.Context, *corev1.Pod, resize.Resources) (resize.Result, error)

func (r resizer) Resize(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
	return r(ctx, pod, want)
}

// each makes every Resizer of the environment a faulty one around the Fake.
func each(faulty func(*resizetest.Fake) resizer) func(*resizetest.Env, *resizetest.Fake) {
	return func(env *resizetest.Env, fake *resizetest.Fake) {
		env.Resizer = func(*testing.T) resize.Resizer { return faulty(fake) }
	}
}

// answering spoils what the Fake answers.
func answering(change func(res *resize.Result, pod *corev1.Pod, want resize.Resources)) func(*resizetest.Env, *resizetest.Fake) {
	return each(func(fake *resizetest.Fake) resizer {
		return func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
			res, err := fake.Resize(ctx, pod, want)
			if err == nil {
				change(&res, pod, want)
			}
			return res, err
		}
	})
}

func faults() map[string]fault {
	return map[string]fault{
		"Done when it was sent": {"Done is not said before the kernel holds it", answering(func(res *resize.Result, _ *corev1.Pod, _ resize.Resources) {
			if res.Reason == resize.ReasonSent {
				res.State, res.RetryAfter = resize.StateDone, 0
			}
		})},
		"Done when the pod that was passed has it": {"there and back with pods one read old", each(trusting)},
		"the same, in a new process":               {"there and back across a restart", each(trusting)},
		"no time to call again": {"what is in force is Done and stays Done", answering(func(res *resize.Result, _ *corev1.Pod, _ resize.Resources) {
			res.RetryAfter = 0
		})},
		"no reason": {"what is in force is Done and stays Done", answering(func(res *resize.Result, _ *corev1.Pod, _ resize.Resources) {
			res.Reason = ""
		})},
		"Done only once": {"what is in force is Done and stays Done", each(forgetful)},
		"writes to the pod": {"a restarted process", answering(func(_ *resize.Result, pod *corev1.Pod, _ resize.Resources) {
			pod.Labels = map[string]string{"resized": "yes"}
		})},
		"takes back what is not named": {"cpu then memory in two calls ends with both", each(total)},
		"the same, between callers":    {"two callers with different containers and resources", each(total)},
		"both get Done": {"two callers who want opposite things", answering(func(res *resize.Result, _ *corev1.Pod, want resize.Resources) {
			if len(want.Containers) > 0 {
				res.State, res.RetryAfter = resize.StateDone, 0
			}
		})},
		"half of what is impossible": {"what cannot be done changes nothing", each(half)},
		"the wrong reason": {"what cannot be done changes nothing", answering(func(res *resize.Result, _ *corev1.Pod, _ resize.Resources) {
			if res.State == resize.StateInfeasible {
				res.Reason = resize.ReasonRejected
			}
		})},
		"a memory limit stays": {"a memory limit is lowered", answering(func(res *resize.Result, _ *corev1.Pod, want resize.Resources) {
			if limit := want.Containers["app"].Limits[corev1.ResourceMemory]; limit.String() == "24Mi" {
				res.State, res.Reason, res.RetryAfter = resize.StateInfeasible, resize.ReasonMemoryLimit, 0
			}
		})},
		"a memory limit is lowered against the rules": {"a memory limit is lowered", func(env *resizetest.Env, _ *resizetest.Fake) { env.KeepsMemoryLimit = true }},
		"no way back":              {"Previous is the way back", answering(func(res *resize.Result, _ *corev1.Pod, _ resize.Resources) { res.Previous = nil })},
		"a wrong way back":         {"Previous is the way back", answering(func(res *resize.Result, _ *corev1.Pod, want resize.Resources) { res.Previous = &want })},
		"drops every other change": {"of 20 quick changes the last one wins", each(dropping)},
		"a foreign error": {"a cancelled context", each(func(fake *resizetest.Fake) resizer {
			return func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
				if err := ctx.Err(); err != nil {
					return resize.Result{}, err
				}
				return fake.Resize(ctx, pod, want)
			}
		})},
		"goes on without a context": {"a cancelled context", each(func(fake *resizetest.Fake) resizer {
			return func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
				return fake.Resize(context.WithoutCancel(ctx), pod, want)
			}
		})},
		"half done when it was cancelled": {"a cancelled context", each(func(fake *resizetest.Fake) resizer {
			return func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
				if ctx.Err() != nil {
					_, err := fake.Resize(context.WithoutCancel(ctx), pod, want)
					return resize.Result{}, errors.Join(err, &resize.Error{Reason: resize.ReasonUnknown, Message: "resizing", Err: ctx.Err()})
				}
				return fake.Resize(ctx, pod, want)
			}
		})},
		"knows pods by name": {"a pod that is gone, and another of its name", byName},
		"restarts a container": {"a restarted process", func(env *resizetest.Env, _ *resizetest.Fake) {
			live := env.Live
			env.Live = func(t *testing.T, pod *corev1.Pod) *corev1.Pod {
				t.Helper()
				pod = live(t, pod)
				pod.Status.ContainerStatuses[0].RestartCount++
				return pod
			}
		}},
		"forgets the pod's own cgroup": {"cpu then memory in two calls ends with both", func(env *resizetest.Env, fake *resizetest.Fake) {
			env.Kernel = func(_ *testing.T, pod *corev1.Pod) map[string]resize.Kernel {
				kernel := fake.Kernel(pod.UID)
				first := int64(71)
				kernel[""] = resize.Kernel{CPUShares: &first, CPUQuotaMicroseconds: 16000, CPUPeriodMicroseconds: 100000, MemoryLimitBytes: 64 << 20}
				return kernel
			}
		}},
	}
}

// trusting believes the spec of the pod that it was passed.
func trusting(fake *resizetest.Fake) resizer {
	return func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
		if len(want.Containers) > 0 && len(resize.Changes(pod, want).Containers) == 0 && pod.Status.ObservedGeneration == pod.Generation {
			return resize.Result{State: resize.StateDone, Reason: resize.ReasonConfirmed}, nil
		}
		return fake.Resize(ctx, pod, want)
	}
}

// forgetful says Done once.
func forgetful(fake *resizetest.Fake) resizer {
	var mu sync.Mutex
	said := map[types.UID]bool{}
	return func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
		res, err := fake.Resize(ctx, pod, want)
		mu.Lock()
		defer mu.Unlock()
		if res.State == resize.StateDone && said[pod.UID] {
			return resize.Result{State: resize.StateRefused, Reason: resize.ReasonNotEnforced}, nil
		}
		said[pod.UID] = said[pod.UID] || res.State == resize.StateDone
		return res, err
	}
}

// total takes what is not named back to what the pod began with.
func total(fake *resizetest.Fake) resizer {
	var mu sync.Mutex
	first := map[types.UID]resize.Resources{}
	return func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
		mu.Lock()
		if _, ok := first[pod.UID]; !ok {
			first[pod.UID] = resize.Target(pod, resize.Resources{})
		}
		all := resize.Resources{Containers: map[string]resize.Requirements{}}
		for name, r := range first[pod.UID].Containers {
			all.Containers[name] = resize.Merge(r, want.Containers[name])
		}
		mu.Unlock()
		if len(want.Containers) == 0 {
			all = want
		}
		return fake.Resize(ctx, pod, all)
	}
}

// half leaves out the containers that it does not know.
func half(fake *resizetest.Fake) resizer {
	return func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
		res, err := fake.Resize(ctx, pod, want)
		if known, ok := want.Containers["app"]; ok && res.Reason == resize.ReasonUnknownContainer {
			_, err = fake.Resize(ctx, pod, resize.Resources{Containers: map[string]resize.Requirements{"app": known}})
		}
		return res, err
	}
}

// dropping believes of every other change that it was sent.
func dropping(fake *resizetest.Fake) resizer {
	var mu sync.Mutex
	var last resize.Resources
	changes := 0
	return func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if !equality.Semantic.DeepEqual(last, want) {
			last = want
			changes++
		}
		if changes%2 == 0 {
			want = resize.Resources{}
		}
		return fake.Resize(ctx, pod, want)
	}
}

// byName takes the pod that has the name now for the one that was passed.
func byName(env *resizetest.Env, fake *resizetest.Fake) {
	var mu sync.Mutex
	latest, run := map[string]types.UID{}, env.Run
	env.Run = func(t *testing.T, template *corev1.Pod) *corev1.Pod {
		t.Helper()
		pod := run(t, template)
		mu.Lock()
		defer mu.Unlock()
		latest[pod.Name] = pod.UID
		return pod
	}
	env.Resizer = func(*testing.T) resize.Resizer {
		return resizer(func(ctx context.Context, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
			mu.Lock()
			pod = pod.DeepCopy()
			pod.UID = latest[pod.Name]
			mu.Unlock()
			return fake.Resize(ctx, pod, want)
		})
	}
}

// TestFaults: the suite finds each fault by the rule that is there for it.
func TestFaults(t *testing.T) {
	for name, f := range faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := strings.ReplaceAll(f.rule, " ", "_")
			suite := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestFake$/looks/Conformance/^"+rule+"$")
			suite.Env = append(os.Environ(), faultVariable+"="+name)
			out, err := suite.CombinedOutput()
			var failed *exec.ExitError
			if !errors.As(err, &failed) || !strings.Contains(string(out), "/Conformance/"+rule+" (") {
				t.Errorf("rule %q does not find it: %v\n%s", f.rule, err, out)
			}
		})
	}
}
