package figures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// Requests is what the pod requests in all with the resources wanted, as scheduler and kubelet count it: PodRequests in
// component-helpers.
func Requests(spec *v1alpha1.CRIResizeSpec) corev1.ResourceList {
	regular := make([]v1alpha1.Requirements, 0, len(spec.Containers))
	for _, c := range spec.Containers {
		regular = append(regular, c.Wanted)
	}
	total := effective(spec, regular, requestsOf)
	add(total, spec.Overhead)
	return total
}
