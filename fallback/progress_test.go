package fallback_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const within = 5 * time.Minute

// TestAgentsWords is the table of what each reason of an agent means to a caller, at once and after the deadline.
func TestAgentsWords(t *testing.T) {
	const expires = resize.StateUnconfirmed
	for _, tc := range []struct {
		says   string
		status metav1.ConditionStatus
		state  resize.State
		reason resize.Reason
		late   resize.State
	}{
		{says: v1alpha1.ReasonApplied, status: metav1.ConditionTrue, state: resize.StateDone, reason: resize.ReasonConfirmed, late: resize.StateDone},
		{says: v1alpha1.ReasonPending, status: metav1.ConditionFalse, state: resize.StateInProgress, reason: resize.ReasonWaitingForAgent, late: expires},
		{says: v1alpha1.ReasonContainerNotRunning, status: metav1.ConditionFalse, state: resize.StateInProgress, reason: resize.ReasonWaitingForContainer, late: expires},
		{says: v1alpha1.ReasonPodNotFound, status: metav1.ConditionFalse, state: resize.StateInProgress, reason: resize.ReasonWaitingForContainer, late: expires},
		{says: v1alpha1.ReasonMemoryInUse, status: metav1.ConditionFalse, state: resize.StateDeferred, reason: resize.ReasonMemoryInUse, late: resize.StateDeferred},
		{says: v1alpha1.ReasonRuntimeUnavailable, status: metav1.ConditionFalse, state: resize.StateInProgress, reason: resize.ReasonAgentError, late: expires},
		{says: v1alpha1.ReasonWriteFailed, status: metav1.ConditionFalse, state: resize.StateInProgress, reason: resize.ReasonAgentError, late: expires},
		{says: v1alpha1.ReasonNodeDiffers, status: metav1.ConditionFalse, state: resize.StateRefused, reason: resize.ReasonNodeDiffers, late: resize.StateRefused},
		{says: v1alpha1.ReasonNotEnforced, status: metav1.ConditionFalse, state: resize.StateRefused, reason: resize.ReasonNotEnforced, late: resize.StateRefused},
		{says: v1alpha1.ReasonExceedsNode, status: metav1.ConditionFalse, state: resize.StateInfeasible, reason: resize.ReasonNodeTooSmall, late: resize.StateInfeasible},
		{says: v1alpha1.ReasonNotOptedIn, status: metav1.ConditionFalse, state: resize.StateRefused, reason: resize.ReasonNotOptedIn, late: resize.StateRefused},
		{says: "OfTheFuture", status: metav1.ConditionFalse, state: resize.StateInProgress, reason: resize.ReasonAgentError, late: expires},
	} {
		t.Run(tc.says, func(t *testing.T) {
			b := newBed(t, interceptor.Funcs{})
			asked := want("cpu=200m", "cpu=400m")
			b.expect(t, newPod(), asked, resize.StateInProgress, resize.ReasonSent)
			b.answer(t, tc.status, tc.says, "the agent's words")
			res := b.expect(t, newPod(), asked, tc.state, tc.reason)
			if res.Path != resize.PathCRI || res.Message != "the agent's words" || !res.Since.Equal(b.clock.Now()) {
				t.Errorf("got path %q, %q since %s", res.Path, res.Message, res.Since)
			}
			b.later(within)
			b.renew(t, b.clock.Now())
			b.expect(t, newPod(), asked, tc.late, tc.reason)
		})
	}
}

