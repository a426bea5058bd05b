//go:build old

package main

import (
	_ "unsafe" // For go:linkname: the kubelet does not export its formula of weights.

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// ofPod takes what the kubelet does not set as the kernel has it.
func ofPod(pod *corev1.Pod) figures {
	c := cm.ResourceConfigForPod(pod, true, cm.QuotaPeriod, false)
	return figures{
		Shares: *c.CpuShares,
		Quota:  orUnlimited(setOr(c.CpuQuota, 0)),
		Period: setOr(c.CpuPeriod, cm.QuotaPeriod),
		Memory: orUnlimited(setOr(c.Memory, 0)),
	}
}

//go:linkname getCPUWeight k8s.io/kubernetes/pkg/kubelet/cm.getCpuWeight
func getCPUWeight(shares *uint64) uint64
