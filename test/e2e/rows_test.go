//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// testRows plays what users of other tools have run into with runtimes and kernels, on a node whose pods the agent resizes. Each case
// carries the number of its report.
func (e *env) testRows(t *testing.T) {
	t.Run("case-50", e.testPodMemoryFollows)
	t.Run("case-71", e.testNewRun)
	t.Run("case-73", e.testNothingElseIsTouched)
	t.Run("case-74", e.testKernelIsBelieved)
	t.Run("case-76", e.testMoreThanFourCPUs)
	t.Run("case-77", e.testOddQuota)
	t.Run("case-79", e.testQuotaOrder)
	t.Run("case-81", e.testSmallestQuota)
	t.Run("case-83", e.testLimitBelowUsage)
	t.Run("case-84", e.testRevertedByOthers)
	t.Run("case-85", e.testWeightIsNoProof)
	t.Run("case-89", e.testOneConnection)
}

// resized settles a resize and checks the kernel, and that nothing was restarted for it.
func (e *env) resized(t *testing.T, r resize.Resizer, pod *corev1.Pod, w want, held kernel) {
	t.Helper()
	before := runsOf(e.latest(t, pod))
	e.resizeTo(t, r, pod, w.resources())
	equal(t, "the kernel", e.read(t, pod), held)
	equal(t, "ids and restarts", runsOf(e.latest(t, pod)), before)
}

// testPodMemoryFollows: memory.max of the pod goes with that of its container, with the figures of the report (k/k#138760).
func (e *env) testPodMemoryFollows(t *testing.T) {
	const was, asked = 255066112, 5153960729
	p := e.run(t, pod("case-50", container("app", amounts{"100m/200m", fmt.Sprintf("64Mi/%d", was)})))
	equal(t, "the kernel before", e.read(t, p), kernel{"": {102, 20000, was}, "app": {102, 20000, was}})
	const pages = asked / 4096 * 4096
	e.resized(t, e.newResizer(t), p, want{"app": {memory: fmt.Sprintf("/%d", asked)}}, kernel{"": {102, 20000, pages}, "app": {102, 20000, pages}})
}

// testNewRun: what a container was called yesterday is of no use: after a restart the next resize finds the new run.
func (e *env) testNewRun(t *testing.T) {
	r, p := e.newResizer(t), e.run(t, pod("case-71", container("app", amounts{"100m/200m", "32Mi/64Mi"})))
	e.resized(t, r, p, want{"app": {"200m/400m", ""}}, kernel{"": {204, 40000, 64 * mi}, "app": {204, 40000, 64 * mi}})
	e.kill(t, p, "app")
	eventually(t, "the container runs again", func() error {
		if s := e.latest(t, p).Status.ContainerStatuses[0]; s.RestartCount != 1 || s.State.Running == nil {
			return fmt.Errorf("it has %d restarts and is %+v", s.RestartCount, s.State)
		}
		return nil
	})
	e.resized(t, r, p, want{"app": {"300m/600m", "64Mi/128Mi"}}, kernel{"": {307, 60000, 128 * mi}, "app": {307, 60000, 128 * mi}})
	id := e.latest(t, p).Status.ContainerStatuses[0].ContainerID
	if told := e.criResize(t, p).Status.Containers[0]; !strings.HasSuffix(id, "://"+told.ContainerID) || told.RestartCount != 1 {
		t.Errorf("the proof is of run %d of %q, the container is %q", told.RestartCount, told.ContainerID, id)
	}
}