// TestProof: Done comes with the kernel's figures, and with what is wanted on this path, not what spec says.
func TestProof(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	b.expect(t, newPod(), want("cpu=200m", "cpu=400m"), resize.StateInProgress, resize.ReasonSent)
	b.answer(t, metav1.ConditionTrue, v1alpha1.ReasonApplied, "")
	res := b.expect(t, newPod(), resize.Resources{}, resize.StateDone, resize.ReasonConfirmed)
	kernel := &resize.Kernel{CPUShares: ptr.To[int64](204), CPUQuotaMicroseconds: 40000, CPUPeriodMicroseconds: 100000, MemoryLimitBytes: -1}
	if diff := cmp.Diff(kernel, res.Pod); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]resize.ContainerEvidence{{
		Name: "app", Desired: resize.Requirements{Requests: list("cpu=200m memory=128Mi"), Limits: list("cpu=400m memory=256Mi")},
		Kernel: kernel, RestartCount: 2,
	}}, res.Containers); diff != "" {
		t.Error(diff)
	}
}

// TestStaleProof: an answer about another generation, or another run of a container, proves nothing.
func TestStaleProof(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	b.expect(t, newPod(), want("cpu=200m", "cpu=400m"), resize.StateInProgress, resize.ReasonSent)
	b.answer(t, metav1.ConditionTrue, v1alpha1.ReasonApplied, "")
	restarted := newPod()
	restarted.Status.ContainerStatuses[0].ContainerID = "containerd://c2"
	res := b.expect(t, restarted, resize.Resources{}, resize.StateInProgress, resize.ReasonWaitingForAgent)
	if !strings.Contains(res.Message, `"app" is not in the run`) {
		t.Errorf("message %q", res.Message)
	}
	down := newPod()
	down.Status.ContainerStatuses[0].State = corev1.ContainerState{}
	b.expect(t, down, resize.Resources{}, resize.StateInProgress, resize.ReasonWaitingForAgent)
	b.expect(t, newPod(), want("cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
	b.expect(t, newPod(), want("cpu=150m", ""), resize.StateInProgress, resize.ReasonWaitingForAgent)
	b.answer(t, metav1.ConditionTrue, v1alpha1.ReasonApplied, "")
	b.expect(t, newPod(), want("cpu=150m", ""), resize.StateDone, resize.ReasonConfirmed)
}

// TestAgentDies after it was asked.
func TestAgentDies(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	asked := want("cpu=150m", "")
	b.expect(t, newPod(), asked, resize.StateInProgress, resize.ReasonSent)
	b.later(time.Minute)
	b.expect(t, newPod(), asked, resize.StateInProgress, resize.ReasonWaitingForAgent)
	b.later(time.Minute)
	res := b.expect(t, newPod(), asked, resize.StateDeferred, resize.ReasonAgentNotReady)
	if len(res.Containers) != 1 || len(b.writes) != 1 {
		t.Errorf("containers %v, writes %q", res.Containers, b.writes)
	}
}

// TestUnconfirmed: an agent that lives but does not answer.
func TestUnconfirmed(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	asked := want("cpu=150m", "")
	b.expect(t, newPod(), asked, resize.StateInProgress, resize.ReasonSent)
	for range 5 {
		b.expect(t, newPod(), asked, resize.StateInProgress, resize.ReasonWaitingForAgent)
		b.later(time.Minute)
		b.renew(t, b.clock.Now())
	}
	res := b.expect(t, newPod(), asked, resize.StateUnconfirmed, resize.ReasonWaitingForAgent)
	if !res.Since.Equal(start) || !strings.Contains(res.Message, "not confirmed after 5m0s") {
		t.Errorf("%q since %s", res.Message, res.Since)
	}
}

// TestTimeOfTheLastChange: a new want has the whole time, however long the agent has been failing at an older one.
func TestTimeOfTheLastChange(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	b.expect(t, newPod(), want("cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
	b.answer(t, metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, "EBUSY")
	b.later(within)
	b.expect(t, newPod(), want("cpu=150m", ""), resize.StateUnconfirmed, resize.ReasonAgentError)
	b.renew(t, b.clock.Now())
	b.expect(t, newPod(), want("cpu=160m", ""), resize.StateInProgress, resize.ReasonSent)
	b.answer(t, metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, "EBUSY") // the condition is False since before
	b.expect(t, newPod(), want("cpu=160m", ""), resize.StateInProgress, resize.ReasonAgentError)
}
