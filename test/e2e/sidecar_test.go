//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fallbacksidecar "github.com/podresize/podresize/fallback/sidecar"
	"github.com/podresize/podresize/resize/v1alpha1"
	"github.com/podresize/podresize/test/cluster"
)

const sidecarAccount = "with-sidecar" // of manifests/sidecar

// What a pod with app and its sidecar, of 100m and 64Mi, holds at first, and what it is resized to.
var (
	sidecarHolds = figures{102, 10000, 64 * mi}
	sidecarStart = kernel{"": {307, 50000, 192 * mi}, "app": {204, 40000, 128 * mi}, v1alpha1.SidecarContainer: sidecarHolds}

	sidecarUp    = want{"app": {"300m/600m", "128Mi/256Mi"}}
	sidecarLarge = kernel{"": {409, 70000, 320 * mi}, "app": {307, 60000, 256 * mi}, v1alpha1.SidecarContainer: sidecarHolds}

	sidecarDown  = want{"app": {"100m/100m", "32Mi/64Mi"}}
	sidecarSmall = kernel{"": {204, 20000, 128 * mi}, "app": {102, 10000, 64 * mi}, v1alpha1.SidecarContainer: sidecarHolds}
)

// withSidecar is a pod as an embedder makes it. It reaches the API server through the host's network only, as the agents do.
func withSidecar(t *testing.T, name string, a amounts) *corev1.Pod {
	t.Helper()
	p := pod(name, container("app", a))
	p.Namespace, p.Spec.HostNetwork, p.Spec.ServiceAccountName = namespace, true, sidecarAccount
	must(t, fallbacksidecar.Add(&p.Spec, fallbacksidecar.Options{Image: "localhost/podresize-agent:dev", ImagePullPolicy: corev1.PullNever}))
	return p
}

// besideSidecar is a pod with a sidecar under test.
type besideSidecar struct {
	*env
	pod *corev1.Pod
}

// startSidecar runs a pod with a sidecar before the cluster has our API type: it is to wait for that. It is for test.
func (e *env) startSidecar(t *testing.T) besideSidecar {
	t.Helper()
	must(t, e.LoadImage(t.Context(), "localhost/podresize-agent:dev", "../cmd/podresize-agent"))
	e.apply(t, "e2e/manifests/sidecar")
	p := withSidecar(t, "sidecar", amounts{"200m/400m", "64Mi/128Mi"})
	p.Spec.NodeName = e.node
	running, err := e.RunPod(t.Context(), p)
	must(t, err)
	return besideSidecar{env: e, pod: running}
}

// test: a pod with a sidecar is held by that, on a node whose agent holds the others. Whatever becomes of the sidecar, the workload
// runs on.
func (e besideSidecar) test(t *testing.T) {
	p, r := e.pod, e.newResizer(t)
	t.Cleanup(func() {
		if err := e.end(context.WithoutCancel(t.Context()), t, p.Name); err != nil {
			t.Error(err)
		}
	})
	for _, s := range runsOf(e.latest(t, p)) {
		equal(t, "restarts while there was no API type", s.Restarts, int32(0))
	}
	equal(t, "the kernel before", e.read(t, p), sidecarStart)
	e.resized(t, r, p, sidecarUp, sidecarLarge)
	e.resized(t, r, p, sidecarDown, sidecarSmall)
	beat := e.criResize(t, p).Status.Heartbeat
	if beat == nil {
		t.Fatal("there is no heartbeat")
	}
	t.Run("killed", e.testKilled)
	t.Run("workload crashes", e.testCrash)
	t.Run("containerd restarted", e.testRuntimeRestarted)
	t.Run("token", e.testToken)
	t.Run("rights", e.testTokenRights)
	t.Run("class", e.testClass)
	t.Run("heartbeat", func(t *testing.T) {
		eventually(t, "the heartbeat moves", func() error {
			if now := e.criResize(t, p).Status.Heartbeat; !beat.Before(now) {
				return fmt.Errorf("it is %v", now)
			}
			return nil
		})
	})
	t.Run("one writer", e.testOneWriter)
	t.Run("immutable", e.testImmutable)
}

// runOf is the present run of a container; the error is for one that does not run.
func (e *env) runOf(t *testing.T, p *corev1.Pod, container string) (run, error) {
	t.Helper()
	for _, s := range e.latest(t, p).Status.ContainerStatuses {
		if s.Name == container && s.State.Running != nil {
			return run{ID: s.ContainerID, Restarts: s.RestartCount}, nil
		}
	}
	return run{}, errors.New("it does not run")
}

