package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/test/cluster"
)

// amounts are what a container requests, in milli-CPU and MiB. Limits are twice that.
type amounts struct{ milliCPU, mebibytes int64 }

func (a amounts) cpuText() string    { return fmt.Sprintf("%dm", a.milliCPU) }
func (a amounts) memoryText() string { return fmt.Sprintf("%dMi", a.mebibytes) }

// before is what app starts with, and helper what the other container keeps.
func before() amounts { return amounts{100, 64} }
func helper() amounts { return amounts{50, 32} }

func web() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container("app", before()), container("helper", helper())}},
	}
}

func container(name string, a amounts) corev1.Container {
	return corev1.Container{
		Name: name, Image: cluster.WorkloadImage, ImagePullPolicy: corev1.PullNever,
		Resources: corev1.ResourceRequirements{Requests: list(a), Limits: list(amounts{2 * a.milliCPU, 2 * a.mebibytes})},
	}
}

func list(a amounts) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(a.cpuText()), corev1.ResourceMemory: resource.MustParse(a.memoryText())}
}

// row is one cgroup as the kernel has it, and the container in it.
type row struct {
	name     string
	held     cluster.Cgroup
	id       string // none for the pod
	restarts int32
}

// picture is the pod and its containers at one moment.
type picture []row

// look reads the kernel and the pod's status. It is an error if the kernel does not hold what these amounts of app come to, or
// if a container is not the one that the pod began with.
func (s *stage) look(ctx context.Context, app amounts) (picture, error) {
	pod, err := s.cluster.Client().CoreV1().Pods(s.pod.Namespace).Get(ctx, s.pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	both := amounts{app.milliCPU + helper().milliCPU, app.mebibytes + helper().mebibytes}
	is := picture{{name: ""}, {name: "app"}, {name: "helper"}}
	for i, want := range []amounts{both, app, helper()} {
		r := &is[i]
		if r.held, err = s.cluster.Cgroup(ctx, s.pod, r.name); err != nil {
			return nil, err
		}
		if err := r.check(want); err != nil {
			return nil, err
		}
		r.id, r.restarts = runOf(pod, r.name)
		if began, _ := runOf(s.pod, r.name); r.id != began || r.restarts != 0 {
			return nil, fmt.Errorf("container %q was restarted (restartCount %d)", r.name, r.restarts)
		}
	}
	return is, nil
}

func runOf(pod *corev1.Pod, container string) (id string, restarts int32) {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container {
			return status.ContainerID, status.RestartCount
		}
	}
	return "", 0
}

// check compares with a kubelet's arithmetic: 1024 shares are a CPU, and limits, which are twice a, count in 100 ms.
func (r row) check(a amounts) error {
	shares, quota, memory := a.milliCPU*1024/1000, 2*a.milliCPU*100, 2*a.mebibytes<<20
	cpu := r.held.CPUShares == shares
	if r.held.CPUWeight > 0 { // cgroup v2
		cpu = r.held.CPUWeight == linearWeight(shares) || r.held.CPUWeight == quadraticWeight(shares)
	}
	if cpu && r.held.CPUQuota == quota && r.held.CPUPeriod == 100_000 && r.held.MemoryLimit == memory {
		return nil
	}
	return fmt.Errorf("the kernel does not hold what was asked for %s: want shares %d, quota %d/100000, memory %d; it holds shares %d, weight %d, quota %d/%d, memory %d",
		r.title(), shares, quota, memory, r.held.CPUShares, r.held.CPUWeight, r.held.CPUQuota, r.held.CPUPeriod, r.held.MemoryLimit)
}

// linearWeight is what kubelets make of shares on cgroup v2, and runtimes made of them until late 2025.
func linearWeight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

// quadraticWeight is what runc 1.3.2 and crun 1.23 and later make of them.
func quadraticWeight(shares int64) int64 {
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

func (r row) title() string {
	if r.name == "" {
		return "pod"
	}
	return "container " + r.name
}

// compare writes a table of two pictures; what changed is "before → after".
func compare(out io.Writer, was, is picture) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	write := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format, args...) } // Flush tells of errors
	cpu := "CPU SHARES"
	if is[0].held.CPUWeight > 0 {
		cpu = "CPU WEIGHT"
	}
	write("  CGROUP OF\t%s\tCPU QUOTA, us IN 100 ms\tMEMORY LIMIT\tRESTARTS\n", cpu)
	for i, r := range is {
		from, to := was[i].held, r.held
		write("  %s\t%s\t%s\t%s\t%s\n", r.title(),
			arrow(from.CPUShares+from.CPUWeight, to.CPUShares+to.CPUWeight), arrow(from.CPUQuota, to.CPUQuota),
			arrow(mebibytes(from), mebibytes(to)), r.restartText())
	}
	return t.Flush()
}

func (r row) restartText() string {
	if r.name == "" {
		return ""
	}
	return fmt.Sprint(r.restarts)
}

func mebibytes(c cluster.Cgroup) string { return fmt.Sprintf("%dMi", c.MemoryLimit>>20) }

func arrow[T comparable](from, to T) string {
	if from == to {
		return fmt.Sprint(to)
	}
	return fmt.Sprintf("%v → %v", from, to)
}