// testNothingElseIsTouched: a change of one resource leaves the other, and leaves no limit where there is none (crun#1287).
func (e *env) testNothingElseIsTouched(t *testing.T) {
	r := e.newResizer(t)
	limited := e.run(t, pod("case-73", container("app", amounts{"100m/200m", "32Mi/64Mi"}, "alloc", "16Mi")))
	e.resized(t, r, limited, want{"app": {cpu: "200m/400m"}}, kernel{"": {204, 40000, 64 * mi}, "app": {204, 40000, 64 * mi}})
	e.resized(t, r, limited, want{"app": {memory: "64Mi/96Mi"}}, kernel{"": {204, 40000, 96 * mi}, "app": {204, 40000, 96 * mi}})
	free := e.run(t, pod("case-73-free", container("app", amounts{"100m/", "32Mi/"}, "alloc", "16Mi")))
	e.resized(t, r, free, want{"app": {cpu: "200m/"}}, kernel{"": {204, unlimited, unlimited}, "app": {204, unlimited, unlimited}})
	e.resized(t, r, free, want{"app": {memory: "64Mi/"}}, kernel{"": {204, unlimited, unlimited}, "app": {204, unlimited, unlimited}})
}

// writeQuota writes a CPU quota into a cgroup behind everybody's back, in microseconds of 100 ms.
func (e *env) writeQuota(t *testing.T, pod *corev1.Pod, container string, quota int64) {
	t.Helper()
	const write = `v1="/sys/fs/cgroup/cpu$0/cpu.cfs_quota_us"; if [ -e "$v1" ]; then echo "$1" > "$v1"; else echo "$1 100000" > "/sys/fs/cgroup$0/cpu.max"; fi`
	_, err := e.Exec(t.Context(), pod.Spec.NodeName, "sh", "-c", write, e.cgroupPath(t, pod, container), strconv.FormatInt(quota, 10))
	must(t, err)
}

// testKernelIsBelieved: a runtime tells resources from what it has stored, or not at all; the cgroup is what counts. Here somebody else
// has written it, which the runtime does not know.
func (e *env) testKernelIsBelieved(t *testing.T) {
	r, p := e.newResizer(t), e.run(t, pod("case-74", container("app", amounts{"100m/200m", "32Mi/64Mi"})))
	e.writeQuota(t, p, "app", 15000)
	written := kernel{"": {102, 20000, 64 * mi}, "app": {102, 15000, 64 * mi}}
	res := e.settle(t, r, p, want{"app": {cpu: "/300m"}}.resources(), func(res resize.Result) error {
		if res.Reason != resize.ReasonNodeDiffers {
			return errors.New("not judged yet")
		}
		return nil
	})
	if res.State != resize.StateRefused || !strings.Contains(res.Message, "15000") || !strings.Contains(res.Message, `"app"`) {
		t.Errorf("%s: %s", res.State, res.Message)
	}
	equal(t, "the kernel", e.read(t, p), written)
	e.writeQuota(t, p, "app", 20000)
	e.resized(t, r, p, want{"app": {cpu: "/400m"}}, kernel{"": {102, 40000, 64 * mi}, "app": {102, 40000, 64 * mi}})
}

// testMoreThanFourCPUs: pod and container are rounded alike (runc#4982).
func (e *env) testMoreThanFourCPUs(t *testing.T) {
	r, p := e.newResizer(t), e.run(t, pod("case-76", container("app", amounts{"100m/4096m", "32Mi/64Mi"})))
	for _, milli := range []int64{4097, 4096, 5003, 4096} {
		before := runsOf(e.latest(t, p))
		e.resizeTo(t, r, p, want{"app": {cpu: fmt.Sprintf("/%dm", milli)}}.resources())
		e.checkQuotas(t, p, milli*100)
		equal(t, "ids and restarts", runsOf(e.latest(t, p)), before)
	}
}

// checkQuotas checks that of a pod and of its only container.
func (e *env) checkQuotas(t *testing.T, pod *corev1.Pod, quota int64) {
	t.Helper()
	for _, name := range []string{"", "app"} {
		if held := e.cgroupOf(t, pod, name); !quotaHolds(held, quota) {
			t.Errorf("cgroup of %q has a quota of %d, want %d", name, held.CPUQuota, quota)
		}
	}
}

