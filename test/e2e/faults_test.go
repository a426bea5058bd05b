//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
	"github.com/podresize/podresize/test/cluster"
)

// testFaults: whatever ends, hangs or is away while a pod is resized, the kernel holds what was asked for in the end, and no container
// is restarted for it.
func (e *env) testFaults(t *testing.T) {
	t.Run("agent killed between two writes", e.testAgentKilled)
	t.Run("two agents", e.testTwoAgents)
	t.Run("runtime killed in mid-update", e.testRuntimeKilled)
	t.Run("case-69 case-90 runtime hangs for one pod", e.testRuntimeHangs)
	t.Run("API server away", e.testAPIServerAway)
	t.Run("kubelet and runtime restarted", e.testNodeRestarted)
	t.Run("of pods", e.testFaultsOfPods)
}

// The pod of most faults: three containers, so that an update takes a while.
func tripled(name string) *corev1.Pod {
	each := amounts{"100m/200m", "32Mi/64Mi"}
	return pod(name, container("a", each), container("b", each), container("c", each))
}

// tripledHolds are the figures of a tripled pod each of whose containers has these.
func tripledHolds(f figures, podShares int64) kernel {
	return kernel{"": {podShares, 3 * f.Quota, 3 * f.Memory}, "a": f, "b": f, "c": f}
}

var (
	tripledStart = tripledHolds(figures{102, 20000, 64 * mi}, 307)
	tripledUp    = want{"a": {"200m/400m", "64Mi/128Mi"}, "b": {"200m/400m", "64Mi/128Mi"}, "c": {"200m/400m", "64Mi/128Mi"}}
	tripledLarge = tripledHolds(figures{204, 40000, 128 * mi}, 614)
	tripledDown  = want{"a": {"50m/100m", "16Mi/32Mi"}, "b": {"50m/100m", "16Mi/32Mi"}, "c": {"50m/100m", "16Mi/32Mi"}}
	tripledSmall = tripledHolds(figures{51, 10000, 32 * mi}, 153)
)

// cgroups are those of a pod and its containers, where they are as long as nothing is restarted: to be read without the runtime.
type cgroups struct {
	e    *env
	node string
	dirs map[string]string // by container, "" for the pod's own
}

func (e *env) cgroups(t *testing.T, pod *corev1.Pod) cgroups {
	t.Helper()
	c := cgroups{e: e, node: pod.Spec.NodeName, dirs: map[string]string{}}
	for _, name := range append([]string{""}, containerNames(pod)...) {
		c.dirs[name] = e.cgroupPath(t, pod, name)
	}
	return c
}

func (e *env) cgroupPath(t *testing.T, pod *corev1.Pod, container string) string {
	t.Helper()
	dir, err := e.CgroupPath(t.Context(), pod, container)
	must(t, err)
	return dir
}

func (c cgroups) read(t *testing.T) kernel {
	t.Helper()
	held := kernel{}
	for name, dir := range c.dirs {
		f, err := c.e.ReadCgroup(t.Context(), c.node, dir)
		must(t, err)
		held[name] = figuresOf(f)
	}
	return held
}

// strikes kills processes at the moment when the CPU quota of the pod or a container is changed; struck waits for that. An update is
// over in a few milliseconds, so that it is the node which looks for that moment, before anything else that its processors have to do
// if that can be had. Of the processes of an agent one may be a probe that has ended by then; whether anything was struck is for the
// caller to see.
func (c cgroups) strikes(t *testing.T, container string, pids ...string) (struck func()) {
	t.Helper()
	const strike = `chrt --fifo --pid 1 $$ 2>/dev/null
for d in /sys/fs/cgroup/cpu /sys/fs/cgroup; do [ -e "$d$0" ] && break; done
f="$d$0/cpu.cfs_quota_us"; [ -e "$f" ] || f="$d$0/cpu.max"
read was rest <"$f"; is="$was"; echo ready >"$1"
while [ "$is" = "$was" ]; do read is rest <"$f"; done; shift; kill -9 "$@" || true`
	ready := filepath.Join(c.e.NodeDir(), "strikes-"+filepath.Base(c.dirs[container]))
	argv := append([]string{"sh", "-c", strike, c.dirs[container], ready}, pids...)
	failed := make(chan error, 1)
	go func() {
		_, err := c.e.Exec(t.Context(), c.node, argv...)
		failed <- err
	}()
	eventually(t, "the node looks for the moment", func() error {
		_, err := c.e.Exec(t.Context(), c.node, "test", "-e", ready)
		return err
	})
	return func() {
		t.Helper()
		must(t, <-failed)
	}
}

