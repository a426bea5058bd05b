package v1alpha1

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// StartLimitsAnnotation on a pod, at its creation, has its containers start small: it holds the limits of cpu and memory, by the container's
// name, that each gets as soon as it runs, until a CRIResize of the pod says otherwise. What is not below the limit of the pod's spec
// is left out of account, and so is a memory limit below what is in use.
//
//	podresize.dev/start-limits: '{"app": {"cpu": "250m", "memory": "256Mi"}}'
//
// The node's agent takes it from the pod's sandbox: a change of it counts only for another pod.
const StartLimitsAnnotation = "podresize.dev/start-limits"

// StartLimits reads the annotation; nil: there is none. The error names the annotation, and the container and resource in it.
func StartLimits(annotations map[string]string) (map[string]Requirements, error) {
	text, found := annotations[StartLimitsAnnotation]
	if !found {
		return nil, nil
	}
	var limits map[string]map[corev1.ResourceName]string
	if err := json.Unmarshal([]byte(text), &limits); err != nil {
		return nil, fmt.Errorf("annotation %s: it must be limits by container, such as {\"app\": {\"cpu\": \"250m\"}}: %w", StartLimitsAnnotation, err)
	}
	out := make(map[string]Requirements, len(limits))
	for container, amounts := range limits {
		parsed := make(corev1.ResourceList, len(amounts))
		for name, amount := range amounts {
			q, err := startLimit(name, amount)
			if err != nil {
				return nil, fmt.Errorf("annotation %s: container %q: %s: %w", StartLimitsAnnotation, container, name, err)
			}
			parsed[name] = q
		}
		out[container] = Requirements{Limits: parsed}
	}
	return out, nil
}

func startLimit(name corev1.ResourceName, amount string) (resource.Quantity, error) {
	if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
		return resource.Quantity{}, fmt.Errorf("only cpu and memory have limits to start with")
	}
	q, err := resource.ParseQuantity(amount)
	if err != nil {
		return q, fmt.Errorf("%q: %w", amount, err)
	}
	if q.Sign() <= 0 {
		return q, fmt.Errorf("%q is not above zero", amount)
	}
	return q, nil
}
