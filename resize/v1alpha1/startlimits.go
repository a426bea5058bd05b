package v1alpha1

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// AnnotationStartLimits is the annotation by which a pod's containers are started small. It must be on the pod when it is created, since
// the agent reads it from the pod's sandbox. Its value is a JSON object: by the name of a regular container its limits of cpu and memory,
// as quantities in the form of a pod's spec:
//
//	{"app": {"cpu": "250m", "memory": "256Mi"}}
//
// Each run of the container gets them as soon as it runs, where they are lower than what the kubelet gave it from spec, and has them until
// a CRIResize of the pod says otherwise. Requests, and the pod's own cgroup, stay as spec has them.
const AnnotationStartLimits = "podresize.dev/start-limits"

// StartLimits reads AnnotationStartLimits: limits by the name of a container; none without the annotation. The error names the field that is
// wrong; then nothing of it holds.
func StartLimits(annotations map[string]string) (map[string]corev1.ResourceList, error) {
	text, annotated := annotations[AnnotationStartLimits]
	if !annotated {
		return nil, nil
	}
	var raw map[string]map[corev1.ResourceName]json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, fmt.Errorf(`annotation %q: must be like {"app":{"cpu":"250m","memory":"256Mi"}}: %w`, AnnotationStartLimits, err)
	}
	limits := make(map[string]corev1.ResourceList, len(raw))
	for _, container := range slices.Sorted(maps.Keys(raw)) {
		limits[container] = corev1.ResourceList{}
		for _, name := range slices.Sorted(maps.Keys(raw[container])) {
			q, err := startLimit(name, raw[container][name])
			if err != nil {
				return nil, fmt.Errorf("annotation %q: %s.%s: %w", AnnotationStartLimits, container, name, err)
			}
			limits[container][name] = q
		}
	}
	return limits, nil
}

// mostCPUs keeps the arithmetic in milli-CPU and microseconds far from its end.
const mostCPUs = 1_000_000

func startLimit(name corev1.ResourceName, raw json.RawMessage) (resource.Quantity, error) {
	if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
		return resource.Quantity{}, fmt.Errorf("only %s and %s can be limited", corev1.ResourceCPU, corev1.ResourceMemory)
	}
	var q resource.Quantity
	if err := json.Unmarshal(raw, &q); err != nil {
		return resource.Quantity{}, fmt.Errorf("%s is not a quantity: %w", raw, err)
	}
	if name == corev1.ResourceCPU && q.CmpInt64(mostCPUs) > 0 {
		return resource.Quantity{}, fmt.Errorf("%s is more than any machine has", raw)
	}
	if q.Sign() <= 0 {
		return resource.Quantity{}, fmt.Errorf("%s is not above zero", raw)
	}
	return q, nil
}