// untilRestarted waits for the next run of a container, and for the sidecar to have proved the kernel for it.
func (e *env) untilRestarted(t *testing.T, p *corev1.Pod, container string, before runs) {
	t.Helper()
	eventually(t, container+" is proved in its next run", func() error {
		now, err := e.runOf(t, p, container)
		if err != nil || now.Restarts != before[container].Restarts+1 {
			return fmt.Errorf("run %+v, %w", now, err)
		}
		for _, k := range e.criResize(t, p).Status.Containers {
			if k.Name == container && strings.HasSuffix(now.ID, "://"+k.ContainerID) {
				return nil
			}
		}
		return errors.New("the status speaks of another run")
	})
}

// testKilled: its kubelet starts it again, and it holds again what it held. Nobody else was restarted for it.
func (e besideSidecar) testKilled(t *testing.T) {
	p := e.pod
	before := runsOf(e.latest(t, p))
	e.kill(t, p, v1alpha1.SidecarContainer)
	e.untilRestarted(t, p, v1alpha1.SidecarContainer, before)
	equal(t, "the kernel", e.read(t, p), sidecarSmall)
	e.writeQuota(t, p, "app", 5000)
	e.holds(t, p, sidecarSmall)
	equal(t, "the workload's run", runsOf(e.latest(t, p))["app"], before["app"])
}

// testCrash: a workload that crashes is started from spec, with more than its pod was left with, and gets again what it had.
func (e besideSidecar) testCrash(t *testing.T) {
	p, r := e.pod, e.newResizer(t)
	before := runsOf(e.latest(t, p))
	e.kill(t, p, "app")
	e.untilRestarted(t, p, "app", before)
	e.resizeTo(t, r, p, sidecarDown.resources())
	equal(t, "the kernel", e.read(t, p), sidecarSmall)
	equal(t, "the sidecar's run", runsOf(e.latest(t, p))[v1alpha1.SidecarContainer], before[v1alpha1.SidecarContainer])
	e.noWarnings(t, p)
}

// testRuntimeRestarted: after a restart of the runtime the sidecar finds the new socket, in the same run.
func (e besideSidecar) testRuntimeRestarted(t *testing.T) {
	p, r := e.pod, e.newResizer(t)
	before := runsOf(e.latest(t, p))
	must(t, e.component(t, "containerd", "n1").Restart(t.Context()))
	e.resizeTo(t, r, p, sidecarUp.resources())
	equal(t, "the kernel", e.read(t, p), sidecarLarge)
	e.resizeTo(t, r, p, sidecarDown.resources())
	equal(t, "the kernel", e.read(t, p), sidecarSmall)
	equal(t, "ids and restarts", runsOf(e.latest(t, p)), before)
}

// testToken: the sidecar has a token, the workload has none.
func (e besideSidecar) testToken(t *testing.T) {
	p := e.pod
	for name, has := range map[string]bool{"app": false, v1alpha1.SidecarContainer: true} {
		mounts, err := e.Exec(t.Context(), p.Spec.NodeName, "cat", "/proc/"+e.processes(t, p, name)[0]+"/mountinfo")
		must(t, err)
		if got := strings.Contains(mounts, "kubernetes.io/serviceaccount"); got != has || mounts == "" {
			t.Errorf("container %q has a token: %t", name, got)
		}
	}
}

// testTokenRights: its account has what it needs in its namespace, and nothing more.
func (e besideSidecar) testTokenRights(t *testing.T) {
	p := e.pod
	bindings, err := e.Client().RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, b := range bindings.Items {
		if slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Name == sidecarAccount }) {
			t.Errorf("ClusterRoleBinding %q is for it", b.Name)
		}
	}
	token, uid := e.token(t, namespace, sidecarAccount, p), string(p.UID)
	attempts := slices.Concat(
		[]attempt{
			{verb: "list", group: podresizeAPI, namespace: namespace, resource: "criresizes"},
			{verb: "patch", group: podresizeAPI, namespace: namespace, resource: "criresizes/status", name: uid, body: `{"status": {"repairs": 1}}`},
		},
		forbidden("get create update patch delete", podresizeAPI, namespace, "criresizes", uid),
		forbidden("update", podresizeAPI, namespace, "criresizes/status", uid),
		forbidden("list", podresizeAPI, "", "criresizes", ""),
		forbidden("list", podresizeAPI, "default", "criresizes", ""),
		forbidden("patch", podresizeAPI, "default", "criresizes/status", uid),
		forbidden("get list patch", coreAPI, namespace, "pods", p.Name),
		forbidden("get", coreAPI, "", "nodes", p.Spec.NodeName),
		forbidden("get update create", leasesAPI, v1alpha1.AgentNamespace, "leases", v1alpha1.AgentLeaseName(p.Spec.NodeName)),
	)
	for _, a := range attempts {
		if err := a.check(a.by(t, token)); err != nil {
			t.Error(err)
		}
	}
}

