package resizetest_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/resizetest"
)

// TestFake runs the suite on the Fake. TestFaults calls it with a fault.
func TestFake(t *testing.T) {
	spoil := faults()[os.Getenv(faultVariable)].spoil
	for _, looks := range []int{0, 3} {
		t.Run(fmt.Sprintf("%d looks", looks), func(t *testing.T) {
			fake := resizetest.NewFake(resizetest.FakeOptions{Looks: looks})
			env := envOf(fake)
			if spoil != nil {
				spoil(&env, fake)
			}
			resizetest.Run(t, env)
		})
	}
}

func envOf(fake *resizetest.Fake) resizetest.Env {
	return resizetest.Env{
		Resizer: func(*testing.T) resize.Resizer { return fake },
		Run:     func(_ *testing.T, template *corev1.Pod) *corev1.Pod { return fake.Add(template) },
		Live: func(t *testing.T, pod *corev1.Pod) *corev1.Pod {
			t.Helper()
			live := fake.Pod(pod.UID)
			if live == nil {
				t.Fatalf("pod %q does not exist", pod.Name)
			}
			return live
		},
		Kernel: func(_ *testing.T, pod *corev1.Pod) map[string]resize.Kernel { return fake.Kernel(pod.UID) },
		Delete: func(_ *testing.T, pod *corev1.Pod) { fake.Remove(pod.UID) },
	}
}

func web() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi"),
			}},
		}}},
	}
}

func more() resize.Resources {
	return resize.Resources{Containers: map[string]resize.Requirements{
		"app": {Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}},
	}}
}

func TestScript(t *testing.T) {
	fake := resizetest.NewFake(resizetest.FakeOptions{})
	pod := fake.Add(web())
	lost := &resize.Error{Reason: resize.ReasonUnavailable, Message: "patching", Retryable: true}
	fake.Script(pod.UID,
		resizetest.Answer{Err: lost},
		resizetest.Answer{Result: resize.Result{State: resize.StateRefused, Reason: resize.ReasonNotEnforced}},
		resizetest.Answer{Result: resize.Result{State: resize.StateDeferred, Reason: resize.ReasonNodeFull, RetryAfter: time.Minute}, Times: 2},
		resizetest.Answer{Result: resize.Result{State: resize.StateUnconfirmed, Reason: resize.ReasonWaitingForKubelet}},
	)
	for i, want := range []struct {
		state  resize.State
		err    error
		retry  time.Duration
		inSpec string
	}{
		{err: lost, inSpec: "100m"},
		{state: resize.StateRefused, inSpec: "100m"},
		{state: resize.StateDeferred, retry: time.Minute, inSpec: "200m"},
		{state: resize.StateDeferred, retry: time.Minute, inSpec: "200m"},
		{state: resize.StateUnconfirmed, retry: time.Second, inSpec: "200m"},
		{state: resize.StateDone, inSpec: "200m"},
	} {
		res, err := fake.Resize(t.Context(), pod, more())
		if !errors.Is(err, want.err) || res.State != want.state || res.RetryAfter != want.retry {
			t.Errorf("call %d: %+v, %v", i, res, err)
		}
		spec := fake.Pod(pod.UID).Spec.Containers[0].Resources.Requests
		if got := spec.Cpu().String(); got != want.inSpec || spec.StorageEphemeral().String() != "1Gi" {
			t.Errorf("call %d: spec has %v", i, spec)
		}
		if shares := *fake.Kernel(pod.UID)["app"].CPUShares; (shares == 204) != (want.state == resize.StateDone) {
			t.Errorf("call %d: the kernel has %d shares", i, shares)
		}
	}
}

func TestScriptEnds(t *testing.T) {
	fake := resizetest.NewFake(resizetest.FakeOptions{})
	pod := fake.Add(web())
	fake.Script(pod.UID, resizetest.Answer{Result: resize.Result{State: resize.StateDeferred, Reason: resize.ReasonNodeFull}, Times: 1000})
	if res, err := fake.Resize(t.Context(), pod, more()); err != nil || res.State != resize.StateDeferred {
		t.Errorf("with a script: %+v, %v", res, err)
	}
	fake.Script(pod.UID)
	if res, err := fake.Resize(t.Context(), pod, more()); err != nil || res.State != resize.StateDone {
		t.Errorf("after it: %+v, %v", res, err)
	}
}
