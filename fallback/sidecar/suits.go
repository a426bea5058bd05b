package sidecar

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// suits gives what is in the way of a sidecar in this pod, each in a line that names the field.
func suits(spec *corev1.PodSpec) error {
	var errs []error
	for _, rule := range []struct {
		broken bool
		say    string
	}{
		{windows(spec), "os: the agent is for Linux"},
		{no(spec.HostUsers), "hostUsers: must not be false: root in a user namespace of the pod's own cannot use the runtime's socket"},
		{yes(spec.ShareProcessNamespace), "shareProcessNamespace: must not be true: the workload could reach the runtime's socket through the sidecar's process"},
		{spec.HostPID, "hostPID: must not be true: the workload could reach the runtime's socket through the sidecar's process"},
		{spec.RestartPolicy != "" && spec.RestartPolicy != corev1.RestartPolicyAlways, "restartPolicy: must be Always: a sidecar that never ends keeps the pod from ending"},
		{yes(spec.AutomountServiceAccountToken), "automountServiceAccountToken: must not be true: the service account's rights are for the sidecar alone"},
		{spec.Resources != nil, "resources: a pod with resources of its own is not resized through the CRI"},
		{bestEffort(spec), "containers: none of them has a request or a limit of cpu or memory: such a pod (BestEffort) is not resized"},
	} {
		if rule.broken {
			errs = append(errs, errors.New(rule.say))
		}
	}
	return errors.Join(errs...)
}

func yes(b *bool) bool { return b != nil && *b }
func no(b *bool) bool  { return b != nil && !*b }

func windows(spec *corev1.PodSpec) bool {
	return spec.OS != nil && spec.OS.Name == corev1.Windows || spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows)
}

// bestEffort is whether the pod would have that QoS class, without the sidecar (ComputePodQOS in pkg/apis/core/v1/helper/qos).
func bestEffort(spec *corev1.PodSpec) bool {
	asks := func(list corev1.ResourceList) bool { return list.Cpu().Sign() > 0 || list.Memory().Sign() > 0 }
	return !slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		return c.Name != v1alpha1.SidecarContainer && (asks(c.Resources.Requests) || asks(c.Resources.Limits))
	})
}
