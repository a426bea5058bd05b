//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/test/cluster"
)

const (
	// tolerance is how far a measured CPU time may be from the expected one.
	tolerance = 0.1
	// measuredTime is the CPU time of one measurement of weights, measuredPeriods the length of one of quotas, in periods of 100 ms.
	measuredTime    = 2 * time.Second
	measuredPeriods = 20
)

// meter reads the CPU accounting of one cgroup.
type meter struct {
	e         *env
	node, dir string
}

// meter is that of a container, or with an empty name of the pod.
func (e *env) meter(t *testing.T, pod *corev1.Pod, container string) meter {
	t.Helper()
	return meter{e: e, node: pod.Spec.NodeName, dir: e.cgroupPath(t, pod, container)}
}

func (m meter) read(t *testing.T) cluster.CPUUse {
	t.Helper()
	use, err := m.e.CPUUse(t.Context(), m.node, m.dir)
	must(t, err)
	return use
}

// onOneCPU keeps all threads of a container on the first CPU, so that busy containers compete for it and leave the others alone.
func (e *env) onOneCPU(t *testing.T, pod *corev1.Pod, container string) {
	t.Helper()
	for _, pid := range e.processes(t, pod, container) {
		_, err := e.Exec(t.Context(), pod.Spec.NodeName, "taskset", "--all-tasks", "--cpu-list", "--pid", "0", pid)
		must(t, err)
	}
}

// testWeights: two busy pods share a CPU by the requests that they were resized to. Weights count between pods only if they are the
// pods'.
func (e *env) testWeights(t *testing.T) {
	busy := func(name string) *corev1.Pod {
		p := e.run(t, pod(name, container("app", amounts{"100m/", "32Mi/"}, "burn", "2")))
		e.onOneCPU(t, p, "app")
		return p
	}
	one, other := busy("weights-one"), busy("weights-other")
	before := []runs{runsOf(one), runsOf(other)}
	r, meters := e.newResizer(t), [2]meter{e.meter(t, one, ""), e.meter(t, other, "")}

	checkShares(t, "as they began", meters, 1)
	e.resizeTo(t, r, one, want{"app": {cpu: "300m/"}}.resources())
	equal(t, "the kernel", e.read(t, one), kernel{"": {307, unlimited, unlimited}, "app": {307, unlimited, unlimited}})
	checkShares(t, "one has three times the request", meters, 3)
	e.resizeTo(t, r, other, want{"app": {cpu: "600m/"}}.resources())
	equal(t, "the kernel", e.read(t, other), kernel{"": {614, unlimited, unlimited}, "app": {614, unlimited, unlimited}})
	checkShares(t, "the other has twice the request", meters, 0.5)

	equal(t, "ids and restarts after all", []runs{runsOf(e.latest(t, one)), runsOf(e.latest(t, other))}, before)
}

// checkShares measures until the first pod has ratio times the CPU time of the second. Something else on this machine may spoil one
// measurement; wrong weights spoil all.
func checkShares(t *testing.T, when string, meters [2]meter, ratio float64) {
	t.Helper()
	eventually(t, when, func() error {
		var used [2]time.Duration
		was := [2]cluster.CPUUse{meters[0].read(t), meters[1].read(t)}
		eventually(t, "they are busy", func() error {
			for i, m := range meters {
				used[i] = m.read(t).Used - was[i].Used
			}
			if used[0]+used[1] < measuredTime {
				return fmt.Errorf("they have used %s and %s", used[0], used[1])
			}
			return nil
		})
		if got := used[0].Seconds() / used[1].Seconds(); math.Abs(got/ratio-1) > tolerance {
			return fmt.Errorf("they used %s and %s, a ratio of %.2f, want %.2f", used[0], used[1], got, ratio)
		}
		return nil
	})
}

// goFirst has this machine run the cluster before anything else until the test ends, so that a quota is what keeps a busy pod from
// more. A node in a machine of its own has that for itself.
func (e *env) goFirst(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	below, here := strings.CutPrefix(e.cgroupPath(t, pod, ""), "/podresize/")
	if !here {
		return
	}
	name, _, _ := strings.Cut(below, "/")
	const weigh = `for d in /podresize "/podresize/$0"; do
	if [ -e "/sys/fs/cgroup/cpu$d/cpu.shares" ]; then echo "$1" >"/sys/fs/cgroup/cpu$d/cpu.shares"; else echo "$2" >"/sys/fs/cgroup$d/cpu.weight"; fi
done`
	set := func(shares, weight string) {
		_, err := e.Exec(context.WithoutCancel(t.Context()), pod.Spec.NodeName, "sh", "-c", weigh, name, shares, weight)
		must(t, err)
	}
	set("262144", "10000")
	t.Cleanup(func() { set("1024", "100") })
}

