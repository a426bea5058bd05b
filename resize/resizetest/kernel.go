package resizetest

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podresize/podresize/resize"
)

// period is the length of a CPU period in microseconds, as kubelets set it.
const period = 100_000

// kernelOf is what a kernel holds for r, by the kubelet's arithmetic (pkg/kubelet/cm/helpers_linux.go), in shares of cgroup v1.
func kernelOf(r resize.Requirements) resize.Kernel {
	shares := min(max(r.Requests.Cpu().MilliValue()*1024/1000, 2), 262144)
	k := resize.Kernel{CPUShares: &shares, CPUQuotaMicroseconds: -1, CPUPeriodMicroseconds: period, MemoryLimitBytes: -1}
	if limit := r.Limits.Cpu().MilliValue(); limit > 0 {
		k.CPUQuotaMicroseconds = max(limit*period/1000, 1000)
	}
	if limit := r.Limits.Memory().Value(); limit > 0 {
		k.MemoryLimitBytes = limit
	}
	return k
}

// lacks tells what of r, as far as r names it, the kernel does not hold; empty: it holds all of it.
func lacks(r resize.Requirements, have resize.Kernel) string {
	want := kernelOf(r)
	if _, named := r.Requests[corev1.ResourceCPU]; named && !sameShares(*want.CPUShares, have) {
		return fmt.Sprintf("requests.cpu %s are %d shares; the kernel holds %s", r.Requests.Cpu(), *want.CPUShares, describe(have))
	}
	if _, named := r.Limits[corev1.ResourceCPU]; named && (want.CPUQuotaMicroseconds != have.CPUQuotaMicroseconds || have.CPUPeriodMicroseconds != period) {
		return fmt.Sprintf("limits.cpu %s is a quota of %d; the kernel holds %s", r.Limits.Cpu(), want.CPUQuotaMicroseconds, describe(have))
	}
	if _, named := r.Limits[corev1.ResourceMemory]; named && want.MemoryLimitBytes != have.MemoryLimitBytes {
		return fmt.Sprintf("limits.memory %s is a limit of %d; the kernel holds %s", r.Limits.Memory(), want.MemoryLimitBytes, describe(have))
	}
	return ""
}

// sameShares knows both ways to make a weight of cgroup v2 from shares: the kubelet's, and that of runc since 1.3.2 and crun since
// 1.23.
func sameShares(shares int64, have resize.Kernel) bool {
	if have.CPUShares != nil {
		return *have.CPUShares == shares
	}
	l := math.Log2(float64(shares))
	weight := int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
	return have.CPUWeight != nil && (*have.CPUWeight == 1+(shares-2)*9999/262142 || *have.CPUWeight == weight)
}

func describe(k resize.Kernel) string {
	text := fmt.Sprintf("quota %d of %d, memory %d", k.CPUQuotaMicroseconds, k.CPUPeriodMicroseconds, k.MemoryLimitBytes)
	if k.CPUShares != nil {
		text += fmt.Sprintf(", shares %d", *k.CPUShares)
	}
	if k.CPUWeight != nil {
		text += fmt.Sprintf(", weight %d", *k.CPUWeight)
	}
	return text
}

// sum is what a pod has whose containers have these: a limit only if all of them have one.
func sum(all resize.Resources) resize.Requirements {
	out := resize.Requirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		var requests, limits resource.Quantity
		limited := len(all.Containers) > 0
		for _, r := range all.Containers {
			limit, ok := r.Limits[res]
			limited = limited && ok
			limits.Add(limit)
			requests.Add(r.Requests[res])
		}
		out.Requests[res] = requests
		if limited {
			out.Limits[res] = limits
		}
	}
	return out
}
