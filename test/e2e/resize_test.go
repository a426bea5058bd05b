//go:build e2e

package e2e_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/setting"
)

// resizeCase is a pod and what is asked of it, step by step. The figures of every step are written out by the kubelet's
// arithmetic (pkg/kubelet/cm/helpers_linux.go), not computed by code under test:
//
//	shares = milli-CPU of requests * 1024 / 1000, at least 2
//	quota  = milli-CPU of limits * 100, at least 1000; no limit: -1
//	memory = limit in whole pages of 4096 bytes; no limit: -1
//
// for a container from its own, for the pod from the sums of its containers, or from an init container that needs more; a limit
// of the pod only if all containers have one.
type resizeCase struct {
	name string
	// since is the first minor release that can run the pod; 0: any.
	since int
	// never: kubelets of 1.27 to 1.31 would reserve it and not bring it into force, so that it is not asked for in place.
	never bool
	pod   *corev1.Pod
	start kernel
	steps []resizeStep
}

type resizeStep struct {
	name string
	want want
	held kernel
	// kept: spec has it already, so that the pod is not written in place either.
	kept bool
}

// limitsAdded is the step after which all containers have limits.
const limitsAdded = "limits added"

func resizeCases() []resizeCase {
	return []resizeCase{
		{
			name:  "burstable",
			pod:   pod("burstable", container("app", amounts{"100m/200m", "64Mi/128Mi"})),
			start: kernel{"": {102, 20000, 128 * mi}, "app": {102, 20000, 128 * mi}},
			steps: []resizeStep{
				{name: "cpu up", want: want{"app": {cpu: "300m/600m"}}, held: kernel{"": {307, 60000, 128 * mi}, "app": {307, 60000, 128 * mi}}},
				{name: "then memory up", want: want{"app": {memory: "128Mi/256Mi"}}, held: kernel{"": {307, 60000, 256 * mi}, "app": {307, 60000, 256 * mi}}},
				{name: "both again", want: want{"app": {"300m/600m", "128Mi/256Mi"}}, held: kernel{"": {307, 60000, 256 * mi}, "app": {307, 60000, 256 * mi}}, kept: true},
				{name: "both down", want: want{"app": {"50m/100m", "32Mi/64Mi"}}, held: kernel{"": {51, 10000, 64 * mi}, "app": {51, 10000, 64 * mi}}},
				{name: "cpu up, memory down", want: want{"app": {"200m/400m", "32Mi/48Mi"}}, held: kernel{"": {204, 40000, 48 * mi}, "app": {204, 40000, 48 * mi}}},
				{name: "limits alone", want: want{"app": {"/1", "/96Mi"}}, held: kernel{"": {204, 100000, 96 * mi}, "app": {204, 100000, 96 * mi}}},
				{name: "requests alone", want: want{"app": {"500m/", "64Mi/"}}, held: kernel{"": {512, 100000, 96 * mi}, "app": {512, 100000, 96 * mi}}},
			},
		},
		{
			name:  "guaranteed",
			pod:   pod("guaranteed", container("app", amounts{"200m/200m", "64Mi/64Mi"})),
			start: kernel{"": {204, 20000, 64 * mi}, "app": {204, 20000, 64 * mi}},
			steps: []resizeStep{
				{name: "cpu up", want: want{"app": {cpu: "500m/500m"}}, held: kernel{"": {512, 50000, 64 * mi}, "app": {512, 50000, 64 * mi}}},
				{name: "then memory up", want: want{"app": {memory: "128Mi/128Mi"}}, held: kernel{"": {512, 50000, 128 * mi}, "app": {512, 50000, 128 * mi}}},
				{name: "memory down", want: want{"app": {memory: "48Mi/48Mi"}}, held: kernel{"": {512, 50000, 48 * mi}, "app": {512, 50000, 48 * mi}}},
				{name: "then cpu down", want: want{"app": {cpu: "100m/100m"}}, held: kernel{"": {102, 10000, 48 * mi}, "app": {102, 10000, 48 * mi}}},
			},
		},
		{
			// The pod's shares come from the sum of the requests, not from the sum of shares: 300m are 307, not 102 + 204.
			name: "burstable, two containers",
			pod: pod("burstable-two",
				container("app", amounts{"100m/200m", "64Mi/128Mi"}), container("log", amounts{"200m/400m", "32Mi/64Mi"})),
			start: kernel{"": {307, 60000, 192 * mi}, "app": {102, 20000, 128 * mi}, "log": {204, 40000, 64 * mi}},
			steps: []resizeStep{
				{name: "one up", want: want{"app": {"300m/300m", "64Mi/256Mi"}}, held: kernel{"": {512, 70000, 320 * mi}, "app": {307, 30000, 256 * mi}, "log": {204, 40000, 64 * mi}}},
				{name: "the other down", want: want{"log": {"50m/100m", "32Mi/48Mi"}}, held: kernel{"": {358, 40000, 304 * mi}, "app": {307, 30000, 256 * mi}, "log": {51, 10000, 48 * mi}}},
				{name: "one down, one up", want: want{"app": {"100m/100m", "32Mi/64Mi"}, "log": {"400m/600m", "64Mi/128Mi"}}, held: kernel{"": {512, 70000, 192 * mi}, "app": {102, 10000, 64 * mi}, "log": {409, 60000, 128 * mi}}},
			},
		},
		{
			name: "guaranteed, two containers",
			pod: pod("guaranteed-two",
				container("app", amounts{"100m/100m", "64Mi/64Mi"}), container("log", amounts{"300m/300m", "128Mi/128Mi"})),
			start: kernel{"": {409, 40000, 192 * mi}, "app": {102, 10000, 64 * mi}, "log": {307, 30000, 128 * mi}},
			steps: []resizeStep{
				{name: "one gives what the other takes", want: want{"app": {"300m/300m", "128Mi/128Mi"}, "log": {"100m/100m", "64Mi/64Mi"}}, held: kernel{"": {409, 40000, 192 * mi}, "app": {307, 30000, 128 * mi}, "log": {102, 10000, 64 * mi}}},
				{name: "both up", want: want{"app": {"500m/500m", "192Mi/192Mi"}, "log": {"200m/200m", "96Mi/96Mi"}}, held: kernel{"": {716, 70000, 288 * mi}, "app": {512, 50000, 192 * mi}, "log": {204, 20000, 96 * mi}}},
				{name: "both down", want: want{"app": {"50m/50m", "48Mi/48Mi"}, "log": {"50m/50m", "32Mi/32Mi"}}, held: kernel{"": {102, 10000, 80 * mi}, "app": {51, 5000, 48 * mi}, "log": {51, 5000, 32 * mi}}},
			},
		},
		{
			name: "one container without limits", never: true,
			pod: pod("no-limits",
				container("app", amounts{"100m/200m", "64Mi/128Mi"}), container("free", amounts{"100m/", "32Mi/"})),
			start: kernel{"": {204, unlimited, unlimited}, "app": {102, 20000, 128 * mi}, "free": {102, unlimited, unlimited}},
			steps: []resizeStep{
				{name: "its request up", want: want{"free": {"250m/", "64Mi/"}}, held: kernel{"": {358, unlimited, unlimited}, "app": {102, 20000, 128 * mi}, "free": {256, unlimited, unlimited}}},
				{name: "the other one up", want: want{"app": {"200m/300m", "64Mi/192Mi"}}, held: kernel{"": {460, unlimited, unlimited}, "app": {204, 30000, 192 * mi}, "free": {256, unlimited, unlimited}}},
				{name: "all down", want: want{"app": {"50m/100m", "32Mi/64Mi"}, "free": {"50m/", "32Mi/"}}, held: kernel{"": {102, unlimited, unlimited}, "app": {51, 10000, 64 * mi}, "free": {51, unlimited, unlimited}}},
				{name: limitsAdded, want: want{"free": {"/200m", "/64Mi"}}, held: kernel{"": {102, 30000, 128 * mi}, "app": {51, 10000, 64 * mi}, "free": {51, 20000, 64 * mi}}},
			},
		},
		{
			name: "requests alone", never: true,
			pod:   pod("requests-alone", container("app", amounts{"100m/", "32Mi/"})),
			start: kernel{"": {102, unlimited, unlimited}, "app": {102, unlimited, unlimited}},
			steps: []resizeStep{
				{name: "up", want: want{"app": {"1001m/", "64Mi/"}}, held: kernel{"": {1025, unlimited, unlimited}, "app": {1025, unlimited, unlimited}}},
				{name: "down", want: want{"app": {cpu: "10m/"}}, held: kernel{"": {10, unlimited, unlimited}, "app": {10, unlimited, unlimited}}},
			},
		},
		{
			// 333 * 1024 / 1000 = 340.99; 100000000 bytes are 24414.06 pages; 4096m is more than the node has, as a limit may be.
			name:  "edges",
			pod:   pod("edges", container("app", amounts{"100m/200m", "64Mi/128Mi"})),
			start: kernel{"": {102, 20000, 128 * mi}, "app": {102, 20000, 128 * mi}},
			steps: []resizeStep{
				{name: "fractions", want: want{"app": {"333m/333m", "64M/100M"}}, held: kernel{"": {340, 33300, 24414 * 4096}, "app": {340, 33300, 24414 * 4096}}},
				{name: "minima", want: want{"app": {cpu: "1m/5m"}}, held: kernel{"": {2, 1000, 24414 * 4096}, "app": {2, 1000, 24414 * 4096}}},
				{name: "no other figure", want: want{"app": {cpu: "2m/8m"}}, held: kernel{"": {2, 1000, 24414 * 4096}, "app": {2, 1000, 24414 * 4096}}},
				{name: "a limit above the node", want: want{"app": {cpu: "1500m/4096m"}}, held: kernel{"": {1536, 409600, 24414 * 4096}, "app": {1536, 409600, 24414 * 4096}}},
			},
		},
		{
			// The init container has ended, and still the pod keeps room for it.
			name: "a large init container",
			pod: with(pod("large-init", container("app", amounts{"100m/200m", "64Mi/128Mi"})),
				container("setup", amounts{"500m/500m", "192Mi/192Mi"}, "exit", "0", "0s")),
			start: kernel{"": {512, 50000, 192 * mi}, "app": {102, 20000, 128 * mi}},
			steps: []resizeStep{
				{name: "up to less than it", want: want{"app": {"200m/400m", "64Mi/160Mi"}}, held: kernel{"": {512, 50000, 192 * mi}, "app": {204, 40000, 160 * mi}}},
				{name: "up to more than it", want: want{"app": {"600m/800m", "64Mi/256Mi"}}, held: kernel{"": {614, 80000, 256 * mi}, "app": {614, 80000, 256 * mi}}},
				{name: "down", want: want{"app": {"100m/100m", "32Mi/64Mi"}}, held: kernel{"": {512, 50000, 192 * mi}, "app": {102, 10000, 64 * mi}}},
			},
		},
		{
			name: "an init container without limits", never: true,
			pod:   with(pod("free-init", container("app", amounts{"100m/200m", "64Mi/128Mi"})), container("setup", amounts{}, "exit", "0", "0s")),
			start: kernel{"": {102, unlimited, unlimited}, "app": {102, 20000, 128 * mi}},
			steps: []resizeStep{
				{name: "up", want: want{"app": {"200m/300m", "64Mi/256Mi"}}, held: kernel{"": {204, unlimited, unlimited}, "app": {204, 30000, 256 * mi}}},
			},
		},
		{
			// A sidecar's resources are added to those of the containers; the init container after it runs beside it: 400m, 320Mi.
			name: "a sidecar", since: 29,
			pod: with(pod("sidecar", container("app", amounts{"100m/200m", "64Mi/128Mi"})),
				sidecar(container("proxy", amounts{"100m/100m", "64Mi/64Mi"})), container("setup", amounts{"300m/300m", "256Mi/256Mi"}, "exit", "0", "0s")),
			start: kernel{"": {409, 40000, 320 * mi}, "app": {102, 20000, 128 * mi}},
			steps: []resizeStep{
				{name: "up to less than the start took", want: want{"app": {"200m/250m", "64Mi/192Mi"}}, held: kernel{"": {409, 40000, 320 * mi}, "app": {204, 25000, 192 * mi}}},
				{name: "up to more", want: want{"app": {"500m/600m", "64Mi/384Mi"}}, held: kernel{"": {614, 70000, 448 * mi}, "app": {512, 60000, 384 * mi}}},
			},
		},
		{
			name:  "nothing changes",
			pod:   pod("nothing", container("app", amounts{"100m/200m", "64Mi/128Mi"})),
			start: kernel{"": {102, 20000, 128 * mi}, "app": {102, 20000, 128 * mi}},
			steps: []resizeStep{
				{name: "nothing named", want: want{}, held: kernel{"": {102, 20000, 128 * mi}, "app": {102, 20000, 128 * mi}}, kept: true},
				{name: "what it has", want: want{"app": {"100m/200m", "64Mi/128Mi"}}, held: kernel{"": {102, 20000, 128 * mi}, "app": {102, 20000, 128 * mi}}, kept: true},
				{name: "what it has in other words", want: want{"app": {"0.1/0.2", "65536Ki/131072Ki"}}, held: kernel{"": {102, 20000, 128 * mi}, "app": {102, 20000, 128 * mi}}, kept: true},
			},
		},
	}
}

