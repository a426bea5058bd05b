package fallback_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// sidecarPod is the pod with a sidecar that is in this state.
func sidecarPod(state corev1.ContainerState) *corev1.Pod {
	p := newPod()
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: v1alpha1.SidecarContainer, Resources: corev1.ResourceRequirements{
		Requests: list("cpu=100m memory=64Mi"), Limits: list("cpu=100m memory=64Mi"),
	}})
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: v1alpha1.SidecarContainer, State: state})
	return p
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

// noLease is that of another node: no agent runs on this one.
func noLease() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: "none"}}
}

// heartbeat is written by the sidecar, by its own clock.
func (b *bed) heartbeat(t *testing.T, at time.Time) {
	t.Helper()
	object := b.object(t)
	object.Status.Heartbeat = ptr.To(metav1.NewMicroTime(at))
	if err := b.client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// TestSidecarHolds: a pod with a sidecar is resized without any agent on its node; the object names the sidecar and has its container,
// as it is.
func TestSidecarHolds(t *testing.T) {
	b := newBed(t, interceptor.Funcs{}, noLease())
	asked := want("cpu=200m", "cpu=400m")
	b.expect(t, newPod(), asked, resize.StateDeferred, resize.ReasonAgentNotReady)
	b.expect(t, sidecarPod(running()), asked, resize.StateInProgress, resize.ReasonSent)
	spec := b.object(t).Spec
	if spec.Sidecar != v1alpha1.SidecarContainer {
		t.Errorf("the object's sidecar is %q", spec.Sidecar)
	}
	if c := spec.Containers[1]; c.Name != v1alpha1.SidecarContainer || !equality.Semantic.DeepEqual(c.Wanted, c.Before) || len(c.Wanted.Limits) != 2 {
		t.Errorf("its container in the object: %+v", c)
	}
	b.heartbeat(t, b.clock.Now())
	b.answer(t, metav1.ConditionTrue, v1alpha1.ReasonApplied, "")
	b.expect(t, sidecarPod(running()), asked, resize.StateDone, resize.ReasonConfirmed)
}

// TestSidecarNotRunning: what keeps its container from running is told, before there is an object and after.
func TestSidecarNotRunning(t *testing.T) {
	for _, c := range []struct {
		name  string
		state corev1.ContainerState
		say   string
	}{
		{"waiting", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}, "ImagePullBackOff"},
		{"waiting with a message", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}, "CrashLoopBackOff: back-off 10s"},
		{"ended", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}, "OOMKilled, exit code 137"},
		{"unknown", corev1.ContainerState{}, "no such container"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, interceptor.Funcs{}) // with an agent on the node, which is not asked
			notReady := func(asked resize.Resources) {
				t.Helper()
				if res := b.expect(t, sidecarPod(c.state), asked, resize.StateDeferred, resize.ReasonAgentNotReady); !strings.Contains(res.Message, c.say) {
					t.Errorf("message %q", res.Message)
				}
			}
			notReady(want("cpu=200m", ""))
			if len(b.writes) > 0 {
				t.Errorf("writes: %v", b.writes)
			}
			b.expect(t, sidecarPod(running()), want("cpu=200m", ""), resize.StateInProgress, resize.ReasonSent)
			b.heartbeat(t, b.clock.Now())
			notReady(want("cpu=200m", "")) // waiting for its answer
			notReady(want("cpu=150m", ""))
		})
	}
}

// TestSidecarHeartbeat: a heartbeat counts for 120 s of the caller's clock after it was seen to change, whatever time it tells.
func TestSidecarHeartbeat(t *testing.T) {
	b, pod, asked := newBed(t, interceptor.Funcs{}, noLease()), sidecarPod(running()), want("cpu=200m", "")
	waits := func() {
		t.Helper()
		b.expect(t, pod, asked, resize.StateInProgress, resize.ReasonWaitingForAgent)
	}
	stale := func(say string) {
		t.Helper()
		if res := b.expect(t, pod, asked, resize.StateDeferred, resize.ReasonAgentNotReady); !strings.Contains(res.Message, say) {
			t.Errorf("message %q", res.Message)
		}
	}
	b.expect(t, pod, asked, resize.StateInProgress, resize.ReasonSent)
	waits()
	b.later(119 * time.Second)
	waits()
	b.later(time.Second)
	stale("no heartbeat since its CRIResize was made, 2m0s ago")
	b.heartbeat(t, b.clock.Now().Add(-time.Hour)) // its clock is another
	waits()
	b.later(119 * time.Second)
	waits()
	b.later(time.Second)
	stale("last renewed its heartbeat in the CRIResize, 2m0s ago")
	b.heartbeat(t, b.clock.Now().Add(-time.Hour))
	waits() // it was restarted
}

// TestSidecarHandOver: a pod is handed over when its sidecar has said that it no longer enforces, or is no longer there.
func TestSidecarHandOver(t *testing.T) {
	b, pod := newBed(t, interceptor.Funcs{}, noLease()), sidecarPod(running())
	ended := func(pod *corev1.Pod, want bool) {
		t.Helper()
		_, got, err := b.resizer.HandOver(t.Context(), pod)
		if err != nil || got != want {
			t.Errorf("ended: %t, expected %t; error %v", got, want, err)
		}
	}
	b.expect(t, pod, want("cpu=200m", ""), resize.StateInProgress, resize.ReasonSent)
	b.heartbeat(t, b.clock.Now())
	ended(pod, false) // asks for it
	ended(pod, false)
	ended(sidecarPod(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}), true)
	b.answer(t, metav1.ConditionFalse, v1alpha1.ReasonNotEnforced, "")
	ended(pod, true)
}
