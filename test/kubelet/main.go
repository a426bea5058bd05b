// Command kubelet answers what a kubelet would write into the cgroups of a pod, by the kubelet's own functions. It is built
// from the sources of Kubernetes 1.37 by go.mod, and from those of 1.26 by
//
//	go build -modfile=go.old.mod -tags=old,providerless
//
// It reads Pods as JSON from its input and writes an answer as JSON for each, in their order. The test of fallback/figures asks it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// unlimited is what the kernel has where the kubelet sets nothing.
const unlimited = -1

// answer is all that a kubelet makes of a pod's resources.
type answer struct {
	QOSClass   corev1.PodQOSClass
	Cgroup     figures
	Containers map[string]figures
	// Weight is the cpu.weight that the pod's cgroup gets in place of the shares on cgroup v2.
	Weight uint64
}

// figures are those of one cgroup v1: microseconds and bytes.
type figures struct {
	Shares        uint64
	Quota, Memory int64
	Period        uint64
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	pods, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		pod := &corev1.Pod{}
		err := pods.Decode(pod)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a pod: %w", err)
		}
		if err := answers.Encode(judge(pod)); err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
	}
}

func judge(pod *corev1.Pod) answer {
	a := answer{QOSClass: qos.GetPodQOS(pod), Cgroup: ofPod(pod), Containers: map[string]figures{}}
	for _, c := range pod.Spec.Containers {
		a.Containers[c.Name] = ofContainer(c)
	}
	a.Weight = getCPUWeight(&a.Cgroup.Shares)
	return a
}

// ofContainer puts the kubelet's functions together as it does itself, in a method that needs a whole kubelet:
// calculateLinuxResources and its caller in pkg/kubelet/kuberuntime/kuberuntime_container_linux.go (1.37.2: lines 167-192 and
// 355-391; 1.26.15: lines 73-77 and 143-176).
func ofContainer(c corev1.Container) figures {
	request, limits := c.Resources.Limits.Cpu(), c.Resources.Limits
	if _, ok := c.Resources.Requests[corev1.ResourceCPU]; ok {
		request = c.Resources.Requests.Cpu()
	}
	return figures{
		Shares: cm.MilliCPUToShares(request.MilliValue()),
		Quota:  orUnlimited(cm.MilliCPUToQuota(limits.Cpu().MilliValue(), cm.QuotaPeriod)),
		Period: cm.QuotaPeriod,
		Memory: orUnlimited(limits.Memory().Value()),
	}
}

// orUnlimited turns what CRI and libcontainer take for "not set" into what the kernel has then.
func orUnlimited(value int64) int64 {
	if value == 0 {
		return unlimited
	}
	return value
}

// setOr is the value that the kubelet sets, or else the kernel's.
func setOr[T any](set *T, kernels T) T {
	if set == nil {
		return kernels
	}
	return *set
}
