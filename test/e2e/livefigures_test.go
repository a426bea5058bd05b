//go:build e2e

package e2e_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/fallback"
	computed "github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
	"github.com/podresize/podresize/test/cluster"
)

const (
	// sidecarsSince is the first minor release that runs sidecars without a gate.
	sidecarsSince = 29
	// withOverhead is a RuntimeClass of pods with overhead.
	withOverhead = "with-overhead"
)

// liveFigures are pods of which the kubelet's arithmetic is not the sum of the containers alone. All together fit on a node.
func liveFigures(minor int) map[string]*corev1.Pod {
	small, done := amounts{"30m/60m", "16Mi/32Mi"}, []string{"exit", "0", "0s"}
	pods := map[string]*corev1.Pod{
		"init-more": with(pod("", container("app", small), container("log", small)), container("setup", amounts{"200m/350m", "128Mi/256Mi"}, done...)),
		"init-mixed": with(pod("", container("app", small), container("log", small)),
			container("one", amounts{"150m/150m", "16Mi/16Mi"}, done...), container("two", amounts{"10m/10m", "100Mi/100Mi"}, done...)),
		"init-free":         with(pod("", container("app", small)), container("setup", amounts{"10m/", "16Mi/"}, done...)),
		"one-free":          pod("", container("app", small), container("free", amounts{"50m/", "16Mi/"})),
		"no-cpu-limit":      pod("", container("app", amounts{"133m/", "16Mi/32Mi"}), container("log", amounts{"133m/", "16Mi/32Mi"})),
		"overhead":          overhead(pod("", container("app", small))),
		"overhead-one-free": overhead(pod("", container("app", amounts{"30m/60m", "16Mi/"}))),
		"best-effort":       pod("", container("app", amounts{}), container("log", amounts{})),
		"best-overhead":     overhead(pod("", container("app", amounts{}))),
		"minimums":          pod("", container("app", amounts{"1m/5m", "16Mi/32Mi"}), container("log", amounts{"1m/5m", "16Mi/32Mi"})),
		"rounded":           pod("", container("app", amounts{"33m/4096m", "64M/100M"})), // case-76
		"limits-alone":      pod("", container("app", amounts{"/50m", "/48Mi"})),
		"guaranteed":        pod("", container("app", amounts{"50m/50m", "32Mi/32Mi"}), container("log", amounts{"51m/51m", "32Mi/32Mi"})), // case-77
	}
	if minor >= sidecarsSince {
		pods["sidecar"] = with(pod("", container("app", small)),
			sidecar(container("proxy", amounts{"20m/40m", "16Mi/32Mi"})), container("setup", amounts{"100m/200m", "64Mi/128Mi"}, done...))
		pods["sidecar-later"] = with(pod("", container("app", small)),
			container("setup", amounts{"60m/90m", "8Mi/8Mi"}, done...), sidecar(container("proxy", amounts{"20m/40m", "16Mi/32Mi"})))
		pods["sidecar-free"] = with(pod("", container("app", small)), sidecar(container("proxy", amounts{"20m/", "16Mi/"})))
	}
	return pods
}

func overhead(p *corev1.Pod) *corev1.Pod {
	class := withOverhead
	p.Spec.RuntimeClassName = &class
	return p
}

