//go:build e2e

package figures_test

import (
	"fmt"
	"maps"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize"
)

// chance makes resources as an API server takes them: no request above its limit.
type chance struct {
	*rand.Rand
	// declared is how often a request or a limit is there, 0 to 1.
	declared float64
	// equal gives requests that are their limits.
	equal bool
	// zero leaves no amount but zero.
	zero bool
}

// newChance chooses what kind of pod it will be.
func newChance(source rand.Source) chance {
	r := rand.New(source) //nolint:gosec // Test data need not be secret.
	kinds := []chance{
		{declared: 0}, {declared: 0.5}, {declared: 0.9}, {declared: 1}, {declared: 1, equal: true}, {declared: 0.5, zero: true},
	}
	c := kinds[r.IntN(len(kinds))]
	c.Rand = r
	return c
}

// of says whether something is so that is so in one of n cases.
func (c chance) of(n int) bool { return c.IntN(n) == 0 }

// pod makes a pod with up to five containers and three init containers, with sidecars among them or not.
func (c chance) pod(sidecars bool) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "uid"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	for i := range 1 + c.IntN(5) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Resources: c.resources()})
	}
	for i := range max(0, c.IntN(6)-2) {
		init := corev1.Container{Name: fmt.Sprintf("i%d", i), Resources: c.resources()}
		if always := corev1.ContainerRestartPolicyAlways; sidecars && c.of(2) {
			init.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, init)
	}
	if c.of(3) {
		pod.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: c.cpu(), corev1.ResourceMemory: c.memory()}
	}
	return pod
}

func (c chance) resources() corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for name, amount := range map[corev1.ResourceName]func() resource.Quantity{corev1.ResourceCPU: c.cpu, corev1.ResourceMemory: c.memory} {
		request, limit := amount(), amount()
		if request.Cmp(limit) > 0 {
			request, limit = limit, request
		}
		if c.equal {
			request = limit
		}
		if c.Float64() < c.declared {
			out.Requests[name] = request
		}
		if c.Float64() < c.declared {
			out.Limits[name] = limit
		}
	}
	return out
}

// want asks for new resources of some of the pod's containers, such as leave a pod of that class in its class.
func (c chance) want(pod *corev1.Pod) resize.Resources {
	c.declared = c.Float64()
	if pod.Status.QOSClass == corev1.PodQOSGuaranteed {
		c.declared, c.equal = 1, true
	}
	c.zero = pod.Status.QOSClass == corev1.PodQOSBestEffort
	want := resize.Resources{Containers: map[string]resize.Requirements{}}
	for _, container := range pod.Spec.Containers {
		r := c.resources()
		if c.zero {
			r.Limits = nil // a limit of zero is none, and cannot be asked for
		}
		if c.of(2) {
			want.Containers[container.Name] = resize.Requirements{Requests: r.Requests, Limits: r.Limits}
		}
	}
	return want
}

func (c chance) cpu() resource.Quantity {
	odd := []string{"0", "1m", "2m", "5m", "9m", "10m", "333m", "0.5", "1", "4096m", "255999m", "256", "300", "9e15"}
	if c.of(2) {
		return c.one(odd)
	}
	return c.upTo(8000, -3)
}

// memory may be fractions of bytes: an API server takes 128m.
func (c chance) memory() resource.Quantity {
	odd := []string{"0", "100m", "1", "4095", "64Mi", "128M", "1.5Gi", "5153960729", "5153960729500m", "7Ei"}
	if c.of(2) {
		return c.one(odd)
	}
	return c.upTo(1<<33, 0)
}

func (c chance) one(of []string) resource.Quantity {
	if c.zero {
		return resource.Quantity{}
	}
	return resource.MustParse(of[c.IntN(len(of))])
}

func (c chance) upTo(most int64, scale resource.Scale) resource.Quantity {
	if c.zero {
		return resource.Quantity{}
	}
	return *resource.NewScaledQuantity(1+c.Int64N(most), scale)
}

// stored is the pod as an API server has it: a limit is the request too where there is none (SetDefaults_Pod).
func stored(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			requests := maps.Clone(c.Resources.Requests)
			maps.Copy(c.Resources.Requests, c.Resources.Limits)
			maps.Copy(c.Resources.Requests, requests)
		}
	}
	return pod
}

// resized is the pod as an API server would have it if it took want.
func resized(pod *corev1.Pod, want resize.Resources) *corev1.Pod {
	pod = pod.DeepCopy()
	for _, c := range pod.Spec.Containers {
		maps.Copy(c.Resources.Requests, want.Containers[c.Name].Requests)
		maps.Copy(c.Resources.Limits, want.Containers[c.Name].Limits)
	}
	return stored(pod)
}
