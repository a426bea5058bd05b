//go:build e2e

package e2e_test

import (
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/cluster"
)

// testRights: who lacks a right is told which rule to add.
func (e *env) testRights(t *testing.T) {
	pods := []*corev1.Pod{e.run(t, pod("rights", container("app", amounts{"100m/200m", "64Mi/128Mi"})))}
	getPods := rule("", "pods", "get")
	// The right to patch one of pods and pods/resize is none to patch the other.
	other, refused := "pods", []string{"patch pods/resize 403"}
	if e.resource() == other { // what is refused there is a dry run
		other, refused = "pods/resize", nil
	}
	cases := []struct {
		// only is the path that needs the right; empty: both.
		only  resize.Path
		rules []rbacv1.PolicyRule
		refusal
	}{
		{"", nil, refusal{name: "nobody", says: []string{rulePrinted("", "pods", "get")}}},
		{resize.PathInPlace, []rbacv1.PolicyRule{getPods}, refusal{name: "reader", says: []string{rulePrinted("", e.resource(), "patch")}, asked: refused}},
		{resize.PathCRI, []rbacv1.PolicyRule{getPods}, refusal{name: "reader", says: []string{rulePrinted("podresize.dev", "criresizes", "get")}}},
		{resize.PathInPlace, []rbacv1.PolicyRule{getPods, rule("", other, "patch")}, refusal{name: "patcher", says: []string{rulePrinted("", e.resource(), "patch")}, asked: refused}},
		{resize.PathCRI, []rbacv1.PolicyRule{getPods, rule("podresize.dev", "criresizes", "get", "create", "update")}, refusal{name: "without-nodes", says: []string{rulePrinted("", "nodes", "get")}}},
	}
	for _, c := range cases {
		if c.only != "" && c.only != e.path {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			e.allow(t, c.name, c.rules...)
			c.args, c.code, c.reason = "set rights --cpu 200m --wait", exitForbidden, "Forbidden"
			e.refuse(t, c.name, nil, pods, c.refusal)
		})
	}
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// rulePrinted is a rule as it is to be copied into a role.
func rulePrinted(group, resource string, verb string) string {
	return `apiGroups: ["` + group + `"], resources: ["` + resource + `"], verbs: ["` + verb + `"]`
}

// allow gives a user these rules in the namespace of the suites, and waits until they hold.
func (e *env) allow(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	if len(rules) == 0 {
		return
	}
	meta := metav1.ObjectMeta{Name: user, Namespace: namespace}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: rules}
	if _, err := e.Client().RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	if _, err := e.Client().RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitAllowed(t, user, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "pods"})
}

// testLeastPrivilege looks back on the whole run: agent and callers asked for nothing that their manifests do not give them, and
// the agent for nothing else than it is for.
func (e *env) testLeastPrivilege(t *testing.T) {
	for _, ours := range []func(cluster.AuditEvent) bool{
		func(a cluster.AuditEvent) bool { return a.User.Username == agent },
		func(a cluster.AuditEvent) bool { return slices.Contains(a.User.Groups, resizers) },
	} {
		asked := e.audit(t, ours)
		if len(asked) == 0 {
			t.Error("one of agent and callers asked for nothing")
		}
		for _, request := range asked {
			// An API server that has just been started, as testFaults does, forbids what it has not read the roles for.
			started := e.path == resize.PathCRI && request == "watch criresizes 403"
			if strings.HasSuffix(request, " 403") && !started {
				t.Errorf("forbidden: %s", request)
			}
		}
	}
	kinds := e.audit(t, func(a cluster.AuditEvent) bool { return a.User.Username == agent && a.ObjectRef.Resource != "" })
	slices.Sort(kinds)
	known := []string{"create leases", "get leases", "get nodes", "list criresizes", "patch criresizes/status", "update leases", "watch criresizes"}
	for _, kind := range slices.Compact(kinds) {
		if !slices.Contains(known, kind[:strings.LastIndex(kind, " ")]) {
			t.Errorf("the agent asked for %s", kind)
		}
	}
}