// testQuotas: the pod's quota goes with its container's. One that stayed behind would go on capping the container.
func (e *env) testQuotas(t *testing.T) {
	t.Run("capped by its pod", func(t *testing.T) {
		p := e.run(t, pod("capped", container("app", amounts{"100m/200m", "32Mi/64Mi"}, "burn", "2"), container("log", amounts{"10m/200m", "32Mi/64Mi"})))
		e.goFirst(t, p)
		app, before, r := e.meter(t, p, "app"), runsOf(p), e.newResizer(t)
		checkQuota(t, app, 0.2)
		e.resizeTo(t, r, p, want{"app": {cpu: "/600m"}}.resources()) // more than the pod had
		equal(t, "the kernel", e.read(t, p), kernel{"": {112, 80000, 128 * mi}, "app": {102, 60000, 64 * mi}, "log": {10, 20000, 64 * mi}})
		checkQuota(t, app, 0.6)
		equal(t, "ids and restarts", runsOf(e.latest(t, p)), before)
	})
	t.Run("case-49", func(t *testing.T) {
		p := e.run(t, pod("case-49", container("app", amounts{"100m/500m", "32Mi/64Mi"}, "burn", "2")))
		e.goFirst(t, p)
		whole, before, r := e.meter(t, p, ""), runsOf(p), e.newResizer(t)
		checkQuota(t, whole, 0.5)
		e.resizeTo(t, r, p, want{"app": {cpu: "/1500m"}}.resources())
		equal(t, "the kernel after the way up", e.read(t, p), kernel{"": {102, 150000, 64 * mi}, "app": {102, 150000, 64 * mi}})
		checkMoreThan(t, whole, 0.5)
		e.resizeTo(t, r, p, want{"app": {cpu: "/500m"}}.resources())
		equal(t, "the kernel after the way down", e.read(t, p), kernel{"": {102, 50000, 64 * mi}, "app": {102, 50000, 64 * mi}})
		checkQuota(t, whole, 0.5)
		equal(t, "ids and restarts", runsOf(e.latest(t, p)), before)
	})
}

// measure gives the CPUs that are used on average in the next periods of the quota, and in how many of them it stopped somebody.
func (m meter) measure(t *testing.T) (cpus float64, throttled int64) {
	t.Helper()
	was, is := m.read(t), cluster.CPUUse{}
	eventually(t, "periods pass", func() error {
		if is = m.read(t); is.Periods-was.Periods < measuredPeriods {
			return fmt.Errorf("%d periods have passed", is.Periods-was.Periods)
		}
		return nil
	})
	const period = 100 * time.Millisecond
	passed := time.Duration(is.Periods-was.Periods) * period
	return (is.Used - was.Used).Seconds() / passed.Seconds(), is.Throttled - was.Throttled
}

// checkQuota measures until so many CPUs are used; more are never. A busy machine may give less for a while.
func checkQuota(t *testing.T, m meter, cpus float64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%.1f CPUs are used", cpus), func() error {
		used, throttled := m.measure(t)
		if used > cpus*(1+tolerance) {
			t.Fatalf("%.2f CPUs are used, %.2f are allowed", used, cpus)
		}
		if used < cpus*(1-tolerance) || throttled == 0 {
			return fmt.Errorf("%.2f CPUs are used, and the quota stopped it %d times", used, throttled)
		}
		return nil
	})
}

// checkMoreThan measures until more CPUs are used than so many, or no quota is what keeps it from that, on a busy machine.
func checkMoreThan(t *testing.T, m meter, cpus float64) {
	t.Helper()
	eventually(t, fmt.Sprintf("more than %.1f CPUs are used", cpus), func() error {
		if used, throttled := m.measure(t); used < cpus*(1+tolerance) && throttled > 0 {
			return fmt.Errorf("%.2f CPUs are used, and the quota stopped it %d times", used, throttled)
		}
		return nil
	})
}
