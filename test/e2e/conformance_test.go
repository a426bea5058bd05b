//go:build e2e

package e2e_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/resizetest"
	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

// TestConformance runs the suite of resize/resizetest on every cluster, on each of its nodes by the path that the node offers, with the
// rights of a caller. What counts are the cgroup files.
func TestConformance(t *testing.T) {
	for _, s := range settings(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			e := start(t, s, "")
			if slices.ContainsFunc(s.Nodes, func(n setting.Node) bool { return n.Path == resize.PathCRI }) {
				e.deploy(t)
			}
			for _, node := range s.Nodes {
				t.Run(strings.TrimPrefix(node.Name+":", ":")+string(node.Path), e.on(node).testConformance)
			}
		})
	}
}

// conformance is this cluster as the suite sees it.
func (e *env) conformance() resizetest.Env {
	var kernel kernelReader
	return resizetest.Env{
		Resizer: e.newResizer,
		Run: func(t *testing.T, template *corev1.Pod) *corev1.Pod {
			t.Helper()
			for i := range template.Spec.Containers {
				template.Spec.Containers[i].Image = cluster.WorkloadImage
				template.Spec.Containers[i].ImagePullPolicy = corev1.PullNever
			}
			return e.run(t, template)
		},
		Live: e.latest,
		Kernel: func(t *testing.T, pod *corev1.Pod) map[string]resize.Kernel {
			t.Helper()
			return kernel.read(t, e, pod)
		},
		Delete: func(t *testing.T, pod *corev1.Pod) {
			t.Helper()
			if err := e.DeletePod(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		},
		KeepsMemoryLimit: e.minor == keepsMemoryLimit && e.path == resize.PathInPlace,
	}
}

// testConformance runs the suite.
func (e *env) testConformance(t *testing.T) {
	before := len(e.changes(t, resizerUser))
	resizetest.Run(t, e.conformance())
	e.checkPath(t, before)
}

// checkPath insists that it was the path to test, after so many requests: in place pods are patched, and by the CRI path they never
// are.
func (e *env) checkPath(t *testing.T, after int) {
	t.Helper()
	counts := map[resize.Path]int{}
	for _, request := range e.changes(t, resizerUser)[after:] {
		if strings.Contains(request, " criresizes ") {
			counts[resize.PathCRI]++
		} else {
			counts[resize.PathInPlace]++
		}
	}
	if len(counts) != 1 || counts[e.path] == 0 {
		t.Errorf("requests by path: %v; all should be by path %s", counts, e.path)
	}
}

// kernelReader reads cgroup files. The path of a container that is not restarted stays, so that it is asked for once.
type kernelReader struct{ dirs sync.Map }

func (k *kernelReader) read(t *testing.T, e *env, pod *corev1.Pod) map[string]resize.Kernel {
	t.Helper()
	held := map[string]resize.Kernel{}
	for _, name := range append([]string{""}, containerNames(pod)...) {
		c, err := e.ReadCgroup(t.Context(), pod.Spec.NodeName, k.dir(t, e, pod, name))
		if err != nil {
			t.Fatal(err)
		}
		figures := resize.Kernel{CPUQuotaMicroseconds: c.CPUQuota, CPUPeriodMicroseconds: c.CPUPeriod, MemoryLimitBytes: c.MemoryLimit}
		if c.CPUWeight != 0 {
			figures.CPUWeight = &c.CPUWeight
		} else {
			figures.CPUShares = &c.CPUShares
		}
		held[name] = figures
	}
	return held
}

func (k *kernelReader) dir(t *testing.T, e *env, pod *corev1.Pod, container string) string {
	t.Helper()
	key := struct {
		pod       types.UID
		container string
	}{pod.UID, container}
	if dir, known := k.dirs.Load(key); known {
		return dir.(string)
	}
	dir, err := e.CgroupPath(t.Context(), pod, container)
	if err != nil {
		t.Fatal(err)
	}
	k.dirs.Store(key, dir)
	return dir
}

func containerNames(pod *corev1.Pod) []string {
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	return names
}
