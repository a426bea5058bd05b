package fallback

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// sidecarOf is the container of the pod that holds it; empty: the node's agent does. What the object says it says for all its life.
func sidecarOf(pod *corev1.Pod, object *v1alpha1.CRIResize) string {
	if object != nil {
		return object.Spec.Sidecar
	}
	if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == v1alpha1.SidecarContainer }) {
		return v1alpha1.SidecarContainer
	}
	return ""
}

// sidecar judges a sidecar by its container and by its heartbeat. Before there is an object there is no heartbeat, and the first one is
// waited for as long as for the next.
func (a *agents) sidecar(pod *corev1.Pod, object *v1alpha1.CRIResize, name string) sign {
	if why := notRunning(pod, name); why != "" {
		return sign{why: fmt.Sprintf("the sidecar %q of pod %q, which resizes it, does not run: %s", name, podKey(pod), why)}
	}
	if object == nil {
		return sign{alive: true}
	}
	renewed, shown := object.CreationTimestamp.Time, "has shown no heartbeat since its CRIResize was made"
	if object.Status.Heartbeat != nil {
		renewed, shown = object.Status.Heartbeat.Time, "last renewed its heartbeat in the CRIResize"
	}
	if age := a.age(podKey(pod)+"/"+string(object.UID), renewed); age >= v1alpha1.AgentLeaseDuration {
		return sign{why: fmt.Sprintf("the sidecar %q of pod %q %s, %s ago", name, podKey(pod), shown, age.Round(time.Second))}
	}
	return sign{alive: true}
}

// notRunning says why a container does not run; empty: it does.
func notRunning(pod *corev1.Pod, name string) string {
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.Name != name:
		case s.State.Running != nil:
			return ""
		case s.State.Waiting != nil && s.State.Waiting.Message != "":
			return s.State.Waiting.Reason + ": " + s.State.Waiting.Message
		case s.State.Waiting != nil:
			return s.State.Waiting.Reason
		case s.State.Terminated != nil:
			return fmt.Sprintf("%s, exit code %d", s.State.Terminated.Reason, s.State.Terminated.ExitCode)
		}
	}
	return "the pod's status has no such container that was started"
}