func with(p *corev1.Pod, init ...corev1.Container) *corev1.Pod {
	p.Spec.InitContainers = init
	return p
}

// testResize: the kernel holds what is asked for when Done is said, nothing is restarted, and no request is too many.
func (e *env) testResize(t *testing.T) {
	for _, c := range resizeCases() {
		if e.minor < c.since {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r, pod := e.newResizer(t), e.run(t, c.pod)
			equal(t, "the kernel before any resize", e.read(t, pod), c.start)
			if c.never && e.path == resize.PathInPlace && e.minor < setting.SubresourceSince {
				e.neverActuated(t, r, pod, c)
				return
			}
			before := runsOf(pod)
			for _, step := range c.steps {
				res := e.resizeTo(t, r, pod, step.want.resources())
				equal(t, step.name+": the kernel when Done is said", e.read(t, pod), step.held)
				equal(t, step.name+": the evidence", evidence(res), e.evident(res, step.held))
			}
			equal(t, "ids and restarts after all", runsOf(e.latest(t, pod)), before)
			e.checkRequests(t, pod, c.steps)
		})
	}
}

// neverActuated: every step is Infeasible beforehand, which names the container without a limit, and leaves everything as it is.
func (e *env) neverActuated(t *testing.T, r resize.Resizer, pod *corev1.Pod, c resizeCase) {
	t.Helper()
	for _, step := range c.steps {
		if step.name == limitsAdded {
			continue // then all have one
		}
		res, err := r.Resize(t.Context(), pod, step.want.resources())
		if err != nil || res.State != resize.StateInfeasible || res.Reason != resize.ReasonUnsupportedContainer || !strings.Contains(res.Message, "no limits") {
			t.Errorf("%s: %s (%s), %v: %s", step.name, res.State, res.Reason, err, res.Message)
		}
	}
	equal(t, "the kernel after all", e.read(t, pod), c.start)
	equal(t, "requests of the library on the pod", e.onPod(t, pod), []string(nil))
}