// half insists that an update was caught half-way.
func (c cgroups) half(t *testing.T, from, to kernel) {
	t.Helper()
	if held := c.read(t); cmp.Equal(held, from) || cmp.Equal(held, to) {
		t.Errorf("nothing was half-way: %v", held)
	}
}

// holds waits until the kernel holds it, and asks the runtime alone.
func (e *env) holds(t *testing.T, pod *corev1.Pod, want kernel) {
	t.Helper()
	eventually(t, "the kernel holds what is wanted", func() error { return e.held(t, pod, want) })
}

// held says what the kernel does not hold, whatever runs the pod's containers are in.
func (e *env) held(t *testing.T, pod *corev1.Pod, want kernel) error {
	t.Helper()
	for name, f := range want {
		held, err := e.Cgroup(t.Context(), pod, name)
		if err != nil {
			return err
		}
		if got := figuresOf(held); !got.Equal(f) {
			return fmt.Errorf("%q has %+v, not %+v", name, got, f)
		}
	}
	return nil
}

// ask writes down what is wanted and does not wait for it.
func ask(t *testing.T, r resize.Resizer, pod *corev1.Pod, w want) {
	t.Helper()
	res, err := r.Resize(t.Context(), pod, w.resources())
	if err != nil || res.State != resize.StateInProgress {
		t.Fatalf("asking: %s (%s): %s, %v", res.State, res.Reason, res.Message, err)
	}
}

// ends waits for Done and checks the end state: the kernel, and that no container was restarted.
func (e *env) ends(t *testing.T, r resize.Resizer, pod *corev1.Pod, w want, held kernel) {
	t.Helper()
	e.resizeTo(t, r, pod, w.resources())
	equal(t, "the kernel in the end", e.read(t, pod), held)
	equal(t, "ids and restarts in the end", runsOf(e.latest(t, pod)), runsOf(pod))
}

// says waits until the agent's answer about a pod is that reason.
func (e *env) says(t *testing.T, pod *corev1.Pod, reason string) *v1alpha1.CRIResize {
	t.Helper()
	var object *v1alpha1.CRIResize
	eventually(t, "the agent says "+reason, func() error {
		if object = e.criResize(t, pod); object == nil {
			return errors.New("there is no CRIResize")
		}
		said := apimeta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionApplied)
		if said == nil || said.Reason != reason || said.ObservedGeneration != object.Generation {
			return fmt.Errorf("generation %d: it says %+v", object.Generation, said)
		}
		return nil
	})
	return object
}

// reports counts the answers of agents about a pod so far.
func (e *env) reports(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	return len(e.audit(t, func(a cluster.AuditEvent) bool {
		return a.User.Username == agent && a.ObjectRef.Subresource == "status" && a.ObjectRef.Name == string(pod.UID)
	}))
}

// agentPod waits for the pod of the DaemonSet's agent to be Ready, and gives it.
func (e *env) agentPod(t *testing.T) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, "an agent is ready", func() error {
		list, err := e.Client().CoreV1().Pods(v1alpha1.AgentNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=podresize-agent"})
		if err != nil {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.DeletionTimestamp == nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready {
				found = p
				return nil
			}
		}
		return fmt.Errorf("%d agents, none of them is", len(list.Items))
	})
	return found
}

