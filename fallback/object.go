package fallback

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// newObject makes the CRIResize of a pod: every fact that the arithmetic needs, and for all containers what they are to have.
func newObject(pod *corev1.Pod, want resize.Resources) *v1alpha1.CRIResize {
	object := &v1alpha1.CRIResize{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace,
			Name:      string(pod.UID),
			Labels:    map[string]string{v1alpha1.LabelNode: v1alpha1.NodeLabelValue(pod.Spec.NodeName)},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
			},
		},
		Spec: v1alpha1.CRIResizeSpec{
			PodName: pod.Name, PodUID: string(pod.UID), NodeName: pod.Spec.NodeName,
			QOSClass: pod.Status.QOSClass, Overhead: pod.Spec.Overhead, Sidecar: sidecarOf(pod, nil),
		},
	}
	for _, c := range pod.Spec.InitContainers {
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		object.Spec.InitContainers = append(object.Spec.InitContainers, v1alpha1.InitContainer{
			Name: c.Name, Sidecar: sidecar, Resources: requirements(c.Resources),
		})
	}
	for _, c := range pod.Spec.Containers {
		before := requirements(c.Resources)
		object.Spec.Containers = append(object.Spec.Containers, v1alpha1.Container{Name: c.Name, Before: before, Wanted: before})
	}
	merge(object, want)
	return object
}

// merge lays want over what the object asks for already, and asks for it to be enforced.
func merge(object *v1alpha1.CRIResize, want resize.Resources) {
	enforce := true
	object.Spec.Enforce = &enforce
	for i, c := range object.Spec.Containers {
		if w, ok := want.Containers[c.Name]; ok {
			merged := resize.Merge(resize.Requirements{Requests: c.Wanted.Requests, Limits: c.Wanted.Limits}, w)
			object.Spec.Containers[i].Wanted = v1alpha1.Requirements{Requests: merged.Requests, Limits: merged.Limits}
		}
	}
}

// covers says whether the object asks for all of want already.
func covers(pod *corev1.Pod, object *v1alpha1.CRIResize, want resize.Resources) bool {
	if object == nil || asksNothing(want) {
		return object != nil
	}
	return enforced(object) && len(resize.Changes(effective(pod, object), want).Containers) == 0
}

// effective is the pod with the resources that it has on this path: those of the object where there is one.
func effective(pod *corev1.Pod, object *v1alpha1.CRIResize) *corev1.Pod {
	if object == nil {
		return pod
	}
	held := pod.DeepCopy()
	for i := range held.Spec.Containers {
		c := &held.Spec.Containers[i]
		for _, o := range object.Spec.Containers {
			if o.Name == c.Name {
				c.Resources.Requests = overlay(c.Resources.Requests, o.Wanted.Requests)
				c.Resources.Limits = overlay(c.Resources.Limits, o.Wanted.Limits)
			}
		}
	}
	return held
}

func overlay(base, top corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{base, top} {
		maps.Copy(out, list)
	}
	return out
}

func pick(from, keys corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for res := range keys {
		if q, ok := from[res]; ok {
			out[res] = q
		}
	}
	return out
}

func requirements(r corev1.ResourceRequirements) v1alpha1.Requirements {
	resizable := corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}}
	return v1alpha1.Requirements{Requests: pick(r.Requests, resizable), Limits: pick(r.Limits, resizable)}
}

func enforced(object *v1alpha1.CRIResize) bool {
	return object.Spec.Enforce == nil || *object.Spec.Enforce
}

func asksNothing(want resize.Resources) bool {
	for _, w := range want.Containers {
		if len(w.Requests)+len(w.Limits) > 0 {
			return false
		}
	}
	return true
}
