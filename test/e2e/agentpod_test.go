//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testAgentPod: the agent's pod does not hold up what happens on its node, goes on when the runtime is another one, and says by its
// probes whether it can work.
func (e *env) testAgentPod(t *testing.T) {
	t.Run("probes", e.testProbes)
	t.Run("readiness", e.testReadiness)
	t.Run("containerd restarted, then a pod deleted, terminates", e.testPinsNothing)
}

// mounting is a pod with volumes that are mounts of their own, made while the agent's pod is there.
func mounting(name string) *corev1.Pod {
	size := resource.MustParse("1Mi")
	p := pod(name, container("app", amounts{"100m/200m", "32Mi/64Mi"}))
	p.Spec.Volumes = []corev1.Volume{
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}}},
		{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}}}},
	}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "memory", MountPath: "/memory"}, {Name: "token", MountPath: "/token"}}
	return p
}

// testPinsNothing: what was mounted before the agent, or under its eyes, goes when its pod goes; and the agent finds the runtime's new
// socket.
func (e *env) testPinsNothing(t *testing.T) {
	r, runtime := e.newResizer(t), e.component(t, "containerd", "n1")
	before, agentPod := e.run(t, mounting("before")), e.agentPod(t)
	e.resized(t, r, before, want{"app": {"200m/400m", ""}}, kernel{"": {204, 40000, 64 * mi}, "app": {204, 40000, 64 * mi}})
	e.deletePod(t, agentPod) // the next one finds the mounts of a pod
	agentPod = e.agentPod(t)
	e.untilHolds(t, agentPod.Name)
	under := e.run(t, mounting("under"))
	socket := e.socketInode(t)

	must(t, runtime.Restart(t.Context()))
	if now := e.socketInode(t); now == socket {
		t.Errorf("the socket is the same, inode %s", now)
	}
	after := e.run(t, mounting("after"))
	for _, p := range []*corev1.Pod{before, under, after} {
		e.resized(t, r, p, want{"app": {"300m/600m", "64Mi/128Mi"}}, kernel{"": {307, 60000, 128 * mi}, "app": {307, 60000, 128 * mi}})
	}
	seen := e.mountsSeen(t, agentPod)
	for _, p := range []*corev1.Pod{before, under, after} {
		_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
		if !strings.Contains(seen, id) {
			t.Errorf("the agent does not see the mounts of pod %q, so it cannot pin any", p.Name)
		}
		dir := e.cgroupPath(t, p, "")
		e.deletePod(t, p)
		e.leavesNothing(t, p, dir)
		if strings.Contains(e.mountsSeen(t, agentPod), id) {
			t.Errorf("the agent pins a mount of pod %q", p.Name)
		}
	}
	equal(t, "the agent's runs", runsOf(e.latest(t, agentPod)), runsOf(agentPod))
}

func (e *env) socketInode(t *testing.T) string {
	t.Helper()
	out, err := e.Exec(t.Context(), "n1", "stat", "--format=%i %Z", "/run/containerd/containerd.sock")
	must(t, err)
	return out
}

// mountsSeen are the mounts in the agent's mount namespace.
func (e *env) mountsSeen(t *testing.T, agentPod *corev1.Pod) string {
	t.Helper()
	out, err := e.Exec(t.Context(), "n1", "cat", "/proc/"+e.processes(t, agentPod, "agent")[0]+"/mountinfo")
	must(t, err)
	return out
}

// leavesNothing waits until the pod's directory, mounts and cgroup are gone from its node.
func (e *env) leavesNothing(t *testing.T, pod *corev1.Pod, dir string) {
	t.Helper()
	const look = `ls -d "/var/lib/kubelet/pods/$0" /sys/fs/cgroup"$1" /sys/fs/cgroup/*"$1" 2>/dev/null; grep -F "$0" /proc/self/mounts; true`
	eventually(t, "nothing of the pod is left on its node", func() error {
		out, err := e.Exec(t.Context(), pod.Spec.NodeName, "sh", "-c", look, string(pod.UID), dir)
		if err == nil && out != "" {
			err = fmt.Errorf("there is still %s", out)
		}
		return err
	})
}

// testProbes: the agent is ready within seconds. Without a runtime, and after it, it lives on in the same run.
func (e *env) testProbes(t *testing.T) {
	e.deletePod(t, e.agentPod(t))
	agentPod := e.agentPod(t)
	if took := readySince(agentPod).Sub(agentPod.Status.StartTime.Time); took > 15*time.Second {
		t.Errorf("it took %s to be ready", took)
	}
	e.beats(t, agentPod, "ready")
	runtime := e.component(t, "containerd", "n1")
	must(t, runtime.Stop(t.Context()))
	e.beats(t, agentPod, "asking version of runtime") // that no probe can be run now, a kubelet takes for no answer
	must(t, runtime.Start(t.Context()))
	e.beats(t, agentPod, "ready")
	e.isReady(t, agentPod, true)
	equal(t, "the agent's runs", runsOf(e.latest(t, agentPod)), runsOf(agentPod))
}

// testReadiness has an agent lose a runtime that its kubelet still has: one that knows it by another socket.
func (e *env) testReadiness(t *testing.T) {
	const socket = "/run/containerd/another.sock"
	agentPod := e.newAgent(t, "by-another-socket")
	args := agentPod.Spec.Containers[0].Args
	for i := range args {
		args[i] = strings.Replace(args[i], "containerd.sock", "another.sock", 1)
	}
	pods := e.Client().CoreV1().Pods(agentPod.Namespace)
	agentPod, err := pods.Create(t.Context(), agentPod, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := pods.Delete(context.Background(), agentPod.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	e.beats(t, agentPod, "asking version of runtime")
	e.isReady(t, agentPod, false)
	link, unlink := []string{"ln", "-s", "containerd.sock", socket}, []string{"rm", socket}
	steps := []struct {
		command []string
		ready   bool
	}{{link, true}, {unlink, false}, {link, true}}
	for _, step := range steps {
		_, err := e.Exec(t.Context(), "n1", step.command...)
		must(t, err)
		if !step.ready { // else the connection that it has remains
			must(t, e.component(t, "containerd", "n1").Restart(t.Context()))
		}
		e.isReady(t, agentPod, step.ready)
	}
	_, err = e.Exec(t.Context(), "n1", unlink...)
	must(t, err)
	for name, run := range runsOf(e.latest(t, agentPod)) {
		equal(t, "restarts of "+name, run.Restarts, int32(0))
	}
}

// isReady waits until the pod is ready, or is not and runs all the same.
func (e *env) isReady(t *testing.T, pod *corev1.Pod, ready bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %q is ready: %t", pod.Name, ready), func() error {
		latest := e.latest(t, pod)
		if latest.Status.Phase != corev1.PodRunning || readySince(latest).IsZero() == ready {
			return fmt.Errorf("it is %+v", latest.Status.Conditions)
		}
		return nil
	})
}

// readySince is zero for a pod that is not ready.
func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// beats waits until the agent's heartbeat, which its probes read, says so.
func (e *env) beats(t *testing.T, agentPod *corev1.Pod, says string) {
	t.Helper()
	file := "/var/lib/kubelet/pods/" + string(agentPod.UID) + "/volumes/kubernetes.io~empty-dir/heartbeat/heartbeat"
	eventually(t, "the heartbeat says "+says, func() error {
		out, err := e.Exec(t.Context(), agentPod.Spec.NodeName, "cat", file)
		if err == nil && !strings.HasPrefix(out, says) {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
}