// holder is which agent writes on the node, and the how many-th one that is.
func (e *env) holder(t *testing.T) (identity string, transitions int32) {
	t.Helper()
	lease, err := e.Client().CoordinationV1().Leases(v1alpha1.AgentNamespace).Get(t.Context(), v1alpha1.AgentLeaseName(e.NodeName("n1")), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), ptr.Deref(lease.Spec.LeaseTransitions, 0)
}

func (e *env) untilHolds(t *testing.T, identity string) {
	t.Helper()
	eventually(t, "agent "+identity+" holds the Lease", func() error {
		if holder, _ := e.holder(t); holder != identity {
			return fmt.Errorf("%q does", holder)
		}
		return nil
	})
}

func (e *env) deletePod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := e.DeletePod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// testAgentKilled kills the agent when it has made its first write of a resize and not its last: up, when the pod's cgroup is
// raised, and down, when a container is lowered. The next container of the same pod goes on, with the Lease that it has.
func (e *env) testAgentKilled(t *testing.T) {
	for _, c := range []struct {
		name, first string // to be changed
		want        want
		to          kernel
	}{
		{"up", "", tripledUp, tripledLarge},
		{"down", "a", tripledDown, tripledSmall},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.deletePod(t, e.agentPod(t)) // the kubelet delays the second restart of a container
			agentPod := e.agentPod(t)
			e.untilHolds(t, agentPod.Name)
			_, transitions := e.holder(t)
			r, pod := e.newResizer(t), e.run(t, tripled("agent-killed-"+c.name))
			dirs := e.cgroups(t, pod)
			struck := dirs.strikes(t, c.first, e.processes(t, agentPod, "agent")...)
			ask(t, r, pod, c.want)
			struck()
			dirs.half(t, tripledStart, c.to)
			e.ends(t, r, pod, c.want, c.to)
			if after := e.agentPod(t); after.Name != agentPod.Name || runsOf(after)["agent"].Restarts != 1 {
				t.Errorf("the agent is %s, restarts %v", after.Name, runsOf(after))
			}
			if holder, now := e.holder(t); holder != agentPod.Name || now != transitions {
				t.Errorf("%s holds the Lease, after %d transitions, which were %d", holder, now, transitions)
			}
		})
	}
}

// signaller prepares a signal to processes of a node, to be sent without delay.
func (e *env) signaller(t *testing.T, node, signal string, pids ...string) (send func()) {
	t.Helper()
	return func() {
		t.Helper()
		_, err := e.Exec(context.WithoutCancel(t.Context()), node, append([]string{"kill", "-" + signal}, pids...)...)
		must(t, err)
	}
}

// processes are the ids of the processes in a container, as its node sees them.
func (e *env) processes(t *testing.T, pod *corev1.Pod, container string) []string {
	t.Helper()
	const list = `for d in /sys/fs/cgroup/pids /sys/fs/cgroup; do f="$d$0/cgroup.procs"; [ -e "$f" ] && break; done; cat "$f"`
	out, err := e.Exec(t.Context(), pod.Spec.NodeName, "sh", "-c", list, e.cgroupPath(t, pod, container))
	must(t, err)
	return strings.Fields(out)
}