// testClass: a pod has the QoS class that it has without its sidecar.
func (e besideSidecar) testClass(t *testing.T) {
	r := e.newResizer(t)
	for _, c := range []struct {
		name     string
		amounts  amounts
		class    corev1.PodQOSClass
		asked    want
		at, last kernel
	}{
		{
			"guaranteed",
			amounts{"200m/200m", "64Mi/64Mi"},
			corev1.PodQOSGuaranteed,
			want{"app": {"300m/300m", "128Mi/128Mi"}},
			kernel{"": {307, 30000, 128 * mi}, "app": {204, 20000, 64 * mi}, v1alpha1.SidecarContainer: sidecarHolds},
			kernel{"": {409, 40000, 192 * mi}, "app": {307, 30000, 128 * mi}, v1alpha1.SidecarContainer: sidecarHolds},
		},
		{
			"burstable",
			amounts{"200m/", ""},
			corev1.PodQOSBurstable,
			want{"app": {"300m/", ""}},
			kernel{"": {307, unlimited, unlimited}, "app": {204, unlimited, unlimited}, v1alpha1.SidecarContainer: sidecarHolds},
			kernel{"": {409, unlimited, unlimited}, "app": {307, unlimited, unlimited}, v1alpha1.SidecarContainer: sidecarHolds},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			without := e.run(t, pod("without-sidecar-"+c.name, container("app", c.amounts)))
			p := e.run(t, withSidecar(t, "sidecar-"+c.name, c.amounts))
			equal(t, "the class without it", without.Status.QOSClass, c.class)
			equal(t, "the class", p.Status.QOSClass, c.class)
			equal(t, "the kernel before", e.read(t, p), c.at)
			e.resized(t, r, p, c.asked, c.last)
		})
	}
}

// testOneWriter: nobody but the pod's service account wrote the status; the agent of the node, which was there, did not.
func (e besideSidecar) testOneWriter(t *testing.T) {
	p := e.pod
	e.agentPod(t)
	events, err := e.Audit(t.Context(), func(a cluster.AuditEvent) bool {
		return a.ObjectRef.Resource == "criresizes" && a.ObjectRef.Subresource == "status" && a.ObjectRef.Name == string(p.UID) && a.Mutating() && !a.DryRun()
	})
	must(t, err)
	if len(events) == 0 {
		t.Error("nobody wrote the status")
	}
	for _, a := range events {
		if a.User.Username != "system:serviceaccount:"+namespace+":"+sidecarAccount {
			t.Errorf("%s wrote the status", a.User.Username)
		}
	}
	if spec := e.criResize(t, p).Spec; spec.Sidecar != v1alpha1.SidecarContainer || len(spec.Containers) != 2 {
		t.Errorf("the CRIResize has sidecar %q and %d containers", spec.Sidecar, len(spec.Containers))
	}
}

// testImmutable: a CRIResize never gets another writer of its status, nor loses it.
func (e besideSidecar) testImmutable(t *testing.T) {
	p := e.pod
	const of = "held-by-the-node"
	e.createCRIResize(t, of, p.Spec.NodeName)
	nodes := &v1alpha1.CRIResize{}
	must(t, e.objects.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: of}, nodes))
	for _, c := range []struct {
		object *v1alpha1.CRIResize
		to     string
	}{{e.criResize(t, p), ""}, {e.criResize(t, p), "another"}, {nodes, v1alpha1.SidecarContainer}} {
		must(t, e.objects.Update(t.Context(), c.object.DeepCopy(), client.DryRunAll)) // as it is
		changed := c.object.DeepCopy()
		changed.Spec.Sidecar = c.to
		if err := e.objects.Update(t.Context(), changed, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "sidecar is immutable") {
			t.Errorf("from %q to %q: %v", c.object.Spec.Sidecar, c.to, err)
		}
	}
}

// createSidecars creates a CRIResize that a sidecar is to hold, and at which no agent looks, until the test ends.
func (e *env) createSidecars(t *testing.T, name, node string) {
	t.Helper()
	object := &v1alpha1.CRIResize{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.CRIResizeSpec{
			PodName: "nobody", PodUID: name, NodeName: node, Sidecar: v1alpha1.SidecarContainer,
			QOSClass: corev1.PodQOSBurstable, Containers: []v1alpha1.Container{{Name: "app"}},
		},
	}
	must(t, e.objects.Create(t.Context(), object))
	t.Cleanup(func() {
		if err := e.objects.Delete(withoutCancel(t), object); err != nil {
			t.Error(err)
		}
	})
}