// testOddQuota: systemd rounds 51m up to 60m (k/k#61192). That is no difference to fight.
func (e *env) testOddQuota(t *testing.T) {
	r, p := e.newResizer(t), e.run(t, pod("case-77", container("app", amounts{"20m/51m", "32Mi/64Mi"})))
	for _, milli := range []int64{52, 151, 51} {
		e.resizeTo(t, r, p, want{"app": {cpu: fmt.Sprintf("/%dm", milli)}}.resources())
		e.checkQuotas(t, p, milli*100)
	}
	e.reload(t, p)
	e.resizeTo(t, r, p, want{"app": {cpu: "/51m"}}.resources())
	e.checkQuotas(t, p, 5100)
}

// reload has systemd apply anew what it was told, where it is the cgroup driver.
func (e *env) reload(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if !strings.Contains(e.cgroupPath(t, pod, ""), ".slice") {
		return
	}
	_, err := e.Exec(t.Context(), pod.Spec.NodeName, "systemctl", "daemon-reload")
	must(t, err)
}

// testQuotaOrder: cgroup v1 takes no child above its parent at any moment, nor a parent below its child (runc#3084).
func (e *env) testQuotaOrder(t *testing.T) {
	r := e.newResizer(t)
	p := e.run(t, pod("case-79", container("app", amounts{"50m/100m", "32Mi/64Mi"}), container("log", amounts{"50m/900m", "32Mi/64Mi"})))
	e.resized(t, r, p, want{"app": {cpu: "/1900m"}}, kernel{"": {102, 280000, 128 * mi}, "app": {51, 190000, 64 * mi}, "log": {51, 90000, 64 * mi}})
	e.resized(t, r, p, want{"app": {cpu: "/100m"}, "log": {cpu: "/2"}}, kernel{"": {102, 210000, 128 * mi}, "app": {51, 10000, 64 * mi}, "log": {51, 200000, 64 * mi}})
	e.resized(t, r, p, want{"log": {cpu: "/50m"}}, kernel{"": {102, 15000, 128 * mi}, "app": {51, 10000, 64 * mi}, "log": {51, 5000, 64 * mi}})
}

// testSmallestQuota: the kernel takes no quota below 1000 µs (k/k#23113).
func (e *env) testSmallestQuota(t *testing.T) {
	r, p := e.newResizer(t), e.run(t, pod("case-81", container("app", amounts{"100m/200m", "32Mi/64Mi"})))
	e.resized(t, r, p, want{"app": {cpu: "1m/5m"}}, kernel{"": {2, 1000, 64 * mi}, "app": {2, 1000, 64 * mi}})
	e.resized(t, r, p, want{"app": {cpu: "100m/200m"}}, kernel{"": {102, 20000, 64 * mi}, "app": {102, 20000, 64 * mi}})
}

// testLimitBelowUsage: memory in use is neither refused by the kernel nor the end of its process (runc#3509): it is told with the
// numbers, nothing is written, and what has room goes through.
func (e *env) testLimitBelowUsage(t *testing.T) {
	r, p := e.newResizer(t), e.run(t, pod("case-83", container("app", amounts{"100m/200m", "32Mi/192Mi"}, "alloc", "96Mi"), container("log", amounts{"10m/20m", "16Mi/32Mi"})))
	eventually(t, "the memory is in use", func() error { return e.logged(t, p, "holding 100663296") })
	held := e.read(t, p)
	for _, limit := range []int64{64, 96, 100} { // the last two are above what is held, and leave too little free
		res := e.settle(t, r, p, want{"app": {"150m/300m", fmt.Sprintf("/%dMi", limit)}}.resources(), func(res resize.Result) error {
			if res.Reason != resize.ReasonMemoryInUse {
				return errors.New("not judged yet")
			}
			return nil
		})
		if res.State != resize.StateDeferred || !strings.Contains(res.Message, strconv.FormatInt(limit*mi, 10)) || !strings.Contains(res.Message, `"app"`) {
			t.Errorf("a limit of %dMi: %s: %s", limit, res.State, res.Message)
		}
		equal(t, "the kernel", e.read(t, p), held)
	}
	e.resized(t, r, p, want{"app": {"150m/300m", "/128Mi"}}, kernel{"": {163, 32000, 160 * mi}, "app": {153, 30000, 128 * mi}, "log": {10, 2000, 32 * mi}})
	equal(t, "ids and restarts", runsOf(e.latest(t, p)), runsOf(p))
}

