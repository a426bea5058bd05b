//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// reboot leaves of a node's pods what a reboot does: what is on its disk. $0 is the cgroup of all pods.
const reboot = `
all() { find /sys/fs/cgroup/*"$0" /sys/fs/cgroup"$0" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -u; }
shims=$(for p in $(all); do set -- $(sed 's/.*) //' /proc/$p/stat); echo $2; done | sort -u | grep -vx 1)
for p in $shims; do kill -9 $p; done
while [ -n "$(all)" ]; do kill -9 $(all) 2>/dev/null; done
find /sys/fs/cgroup/*"$0" /sys/fs/cgroup"$0" -depth -type d -exec rmdir {} + 2>/dev/null
grep -o ' /run/containerd/[^ ]*' /proc/self/mounts | sort -r | xargs --no-run-if-empty umount -l
rm -rf /run/containerd/*
! ls -d /sys/fs/cgroup/*"$0" /sys/fs/cgroup"$0" 2>/dev/null`

// testReboot: a pod outlives a reboot of its node, in new containers and with the UID that it had. It gets what it was resized to.
func (e *env) testReboot(t *testing.T) {
	r := e.newResizer(t)
	up, down := e.run(t, tripled("reboot-up")), e.run(t, tripled("reboot-down"))
	e.ends(t, r, up, tripledUp, tripledLarge)
	e.ends(t, r, down, tripledDown, tripledSmall)
	pods := path.Dir(path.Dir(e.cgroupPath(t, up, ""))) // both are Burstable
	kubelet, runtime := e.component(t, "kubelet", "n1"), e.component(t, "containerd", "n1")

	must(t, kubelet.Kill(t.Context()))
	must(t, runtime.Kill(t.Context()))
	_, err := e.Exec(t.Context(), "n1", "sh", "-c", reboot, pods)
	must(t, err)
	must(t, runtime.Start(t.Context()))
	must(t, kubelet.Start(t.Context()))

	for _, c := range []struct {
		pod  *corev1.Pod
		want want
		held kernel
	}{{up, tripledUp, tripledLarge}, {down, tripledDown, tripledSmall}} {
		e.settle(t, r, c.pod, c.want.resources(), func(res resize.Result) error {
			for _, c := range res.Containers {
				if res.State != resize.StateDone || c.RestartCount != 1 {
					return fmt.Errorf("%q has %d restarts", c.Name, c.RestartCount)
				}
			}
			return nil
		})
		equal(t, "the kernel of "+c.pod.Name+" after the reboot", e.read(t, c.pod), c.held)
	}
}

// testUninstall goes as docs/operations.md says, and then starts containers anew, which nobody holds any more.
func (e *env) testUninstall(t *testing.T) {
	e.apply(t, "e2e/manifests") // testOptIn has narrowed it
	must(t, e.WaitDaemonSet(t.Context(), v1alpha1.AgentNamespace, "podresize-agent"))
	e.untilHolds(t, e.agentPod(t).Name)
	r := e.newResizer(t)
	up, down := e.run(t, tripled("uninstall-up")), e.run(t, tripled("uninstall-down"))
	e.ends(t, r, up, tripledUp, tripledLarge)
	e.ends(t, r, down, tripledDown, tripledSmall)

	off := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"enforce":false}}`))
	all := &v1alpha1.CRIResizeList{}
	must(t, e.objects.List(t.Context(), all))
	for i := range all.Items {
		must(t, client.IgnoreNotFound(e.objects.Patch(t.Context(), &all.Items[i], off)))
	}
	for _, p := range []*corev1.Pod{up, down} {
		e.says(t, p, v1alpha1.ReasonNotEnforced)
	}
	e.uninstall(t)

	for _, p := range []*corev1.Pod{up, down} {
		e.kill(t, p, "a")
		eventually(t, "the container comes back as its spec has it", func() error {
			if err := e.held(t, p, kernel{"a": tripledStart["a"]}); err != nil {
				return err
			}
			if n := runsOf(e.latest(t, p))["a"].Restarts; n != 1 {
				return fmt.Errorf("%d restarts", n)
			}
			return nil
		})
	}
	held := e.read(t, down)
	equal(t, "a container that nobody started anew", held["b"], tripledSmall["b"])
	res, err := e.newResizer(t).Resize(t.Context(), e.latest(t, down), tripledUp.resources())
	if err != nil || res.Reason != resize.ReasonNoPath {
		t.Errorf("another resize: %s (%s): %s, %v", res.State, res.Reason, res.Message, err)
	}
}

// uninstall deletes the agents and the API type, and waits until they are gone.
func (e *env) uninstall(t *testing.T) {
	t.Helper()
	foreground := metav1.DeletePropagationForeground
	sets := e.Client().AppsV1().DaemonSets(v1alpha1.AgentNamespace)
	must(t, sets.Delete(t.Context(), "podresize-agent", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	eventually(t, "the agents are gone", func() error {
		_, err := sets.Get(t.Context(), "podresize-agent", metav1.GetOptions{})
		return isGone(err)
	})
	crd := e.Client().CoreV1().RESTClient().Delete().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/criresizes.podresize.dev")
	must(t, crd.Do(t.Context()).Error())
	eventually(t, "the API type is gone", func() error {
		return isGone(e.objects.List(context.WithoutCancel(t.Context()), &v1alpha1.CRIResizeList{}))
	})
}

func isGone(err error) error {
	if err == nil {
		return errors.New("it is not")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
