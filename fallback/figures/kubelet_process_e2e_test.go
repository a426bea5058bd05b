//go:build e2e

package figures_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/fallback/figures"
)

// kubelet is a running test/kubelet.
type kubelet struct {
	in  *json.Encoder
	out *json.Decoder
}

// answer is what a kubelet makes of a pod's resources.
type answer struct {
	QOSClass corev1.PodQOSClass
	figures.Pod
	// Weight is the cpu.weight of the pod's cgroup on cgroup v2.
	Weight uint64
}

// startKubelet builds test/kubelet with more flags and runs it until the test ends.
func startKubelet(t *testing.T, flags ...string) kubelet {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kubelet")
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", program}, flags...)
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = "../../test/kubelet"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building test/kubelet: %v\n%s", err, out)
	}

	run := exec.CommandContext(context.WithoutCancel(t.Context()), program)
	run.Stderr = t.Output()
	in, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it ends when there are no more pods
		if err := run.Wait(); err != nil {
			t.Errorf("test/kubelet: %v", err)
		}
	})
	return kubelet{in: json.NewEncoder(in), out: json.NewDecoder(out)}
}

// judge asks what the kubelet makes of the pod. It sees the spec alone, so that the QoS class is of its own finding.
func (k kubelet) judge(t *testing.T, pod *corev1.Pod) answer {
	t.Helper()
	if err := k.in.Encode(&corev1.Pod{Spec: pod.Spec}); err != nil {
		t.Fatalf("asking test/kubelet: %v", err)
	}
	var a answer
	if err := k.out.Decode(&a); err != nil {
		t.Fatalf("reading the answer of test/kubelet: %v", err)
	}
	return a
}