// checkRequests: in place, one patch for each step, and no read. As every step that is not kept needs one, it is enough to count
// them in the end. On the CRI path the pod is never written, and looked at once at most before each write of its CRIResize.
func (e *env) checkRequests(t *testing.T, pod *corev1.Pod, steps []resizeStep) {
	t.Helper()
	var patches []string
	for _, step := range steps {
		if e.path == resize.PathInPlace && !step.kept {
			patches = append(patches, e.patched())
		}
	}
	asked := e.onPod(t, pod)
	if e.path == resize.PathInPlace && e.minor < setting.SubresourceSince {
		asked = withoutHelp(t, asked, len(steps))
	}
	if e.path == resize.PathCRI {
		looks := len(asked)
		asked = slices.DeleteFunc(asked, func(request string) bool { return request == "get pods 200" })
		if looks-len(asked) > len(steps) {
			t.Errorf("the pod was looked at %d times in %d steps", looks-len(asked), len(steps))
		}
	}
	equal(t, "requests of the library on the pod", asked, patches)
	if got := e.changesOf(t, pod); got != len(patches) {
		t.Errorf("the pod was written %d times, want %d", got, len(patches))
	}
}

// withoutHelp takes out what is asked of API servers and kubelets of 1.27 to 1.31 beside the patches: a dry run for each Resizer
// that knows nothing, and touches.
func withoutHelp(t *testing.T, asked []string, steps int) []string {
	t.Helper()
	const touch, try = "touch pods 200", "try pods 200"
	var tried, touched int
	asked = slices.DeleteFunc(asked, func(request string) bool {
		switch request {
		case touch:
			touched++
		case try:
			tried++
		}
		return request == touch || request == try
	})
	if tried > 2 || touched > 5*steps {
		t.Errorf("the pod was tried %d times and touched %d times in %d steps", tried, touched, steps)
	}
	return asked
}

