package resize

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// Target gives the requests and limits of cpu and memory of every container, init containers too, as they are to be: spec with
// want on top.
func Target(pod *corev1.Pod, want Resources) Resources {
	target := Resources{Containers: make(map[string]Requirements, len(pod.Spec.Containers)+len(pod.Spec.InitContainers))}
	for c := range containers(pod) {
		target.Containers[c.Name] = Merge(specOf(c), want.Containers[c.Name])
	}
	return target
}

// Merge lays want over base. A limit without a request sets the request too, as the API server does when it decodes a pod.
func Merge(base, want Requirements) Requirements {
	merged := Requirements{Requests: mergeList(base.Requests, want.Requests), Limits: mergeList(base.Limits, want.Limits)}
	for res, limit := range merged.Limits {
		if _, ok := merged.Requests[res]; !ok {
			merged.Requests[res] = limit
		}
	}
	return merged
}

func mergeList(base, want corev1.ResourceList) corev1.ResourceList {
	merged := corev1.ResourceList{}
	maps.Copy(merged, base)
	maps.Copy(merged, want)
	return merged
}

// Changes is the part of want that the pod's spec does not have.
func Changes(pod *corev1.Pod, want Resources) Resources {
	var out Resources
	for name, w := range want.Containers {
		c, _ := find(pod, name)
		if c == nil {
			continue
		}
		delta := Requirements{
			Requests: missingFrom(c.Resources.Requests, w.Requests),
			Limits:   missingFrom(c.Resources.Limits, w.Limits),
		}
		if len(delta.Requests)+len(delta.Limits) == 0 {
			continue
		}
		if out.Containers == nil {
			out.Containers = map[string]Requirements{}
		}
		out.Containers[name] = delta
	}
	return out
}

// missingFrom makes no list where nothing is missing: this runs at every look at a pod.
func missingFrom(have, want corev1.ResourceList) corev1.ResourceList {
	var out corev1.ResourceList
	for res, q := range want {
		if old, ok := have[res]; ok && old.Cmp(q) == 0 {
			continue
		}
		if out == nil {
			out = corev1.ResourceList{}
		}
		out[res] = q
	}
	return out
}

// Replaced gives the values of the pod's spec that delta takes the place of; containers that the pod does not have are left out.
func Replaced(pod *corev1.Pod, delta Resources) Resources {
	out := Resources{Containers: make(map[string]Requirements, len(delta.Containers))}
	for name, d := range delta.Containers {
		c, _ := find(pod, name)
		if c == nil {
			continue
		}
		out.Containers[name] = Requirements{Requests: pick(c.Resources.Requests, d.Requests), Limits: pick(c.Resources.Limits, d.Limits)}
	}
	return out
}

// pick gives the entries of from that keys has too.
func pick(from, keys corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for res := range keys {
		if q, ok := from[res]; ok {
			out[res] = q
		}
	}
	return out
}

func specOf(c *corev1.Container) Requirements {
	return Requirements{Requests: onlyResizable(c.Resources.Requests), Limits: onlyResizable(c.Resources.Limits)}
}

// resizable are the resources that can be changed.
func resizable() [2]corev1.ResourceName {
	return [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// onlyResizable gives the entries for cpu and memory: the list itself where it has no others, so it is to be read only.
func onlyResizable(list corev1.ResourceList) corev1.ResourceList {
	others := len(list)
	for _, res := range resizable() {
		if _, ok := list[res]; ok {
			others--
		}
	}
	if others == 0 {
		return list
	}
	out := corev1.ResourceList{}
	for _, res := range resizable() {
		if q, ok := list[res]; ok {
			out[res] = q
		}
	}
	return out
}

func names(r Requirements, res corev1.ResourceName) bool {
	_, request := r.Requests[res]
	_, limit := r.Limits[res]
	return request || limit
}