// testRevertedByOthers: what somebody else undoes, as a reload of systemd does, is done again, and counted.
func (e *env) testRevertedByOthers(t *testing.T) {
	r, p := e.newResizer(t), e.run(t, pod("case-84", container("app", amounts{"100m/200m", "32Mi/64Mi"})))
	larger := kernel{"": {204, 60000, 96 * mi}, "app": {204, 60000, 96 * mi}}
	e.resized(t, r, p, want{"app": {"200m/600m", "32Mi/96Mi"}}, larger)
	e.reload(t, p)
	e.holds(t, p, larger)
	undo := []func(){func() { e.writeQuota(t, p, "app", 20000) }, func() { e.writeQuota(t, p, "", 70000) }}
	repairs := e.criResize(t, p).Status.Repairs
	for i, change := range undo {
		change()
		eventually(t, "it is repaired", func() error {
			object := e.criResize(t, p)
			if object.Status.Repairs <= repairs+int64(i) || len(object.Status.Conditions) != 1 || object.Status.Conditions[0].Reason != v1alpha1.ReasonApplied {
				return fmt.Errorf("the status is %+v", object.Status)
			}
			return nil
		})
		equal(t, "the kernel afterwards", e.read(t, p), larger)
	}
	equal(t, "ids and restarts", runsOf(e.latest(t, p)), runsOf(p))
}

// testWeightIsNoProof: 290m and 1000m may have the same cpu.weight, 39, by the formulas of two runtimes (runc#4896).
func (e *env) testWeightIsNoProof(t *testing.T) {
	r, p := e.newResizer(t), e.run(t, pod("case-85", container("app", amounts{"290m/", "32Mi/"})))
	for _, milli := range []int64{1000, 290} {
		shares := milli * 1024 / 1000
		e.resizeTo(t, r, p, want{"app": {cpu: fmt.Sprintf("%dm/", milli)}}.resources())
		for _, name := range []string{"", "app"} {
			if held := e.cgroupOf(t, p, name); !sharesHold(held, shares) {
				t.Errorf("%dm: cgroup of %q holds %+v", milli, name, held)
			}
		}
	}
}

// testOneConnection: the agent starts no programs, as those who call crictl do, and holds one connection to the runtime, whatever it
// has done.
func (e *env) testOneConnection(t *testing.T) {
	p, r := e.run(t, pod("case-89", container("app", amounts{"100m/200m", "32Mi/64Mi"}))), e.newResizer(t)
	for _, limit := range []string{"/300m", "/400m", "/200m"} {
		e.resizeTo(t, r, p, want{"app": {cpu: limit}}.resources())
	}
	const look = `for p; do
	[ "$(readlink "/proc/$p/exe")" = /podresize-agent ] || { readlink "/proc/$p/exe"; continue; }
	ls -l "/proc/$p/fd" | sed -n 's/.*socket:\[\([0-9]*\)\].*/\1/p' | while read -r inode; do
		awk -v inode="$inode" '$7 == inode {print "connection"}' "/proc/$p/net/unix"
	done
done`
	agentPod := e.agentPod(t)
	eventually(t, "the agent has one connection and no child", func() error { // a probe may run now and then
		out, err := e.Exec(t.Context(), "n1", append([]string{"sh", "-c", look, "sh"}, e.processes(t, agentPod, "agent")...)...)
		if err == nil && out != "connection\n" {
			err = errors.New(out)
		}
		return err
	})
}