// evidence is what a result says of the kernel.
func evidence(res resize.Result) kernel {
	said := kernel{}
	add := func(name string, k *resize.Kernel) {
		if k != nil {
			f := figures{Quota: k.CPUQuotaMicroseconds, Memory: k.MemoryLimitBytes}
			if k.CPUShares != nil {
				f.Shares = *k.CPUShares
			} else if k.CPUWeight != nil {
				f.Shares = -*k.CPUWeight
			}
			said[name] = f
		}
	}
	add("", res.Pod)
	for _, c := range res.Containers {
		add(c.Name, c.Kernel)
	}
	return said
}

// evident is what a result should say of the kernel: on the CRI path what it holds, unless the pod was never resized.
func (e *env) evident(res resize.Result, held kernel) kernel {
	if e.path != resize.PathCRI || res.Reason == resize.ReasonNothingAsked {
		return kernel{}
	}
	return held
}

// testAnotherCaller: one who knows nothing of what was sent before comes to the same answer without sending anything, and what
// it then asks for is added to what the other one asked for.
func (e *env) testAnotherCaller(t *testing.T) {
	pod := e.run(t, pod("shared", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	one, other := e.newResizer(t), e.newResizer(t)
	cpu, memory := want{"app": {cpu: "300m/600m"}}.resources(), want{"app": {memory: "128Mi/256Mi"}}.resources()
	half := kernel{"": {307, 60000, 128 * mi}, "app": {307, 60000, 128 * mi}}
	both := kernel{"": {307, 60000, 256 * mi}, "app": {307, 60000, 256 * mi}}

	e.resizeTo(t, one, pod, cpu)
	for _, w := range []resize.Resources{cpu, {}} {
		e.resizeTo(t, other, pod, w)
		equal(t, "the kernel when another caller says Done", e.read(t, pod), half)
	}
	e.checkRequests(t, pod, make([]resizeStep, 1))

	e.resizeTo(t, other, pod, memory)
	equal(t, "the kernel after both have asked", e.read(t, pod), both)
	e.resizeTo(t, one, pod, cpu)
	equal(t, "the kernel when the first caller looks again", e.read(t, pod), both)
	e.checkRequests(t, pod, make([]resizeStep, 2))
}
