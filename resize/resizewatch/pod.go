package resizewatch

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// PodMoved lets an update of a pod through if something moved that a resize.Resizer judges: resources in spec and status,
// generations, what the kubelet says of a resize, whether containers run and how often they were restarted, the pod's phase,
// node, QoS class and deletion. Creations and deletions pass, and so does any object that is not a *corev1.Pod.
func PodMoved() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isPod := e.ObjectOld.(*corev1.Pod)
		after, isPodToo := e.ObjectNew.(*corev1.Pod)
		return !isPod || !isPodToo || podMoved(before, after)
	}}
}

func podMoved(a, b *corev1.Pod) bool {
	return a.UID != b.UID || // a watch that was interrupted can show two pods of one name as an update
		a.Generation != b.Generation ||
		!a.DeletionTimestamp.Equal(b.DeletionTimestamp) ||
		specMoved(&a.Spec, &b.Spec) ||
		statusMoved(&a.Status, &b.Status)
}

func specMoved(a, b *corev1.PodSpec) bool {
	return a.NodeName != b.NodeName ||
		requirementsMoved(a.Resources, b.Resources) ||
		containersMoved(a.Containers, b.Containers) ||
		containersMoved(a.InitContainers, b.InitContainers)
}

func containersMoved(a, b []corev1.Container) bool {
	if len(a) != len(b) {
		return true
	}
	for i := range a {
		if a[i].Name != b[i].Name || requirementsMoved(&a[i].Resources, &b[i].Resources) {
			return true
		}
	}
	return false
}

func statusMoved(a, b *corev1.PodStatus) bool {
	return a.Phase != b.Phase ||
		a.QOSClass != b.QOSClass ||
		a.Resize != b.Resize ||
		a.ObservedGeneration != b.ObservedGeneration ||
		conditionMoved(a.Conditions, b.Conditions, corev1.PodResizePending) ||
		conditionMoved(a.Conditions, b.Conditions, corev1.PodResizeInProgress) ||
		requirementsMoved(a.Resources, b.Resources) ||
		listMoved(a.AllocatedResources, b.AllocatedResources) ||
		statusesMoved(a.ContainerStatuses, b.ContainerStatuses) ||
		statusesMoved(a.InitContainerStatuses, b.InitContainerStatuses)
}

// conditionMoved leaves lastProbeTime out: kubelets set it to now each time they make the condition, whatever it says.
func conditionMoved(before, after []corev1.PodCondition, t corev1.PodConditionType) bool {
	a, b := condition(before, t), condition(after, t)
	if a == nil || b == nil {
		return a != b
	}
	return a.Status != b.Status || a.Reason != b.Reason || a.Message != b.Message ||
		a.ObservedGeneration != b.ObservedGeneration || !a.LastTransitionTime.Equal(&b.LastTransitionTime)
}

func condition(all []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range all {
		if all[i].Type == t {
			return &all[i]
		}
	}
	return nil
}

// statusesMoved compares place by place: kubelets sort container statuses.
func statusesMoved(a, b []corev1.ContainerStatus) bool {
	if len(a) != len(b) {
		return true
	}
	for i := range a {
		if containerMoved(&a[i], &b[i]) {
			return true
		}
	}
	return false
}

func containerMoved(a, b *corev1.ContainerStatus) bool {
	return a.Name != b.Name ||
		a.ContainerID != b.ContainerID ||
		a.RestartCount != b.RestartCount ||
		runMoved(&a.State, &b.State) ||
		requirementsMoved(a.Resources, b.Resources) ||
		listMoved(a.AllocatedResources, b.AllocatedResources)
}

// runMoved tells whether a container began or ended to run. Why it waits is not looked at: a back-off changes that often.
func runMoved(a, b *corev1.ContainerState) bool {
	if (a.Running == nil) != (b.Running == nil) || (a.Terminated == nil) != (b.Terminated == nil) {
		return true
	}
	return a.Terminated != nil && a.Terminated.ExitCode != b.Terminated.ExitCode
}

func requirementsMoved(a, b *corev1.ResourceRequirements) bool {
	if a == nil || b == nil {
		return a != b
	}
	return listMoved(a.Requests, b.Requests) || listMoved(a.Limits, b.Limits)
}

// listMoved compares amounts, not how they are written.
func listMoved(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return true
	}
	for name, have := range a {
		now, ok := b[name]
		if !ok || have.Cmp(now) != 0 {
			return true
		}
	}
	return false
}