// testTwoAgents: of two agents on one node one writes, until it ends.
func (e *env) testTwoAgents(t *testing.T) {
	first := e.agentPod(t)
	e.untilHolds(t, first.Name)
	second := e.runAgent(t, "second-agent")
	r, pod := e.newResizer(t), e.run(t, tripled("two-agents"))
	looks := func(agent *corev1.Pod) int {
		log, err := e.Client().CoreV1().Pods(agent.Namespace).GetLogs(agent.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		must(t, err)
		return looksIn(string(log), pod)
	}
	onlyOneLooks := func(one, other *corev1.Pod) {
		t.Helper()
		eventually(t, "the agent with the Lease tells that it looked", func() error { // after it has said so to the API server
			if looks(one) == 0 {
				return errors.New("it does not")
			}
			return nil
		})
		if n := looks(other); n > 0 {
			t.Errorf("the agent without the Lease looked %d times", n)
		}
	}
	e.ends(t, r, pod, tripledUp, tripledLarge)
	onlyOneLooks(first, second)
	e.nowhere(t, `"true"`)
	e.untilHolds(t, second.Name)
	e.ends(t, r, pod, tripledDown, tripledSmall)
	e.nowhere(t, "null")
	third := e.agentPod(t)
	onlyOneLooks(second, third)
	e.deletePod(t, second)
	e.untilHolds(t, third.Name)
	e.ends(t, r, pod, tripledUp, tripledLarge)
}

// nowhere sets, or with null takes back, a label that the DaemonSet's nodes must have and none has.
func (e *env) nowhere(t *testing.T, value string) {
	t.Helper()
	patch := []byte(`{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":` + value + `}}}}}`)
	_, err := e.Client().AppsV1().DaemonSets(v1alpha1.AgentNamespace).Patch(t.Context(), "podresize-agent", types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
}

// runAgent runs another agent of the node until the test ends.
func (e *env) runAgent(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	e.endAgent(t, name)
	pod, err := e.RunPod(t.Context(), e.newAgent(t, name))
	must(t, err)
	return pod
}

// newAgent makes a pod as the DaemonSet does.
func (e *env) newAgent(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	set, err := e.Client().AppsV1().DaemonSets(v1alpha1.AgentNamespace).Get(t.Context(), "podresize-agent", metav1.GetOptions{})
	must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: name}, Spec: set.Spec.Template.Spec}
	pod.Spec.NodeName = e.NodeName("n1")
	return pod
}

// endAgent deletes a pod when the test ends.
func (e *env) endAgent(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		gone := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(1))}
		if err := e.Client().CoreV1().Pods(v1alpha1.AgentNamespace).Delete(ctx, name, gone); ignoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

