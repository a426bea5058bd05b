package fallback

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// progress judges what the agent says of the object.
func (r *Resizer) progress(pod *corev1.Pod, object *v1alpha1.CRIResize) resize.Result {
	res := resize.Result{Path: resize.PathCRI, Containers: evidence(effective(pod, object), object), Pod: kernel(object.Status.Pod)}
	applied := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionApplied)
	if applied == nil || applied.ObservedGeneration != object.Generation {
		res.State, res.Reason, res.RetryAfter = resize.StateInProgress, resize.ReasonWaitingForAgent, pollSoon
		res.Message = fmt.Sprintf("%s has not answered yet", holder(object))
		return r.expire(res, r.askedAt(object, applied))
	}
	res.Message, res.Since = applied.Message, applied.LastTransitionTime.Time
	if name, outdated := anotherRun(pod, object); outdated && applied.Status == metav1.ConditionTrue {
		res.State, res.Reason, res.RetryAfter = resize.StateInProgress, resize.ReasonWaitingForAgent, pollSoon
		res.Message = fmt.Sprintf("container %q is not in the run that %s has answered for", name, holder(object))
		return res
	}
	if applied.Status == metav1.ConditionTrue {
		res.State, res.Reason = resize.StateDone, resize.ReasonConfirmed
		return res
	}
	res.State, res.Reason, res.RetryAfter = standing(applied.Reason)
	if res.State == resize.StateInProgress {
		return r.expire(res, later(r.askedAt(object, applied), applied.LastTransitionTime.Time))
	}
	return res
}

// holder is who holds the object.
func holder(object *v1alpha1.CRIResize) string {
	if object.Spec.Sidecar != "" {
		return fmt.Sprintf("the sidecar %q", object.Spec.Sidecar)
	}
	return fmt.Sprintf("the agent of node %q", object.Spec.NodeName)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// anotherRun finds a container of which pod and proof do not speak of the same run, or that is not running: it was restarted or is
// about to be, and either may be the older.
func anotherRun(pod *corev1.Pod, object *v1alpha1.CRIResize) (name string, found bool) {
	for _, s := range pod.Status.ContainerStatuses {
		for _, k := range object.Status.Containers {
			if s.Name == k.Name && s.State.Running == nil {
				return s.Name, true
			}
			if s.Name == k.Name && s.ContainerID != "" && !strings.HasSuffix(s.ContainerID, "://"+k.ContainerID) {
				return s.Name, true
			}
		}
	}
	return "", false
}

// standing translates the agent's reasons into the caller's.
func standing(reason string) (resize.State, resize.Reason, time.Duration) {
	switch reason {
	case v1alpha1.ReasonMemoryInUse:
		return resize.StateDeferred, resize.ReasonMemoryInUse, pollDeferred
	case v1alpha1.ReasonContended:
		return resize.StateDeferred, resize.ReasonContended, pollDeferred
	case v1alpha1.ReasonSandboxed, v1alpha1.ReasonExclusiveCPUs:
		return resize.StateInfeasible, resize.ReasonUnsupportedPod, 0
	case v1alpha1.ReasonExceedsNode:
		return resize.StateInfeasible, resize.ReasonNodeTooSmall, 0
	case v1alpha1.ReasonNotOptedIn:
		return resize.StateRefused, resize.ReasonNotOptedIn, pollDeferred
	case v1alpha1.ReasonNodeDiffers:
		return resize.StateRefused, resize.ReasonNodeDiffers, pollDeferred
	case v1alpha1.ReasonNotEnforced:
		return resize.StateRefused, resize.ReasonNotEnforced, pollDeferred
	case v1alpha1.ReasonContainerNotRunning, v1alpha1.ReasonPodNotFound:
		return resize.StateInProgress, resize.ReasonWaitingForContainer, pollSoon
	case v1alpha1.ReasonPending:
		return resize.StateInProgress, resize.ReasonWaitingForAgent, pollSoon
	default:
		return resize.StateInProgress, resize.ReasonAgentError, pollSoon
	}
}

// askedAt is when the object came to ask for what it asks for, as far as it tells.
func (r *Resizer) askedAt(object *v1alpha1.CRIResize, applied *metav1.Condition) time.Time {
	since := object.CreationTimestamp.Time
	for _, f := range object.ManagedFields {
		if f.Subresource == "" && f.Time != nil && f.Time.After(since) {
			since = f.Time.Time
		}
	}
	if since.IsZero() && applied == nil {
		return r.opts.Clock.Now()
	}
	return since
}

func (r *Resizer) expire(res resize.Result, asked time.Time) resize.Result {
	if res.Since.IsZero() {
		res.Since = asked
	}
	if took := r.opts.Clock.Now().Sub(asked); took >= r.opts.ConfirmWithin {
		res.State, res.RetryAfter = resize.StateUnconfirmed, pollDeferred
		res.Message = fmt.Sprintf("not confirmed after %s: %s", took.Round(time.Second), res.Message)
	}
	return res
}

func evidence(held *corev1.Pod, object *v1alpha1.CRIResize) []resize.ContainerEvidence {
	desired := resize.Target(held, resize.Resources{})
	out := make([]resize.ContainerEvidence, 0, len(held.Spec.Containers))
	for _, c := range held.Spec.Containers {
		e := resize.ContainerEvidence{Name: c.Name, Desired: desired.Containers[c.Name]}
		for _, s := range held.Status.ContainerStatuses {
			if s.Name == c.Name {
				e.RestartCount = s.RestartCount
			}
		}
		if object != nil {
			for _, k := range object.Status.Containers {
				if k.Name == c.Name {
					e.Kernel, e.RestartCount = kernel(&k.Kernel), max(e.RestartCount, k.RestartCount)
				}
			}
		}
		out = append(out, e)
	}
	return out
}

func kernel(k *v1alpha1.Kernel) *resize.Kernel {
	if k == nil {
		return nil
	}
	out := resize.Kernel(*k)
	return &out
}