// testLiveFigures: what an agent would take for the kubelet's own figures is what the kernel holds for pods that a kubelet has just
// started. No agent is needed, and nothing is written.
func (e *env) testLiveFigures(t *testing.T) {
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: withOverhead}, Handler: "runc", Overhead: &nodev1.Overhead{
		PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("70m"), corev1.ResourceMemory: resource.MustParse("24Mi")},
	}}
	classes := e.Client().NodeV1().RuntimeClasses()
	if _, err := classes.Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, p := range e.runAll(t, liveFigures(e.minor)) {
		t.Run(name, func(t *testing.T) { e.checkFigures(t, p) })
	}
	if err := classes.Delete(t.Context(), class.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// runAll runs the pods at the same time, until the test ends, named after their keys.
func (e *env) runAll(t *testing.T, pods map[string]*corev1.Pod) map[string]*corev1.Pod {
	t.Helper()
	var (
		group   errgroup.Group
		mu      sync.Mutex
		running = make(map[string]*corev1.Pod, len(pods))
	)
	for key, p := range pods {
		p.Namespace, p.Name = namespace, "figures-"+key
		t.Cleanup(func() {
			if err := e.end(context.Background(), t, p.Name); ignoreNotFound(err) != nil {
				t.Error(err)
			}
		})
		group.Go(func() error {
			runs, err := e.RunPod(t.Context(), p)
			mu.Lock()
			defer mu.Unlock()
			running[key] = runs
			return err
		})
	}
	must(t, group.Wait())
	return running
}

func (e *env) checkFigures(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	before := computed.Before(e.specOf(t, pod))
	checkHeld(t, "the pod", e.cgroupOf(t, pod, ""), before.Cgroup)
	for _, c := range pod.Spec.Containers {
		checkHeld(t, "container "+c.Name, e.cgroupOf(t, pod, c.Name), before.Containers[c.Name])
	}
}

func (e *env) cgroupOf(t *testing.T, pod *corev1.Pod, container string) cluster.Cgroup {
	t.Helper()
	held, err := e.Cgroup(t.Context(), pod, container)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// checkHeld compares each figure, in what the kernel makes of it: whole pages of memory, on cgroup v2 a weight for the shares, under
// systemd a quota in whole steps.
func checkHeld(t *testing.T, what string, held cluster.Cgroup, want computed.Cgroup) {
	t.Helper()
	memory := want.Memory
	if memory != unlimited {
		memory -= memory % 4096
	}
	if !sharesHold(held, want.Shares) || !quotaHolds(held, want.Quota) || held.CPUPeriod != want.Period || held.MemoryLimit != memory {
		t.Errorf("%s: the kernel holds %+v, computed are %+v", what, held, want)
	}
}

// sharesHold knows both formulas by which shares become a weight on cgroup v2: the kubelet's, and that of runc 1.3.2 and later, which
// has 1024 shares weigh 100.
func sharesHold(held cluster.Cgroup, want int64) bool {
	if held.CPUWeight == 0 {
		return held.CPUShares == want
	}
	l := math.Log2(float64(want))
	newer := int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
	return held.CPUWeight == 1+(want-2)*9999/262142 || held.CPUWeight == newer
}

// quotaHolds knows that systemd rounds a quota up to 10 ms in a second, which is 1000 µs in a period.
func quotaHolds(held cluster.Cgroup, want int64) bool {
	const step = 1000
	rounded := (want + step - 1) / step * step
	return held.CPUQuota == want || want != unlimited && strings.Contains(held.Path, ".slice") && held.CPUQuota == rounded
}

// specOf is the CRIResize that a Resizer writes for the pod: the API server looks at it and does not keep it.
func (e *env) specOf(t *testing.T, pod *corev1.Pod) *v1alpha1.CRIResizeSpec {
	t.Helper()
	c := pod.Spec.Containers[0]
	asIs := resize.Requirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}
	if len(asIs.Requests)+len(asIs.Limits) == 0 {
		asIs.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.Quantity{}}
	}
	dry := &dryClient{Client: e.objects}
	res, err := fallback.New(dry, fallback.Options{}).Resize(t.Context(), pod, resize.Resources{Containers: map[string]resize.Requirements{c.Name: asIs}})
	if err != nil || dry.created == nil {
		t.Fatalf("no CRIResize is written: %+v, %v", res, err)
	}
	return &dry.created.Spec
}

// dryClient creates nothing but has the API server say what it would be.
type dryClient struct {
	client.Client
	created *v1alpha1.CRIResize
}

func (d *dryClient) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	err := d.Client.Create(ctx, object, append(opts, client.DryRunAll)...)
	if created, ok := object.(*v1alpha1.CRIResize); ok && err == nil {
		d.created = created
	}
	return err
}