func (e *env) component(t *testing.T, program, node string) component {
	t.Helper()
	p, err := e.Component(program, node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for a test that ends early
		if err := p.Start(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// must fails the test for an error of what is not under test.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testRuntimeKilled kills the runtime when the pod's cgroup is raised and not all containers are. What the agent says then is what
// the kernel holds.
func (e *env) testRuntimeKilled(t *testing.T) {
	runtime := e.component(t, "containerd", "n1")
	r, pod := e.newResizer(t), e.run(t, tripled("runtime-killed"))
	pid, err := e.Exec(t.Context(), "n1", "pgrep", "--full", e.Containerd("n1"))
	must(t, err)
	dirs := e.cgroups(t, pod)
	struck := dirs.strikes(t, "", strings.TrimSpace(pid))
	ask(t, r, pod, tripledUp)
	struck()
	dirs.half(t, tripledStart, tripledLarge)
	e.says(t, pod, v1alpha1.ReasonRuntimeUnavailable)
	must(t, runtime.Start(t.Context()))
	e.ends(t, r, pod, tripledUp, tripledLarge)
}

// testRuntimeHangs stops the process through which the runtime reaches one pod. The agent gives up on that pod for the moment, and
// goes on with the others. A containerd of version 2 does not get as far as the update: it gives up on the state of the sandbox.
func (e *env) testRuntimeHangs(t *testing.T) {
	r, stuck, other := e.newResizer(t), e.run(t, tripled("hangs")), e.run(t, tripled("hangs-not"))
	dirs, others := e.cgroups(t, stuck), e.cgroups(t, other)
	shim := e.parent(t, "n1", e.processes(t, stuck, "a")[0])
	resume := e.signaller(t, "n1", "CONT", shim)
	e.signaller(t, "n1", "STOP", shim)()
	t.Cleanup(resume)
	ask(t, r, stuck, tripledUp)
	eventually(t, "the update of one pod begins, or fails", func() error {
		object := e.criResize(t, stuck)
		said := apimeta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionApplied)
		if cmp.Equal(dirs.read(t), tripledStart) && (said == nil || said.Reason != v1alpha1.ReasonRuntimeUnavailable) {
			return errors.New("nothing has changed")
		}
		return nil
	})
	ask(t, r, other, tripledUp)
	eventually(t, "the other pod is resized", func() error {
		if held := others.read(t); !cmp.Equal(held, tripledLarge) {
			return fmt.Errorf("it holds %v", held)
		}
		return nil
	})
	e.says(t, stuck, v1alpha1.ReasonRuntimeUnavailable)
	held := dirs.read(t)
	equal(t, "a container of the pod that hangs", held["a"], tripledStart["a"])
	resume()
	e.ends(t, r, stuck, tripledUp, tripledLarge)
	e.ends(t, r, other, tripledUp, tripledLarge)
}

// parent is the process that started another one.
func (e *env) parent(t *testing.T, node, pid string) string {
	t.Helper()
	stat, err := e.Exec(t.Context(), node, "cat", "/proc/"+pid+"/stat")
	must(t, err)
	_, rest, _ := strings.Cut(stat, ") ") // pid (name) state parent
	return strings.Fields(rest)[1]
}

// testAPIServerAway: what the agent knows it holds without an API server too, and tells it afterwards.
func (e *env) testAPIServerAway(t *testing.T) {
	server := e.component(t, "kube-apiserver", "")
	r, pod := e.newResizer(t), e.run(t, tripled("api-away"))
	e.ends(t, r, pod, tripledDown, tripledSmall)
	repairs := e.criResize(t, pod).Status.Repairs
	agentPod, old := e.agentPod(t), e.cgroups(t, pod)
	kill := e.signaller(t, "n1", "KILL", e.processes(t, pod, "b")...)

	must(t, server.Kill(t.Context()))
	kill()
	eventually(t, "the kubelet restarts the container", func() error {
		dir, err := e.CgroupPath(t.Context(), pod, "b")
		if err == nil && dir == old.dirs["b"] {
			err = errors.New("it has not")
		}
		return err
	})
	e.holds(t, pod, tripledSmall)
	must(t, server.Start(t.Context()))

	e.settle(t, r, pod, tripledDown.resources(), func(res resize.Result) error {
		if res.State != resize.StateDone || res.Containers[1].RestartCount != 1 {
			return fmt.Errorf("%d restarts", res.Containers[1].RestartCount)
		}
		return nil
	})
	equal(t, "the kernel in the end", e.read(t, pod), tripledSmall)
	if object := e.says(t, pod, v1alpha1.ReasonApplied); object.Status.Repairs <= repairs {
		t.Errorf("%d repairs are told, %d before", object.Status.Repairs, repairs)
	}
	runs := runsOf(e.latest(t, pod))
	delete(runs, "b")
	before := maps.Clone(runsOf(pod))
	delete(before, "b")
	equal(t, "the other containers", runs, before)
	equal(t, "the agent's runs", runsOf(e.latest(t, agentPod)), runsOf(agentPod))
}

// testNodeRestarted: a resized pod keeps what it has when its kubelet and its runtime are restarted, and is resized on afterwards.
func (e *env) testNodeRestarted(t *testing.T) {
	r, pod := e.newResizer(t), e.run(t, tripled("node-restarted"))
	e.ends(t, r, pod, tripledDown, tripledSmall)
	dirs := e.cgroups(t, pod)
	for _, program := range []string{"kubelet", "containerd"} {
		must(t, e.component(t, program, "n1").Restart(t.Context()))
		equal(t, "the kernel after a restart of "+program, dirs.read(t), tripledSmall)
		equal(t, "ids and restarts", runsOf(e.latest(t, pod)), runsOf(pod))
	}
	e.ends(t, r, pod, tripledUp, tripledLarge)
	e.deletePod(t, pod)
}
