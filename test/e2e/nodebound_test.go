//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// mergePatch is a patch as it is written.
func mergePatch(patch string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(patch))
}

// withoutCancel is for what is to be cleaned up when a test has ended.
func withoutCancel(t *testing.T) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

// testNodeBound: with manifests/components/node-bound, a token of one node's agent writes nothing about another node. The agent itself
// notices nothing of that.
func (e *env) testNodeBound(t *testing.T) {
	agentPod := e.agentPod(t)
	node := agentPod.Spec.NodeName
	const ours, foreign = "on-this-node", "on-another-node"
	e.createCRIResize(t, ours, node)
	e.createCRIResize(t, foreign, "another-node")
	ofPod := string(agentPod.UID) // whose token is taken below
	e.createSidecars(t, ofPod, node)
	e.createSidecars(t, "of-another-pod", node)
	e.apply(t, "e2e/manifests/node-bound")

	long := strings.Repeat("long-", 14) + "name"
	bound := e.token(t, v1alpha1.AgentNamespace, "podresize-agent", agentPod)
	unbound := e.token(t, v1alpha1.AgentNamespace, "podresize-agent", nil)
	onLong := e.token(t, v1alpha1.AgentNamespace, "podresize-agent", e.lying(t, "agent-on-long", "podresize-agent", long))
	another := e.anotherAccount(t)
	status := func(name, refused string) attempt {
		return attempt{verb: "patch", group: podresizeAPI, namespace: namespace, resource: "criresizes/status", name: name, body: `{"status": {"repairs": 3}}`, refused: refused}
	}
	lease := func(name, refused string) attempt {
		return attempt{
			verb: "create", group: leasesAPI, namespace: v1alpha1.AgentNamespace, resource: "leases", refused: refused,
			body: fmt.Sprintf(`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": %q}}`, name),
		}
	}
	const nowhere = "bound to no node"
	of := func(node string) string { return fmt.Sprintf("of node %q", node) }
	eventually(t, "the policies hold", func() error {
		for _, a := range []attempt{status(ours, nowhere), lease("any", nowhere)} {
			if err := a.check(a.by(t, unbound)); err != nil {
				return err
			}
		}
		return nil
	})
	for _, try := range []struct {
		name   string
		config *rest.Config
		attempt
	}{
		{"agent", bound, status(ours, "")},
		{"agent", bound, status(foreign, of(node))},
		{"sidecar", bound, status(ofPod, "")},
		{"sidecar", bound, status("of-another-pod", "a token of the pod itself is needed")},
		{"agent", bound, lease(v1alpha1.AgentLeaseName(node), "")},
		{"agent", bound, lease(v1alpha1.AgentLeaseName("another-node"), of(node))},
		{"agent", bound, lease("podresize-controller", of(node))},
		{"agent", bound, lease(v1alpha1.AgentLeaseName(long), of(node))},
		{"token without a pod", unbound, status(ours, nowhere)},
		{"token without a pod", unbound, lease(v1alpha1.AgentLeaseName(node), nowhere)},
		{"agent of a node with a long name", onLong, lease(v1alpha1.AgentLeaseName(long), "")},
		{"agent of a node with a long name", onLong, lease(v1alpha1.AgentLeaseName(node), of(long))},
		{"agent of a node with a long name", onLong, status(ours, of(long))},
		{"another account", another, status(ours, nowhere)},
		{"another account", another, lease(v1alpha1.AgentLeaseName("another-node"), nowhere)},
		{"another account", another, lease("its-own", "")},
		{"user", e.RESTConfig(), status(foreign, "")},
	} {
		if err := try.check(try.by(t, try.config)); err != nil {
			t.Errorf("%s: %v", try.name, err)
		}
	}

	e.deletePod(t, agentPod)
	agentPod = e.agentPod(t)
	e.untilHolds(t, agentPod.Name)
	object := &v1alpha1.CRIResize{}
	must(t, e.objects.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: ours}, object))
	must(t, e.objects.Patch(t.Context(), object, mergePatch(fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.LabelNode, v1alpha1.NodeLabelValue(node)))))
	e.says(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: ours}}, v1alpha1.ReasonPodNotFound)
}

// lying is a pod that says to be on a node that is not there.
func (e *env) lying(t *testing.T, name, account, node string) *corev1.Pod {
	t.Helper()
	p := pod(name, container("app", amounts{"", ""}))
	p.Spec.NodeName, p.Spec.ServiceAccountName = node, account
	pods := e.Client().CoreV1().Pods(v1alpha1.AgentNamespace)
	created, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		now := int64(0)
		if err := ignoreNotFound(pods.Delete(withoutCancel(t), name, metav1.DeleteOptions{GracePeriodSeconds: &now})); err != nil {
			t.Error(err)
		}
	})
	return created
}

// anotherAccount is a service account that has the agent's rights, by RBAC, and a token without a pod.
func (e *env) anotherAccount(t *testing.T) *rest.Config {
	t.Helper()
	const name = "another"
	accounts := e.Client().CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := accounts.Delete(withoutCancel(t), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	e.bind(t, namespace, "ClusterRole", "podresize-agent", subject)
	e.bind(t, v1alpha1.AgentNamespace, "Role", "podresize-agent", subject)
	user := "system:serviceaccount:" + namespace + ":" + name
	e.waitAllowed(t, user, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Group: "podresize.dev", Resource: "criresizes", Subresource: "status"})
	e.waitAllowed(t, user, authorizationv1.ResourceAttributes{Namespace: v1alpha1.AgentNamespace, Verb: "create", Group: "coordination.k8s.io", Resource: "leases"})
	return e.token(t, namespace, name, nil)
}
