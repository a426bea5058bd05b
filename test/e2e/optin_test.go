//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/fallback"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// testExceedsNode: what a caller that has been broken into writes, with the right to write any CRIResize, does not make a pod heavier
// than its node.
func (e *env) testExceedsNode(t *testing.T) {
	p := e.run(t, tripled("exceeds-node"))
	spec := e.tripledSpec(t, p)
	huge := spec.DeepCopy()
	huge.Containers[0].Wanted.Requests[corev1.ResourceCPU] = resource.MustParse("1000")
	hidden := huge.DeepCopy()
	hidden.Containers[1].Wanted.Requests[corev1.ResourceCPU] = resource.MustParse("-1000")
	object := &v1alpha1.CRIResize{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(p.UID), Labels: map[string]string{v1alpha1.LabelNode: v1alpha1.NodeLabelValue(p.Spec.NodeName)}},
	}
	caller := newClient(t, e.as(t, resizerUser, resizers))
	for i, s := range []*v1alpha1.CRIResizeSpec{huge, hidden} {
		s.DeepCopyInto(&object.Spec)
		if i == 0 {
			must(t, caller.Create(t.Context(), object))
		} else {
			must(t, caller.Update(t.Context(), object))
		}
		e.says(t, p, v1alpha1.ReasonExceedsNode)
		equal(t, "the kernel", e.read(t, p), tripledStart)
		object = e.criResize(t, p)
	}
	r := e.newResizer(t)
	res := e.settle(t, r, p, resize.Resources{}, nothingToWaitFor)
	if res.State != resize.StateInfeasible || res.Reason != resize.ReasonNodeTooSmall {
		t.Errorf("a caller is told %s (%s): %s", res.State, res.Reason, res.Message)
	}
	e.ends(t, r, p, tripledUp, tripledLarge)
}

// tripledSpec is the spec of the CRIResize that changes nothing of a tripled pod.
func (e *env) tripledSpec(t *testing.T, p *corev1.Pod) *v1alpha1.CRIResizeSpec {
	t.Helper()
	spec := &v1alpha1.CRIResizeSpec{PodName: p.Name, PodUID: string(p.UID), NodeName: p.Spec.NodeName, QOSClass: p.Status.QOSClass}
	for _, c := range p.Spec.Containers {
		has := func() v1alpha1.Requirements {
			return v1alpha1.Requirements{Requests: c.Resources.Requests.DeepCopy(), Limits: c.Resources.Limits.DeepCopy()}
		}
		spec.Containers = append(spec.Containers, v1alpha1.Container{Name: c.Name, Before: has(), Wanted: has()})
	}
	return spec
}

// testOptIn is last on its cluster: afterwards the agents act on pods of one namespace alone that have a label, and have no right on
// CRIResizes elsewhere.
func (e *env) testOptIn(t *testing.T) {
	const in = "team-a" // as in manifests/components/opt-in-namespaces
	labelled := func(name string) *corev1.Pod {
		p := tripled(name)
		p.Labels = map[string]string{"podresize.dev/resize": "allowed"}
		return p
	}
	elsewhere := e.runIn(t, namespace, labelled("elsewhere"))
	out := e.runIn(t, in, tripled("not-opted-in"))
	opted := e.runIn(t, in, labelled("opted-in"))
	// Server-side apply does not delete what the overlay leaves out.
	must(t, e.Client().RbacV1().ClusterRoleBindings().Delete(t.Context(), "podresize-agent", metav1.DeleteOptions{}))
	old := e.agentPod(t)
	e.apply(t, "e2e/manifests-opt-in")
	must(t, e.WaitDaemonSet(t.Context(), v1alpha1.AgentNamespace, "podresize-agent"))
	agentPod := e.agentPod(t)
	if agentPod.Name == old.Name {
		t.Fatal("the agent is the old one")
	}
	e.untilHolds(t, agentPod.Name)

	r := fallback.New(e.objects, fallback.Options{}) // the admin's
	ask(t, r, elsewhere, tripledUp)
	e.inState(t, r, opted, tripledUp, resize.StateDone, resize.ReasonConfirmed)
	equal(t, "the kernel of the pod that is opted in", e.read(t, opted), tripledLarge)
	e.inState(t, r, out, tripledUp, resize.StateRefused, resize.ReasonNotOptedIn)
	late := []byte(`{"metadata": {"labels": {"podresize.dev/resize": "allowed"}}}`)
	_, err := e.Client().CoreV1().Pods(in).Patch(t.Context(), out.Name, mergePatch("").Type(), late, metav1.PatchOptions{})
	must(t, err)
	ask(t, r, e.latest(t, out), tripledDown)
	e.says(t, out, v1alpha1.ReasonNotOptedIn)
	equal(t, "the kernel of the pod that was labelled later", e.read(t, out), tripledStart)
	e.inState(t, r, opted, tripledDown, resize.StateDone, resize.ReasonConfirmed) // so the agent has seen what came before

	equal(t, "the kernel of the pod in another namespace", e.read(t, elsewhere), tripledStart)
	if said := e.criResize(t, elsewhere).Status; len(said.Conditions) > 0 {
		t.Errorf("an agent answered for the pod in another namespace: %+v", said)
	}
	token := e.token(t, v1alpha1.AgentNamespace, "podresize-agent", agentPod)
	attempts := append(forbidden("list", podresizeAPI, namespace, "criresizes", ""), forbidden("patch", podresizeAPI, namespace, "criresizes/status", string(elsewhere.UID))...)
	attempts = append(attempts, forbidden("list", podresizeAPI, "", "criresizes", "")...)
	attempts = append(attempts, attempt{verb: "list", group: podresizeAPI, namespace: in, resource: "criresizes"})
	for _, a := range attempts {
		if err := a.check(a.by(t, token)); err != nil {
			t.Error(err)
		}
	}
}

// runIn runs a pod in any namespace until the test ends.
func (e *env) runIn(t *testing.T, namespace string, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	p.Namespace, p.Spec.NodeName = namespace, e.node
	running, err := e.RunPod(t.Context(), p)
	t.Cleanup(func() {
		now := int64(0)
		err := e.Client().CoreV1().Pods(namespace).Delete(withoutCancel(t), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if ignoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	must(t, err)
	return running
}

// inState asks until the answer is this one.
func (e *env) inState(t *testing.T, r resize.Resizer, p *corev1.Pod, w want, state resize.State, reason resize.Reason) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %q is %s", p.Name, state), func() error {
		res, err := r.Resize(t.Context(), e.latest(t, p), w.resources())
		if err == nil && (res.State != state || res.Reason != reason) {
			err = errors.New(string(res.State) + " (" + string(res.Reason) + "): " + res.Message)
		}
		return err
	})
}
