//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/cluster"
)

// amounts are "request/limit"; either may be left out: "100m/", "/200m", "".
type amounts struct{ cpu, memory string }

func (a amounts) requirements() resize.Requirements {
	r := resize.Requirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: a.cpu, corev1.ResourceMemory: a.memory} {
		request, limit, _ := strings.Cut(text, "/")
		if request != "" {
			r.Requests[name] = resource.MustParse(request)
		}
		if limit != "" {
			r.Limits[name] = resource.MustParse(limit)
		}
	}
	return r
}

// want asks for amounts of containers.
type want map[string]amounts

func (w want) resources() resize.Resources {
	out := resize.Resources{Containers: map[string]resize.Requirements{}}
	for name, a := range w {
		out.Containers[name] = a.requirements()
	}
	return out
}

// container runs the workload, which waits unless args say something else.
func container(name string, a amounts, args ...string) corev1.Container {
	r := a.requirements()
	return corev1.Container{
		Name: name, Image: cluster.WorkloadImage, ImagePullPolicy: corev1.PullNever, Args: args,
		Resources: corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits},
	}
}

func pod(name string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: containers, DNSPolicy: corev1.DNSDefault},
	}
}

// sidecar makes an init container that goes on running.
func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

const (
	mi        = 1 << 20
	unlimited = -1
)

// figures are what cgroup files hold: cpu.shares, cpu.cfs_quota_us in 100 ms, memory.limit_in_bytes.
type figures struct{ Shares, Quota, Memory int64 }

// figuresOf has on cgroup v2 the negative of cpu.weight for Shares.
func figuresOf(c cluster.Cgroup) figures {
	return figures{Shares: c.CPUShares - c.CPUWeight, Quota: c.CPUQuota, Memory: c.MemoryLimit}
}

// Equal takes a weight for equal to the shares that it stands for, by either formula.
func (f figures) Equal(other figures) bool {
	if f.Shares < 0 {
		f, other = other, f
	}
	if f.Shares > 0 && other.Shares < 0 && cgroup.WeightHolds(uint64(f.Shares), uint64(-other.Shares)) {
		other.Shares = f.Shares
	}
	return f == other
}

// kernel is what the cgroups of a pod ("") and of its containers hold.
type kernel map[string]figures

// read reads the cgroup files of the pod and of its regular containers now.
func (e *env) read(t *testing.T, pod *corev1.Pod) kernel {
	t.Helper()
	held := kernel{"": e.readOne(t, pod, "")}
	for _, c := range pod.Spec.Containers {
		held[c.Name] = e.readOne(t, pod, c.Name)
	}
	return held
}

func (e *env) readOne(t *testing.T, pod *corev1.Pod, container string) figures {
	t.Helper()
	c, err := e.Cgroup(t.Context(), pod, container)
	if err != nil {
		t.Fatal(err)
	}
	if c.CPUPeriod != 100_000 {
		t.Errorf("%q has CPU period %d", container, c.CPUPeriod)
	}
	return figuresOf(c)
}

// runs are the ids and restart counts of a pod's containers: what a resize must not change.
type runs map[string]run

type run struct {
	ID       string
	Restarts int32
}

func runsOf(pod *corev1.Pod) runs {
	out := runs{}
	for _, s := range pod.Status.ContainerStatuses {
		out[s.Name] = run{ID: s.ContainerID, Restarts: s.RestartCount}
	}
	return out
}
