//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// nodeClaims is the minor release of API servers from which on tokens name their pod's node, and policies may go by it.
const nodeClaims = 30

// testSecurity tries what docs/security.md says cannot be done.
func (e *env) testSecurity(t *testing.T) {
	t.Run("rights", e.testAttempts)
	t.Run("process", e.testConfined)
	if e.minor >= nodeClaims {
		t.Run("case-26 policies see it", e.testPoliciesSee)
		t.Run("node-bound", e.testNodeBound)
	}
	if e.path == resize.PathCRI {
		t.Run("more than the node", e.testExceedsNode)
		t.Run("from another namespace", e.testForeignNamespace)
		t.Run("opt-in", e.testOptIn)
	}
}

// attempt is one request, of which the API server is to say what may become of it.
type attempt struct {
	verb, group, namespace, resource, name string // resource with its subresource
	body                                   string
	// refused is what the refusal must say; empty: it must be allowed.
	refused string
}

const (
	podresizeAPI = "podresize.dev/v1alpha1"
	leasesAPI    = "coordination.k8s.io/v1"
	rbacAPI      = "rbac.authorization.k8s.io/v1"
	coreAPI      = "v1"
)

func (a attempt) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s/%s", a.verb, a.resource, a.namespace, a.name))
}

func (a attempt) path() string {
	path := "/apis/" + a.group
	if a.group == coreAPI {
		path = "/api/" + a.group
	}
	if a.namespace != "" {
		path += "/namespaces/" + a.namespace
	}
	resource, sub, _ := strings.Cut(a.resource, "/")
	path += "/" + resource
	if a.name != "" {
		path += "/" + a.name
	}
	if sub != "" {
		path += "/" + sub
	}
	return path
}

// by makes the request, as a dry run.
func (a attempt) by(t *testing.T, config *rest.Config) error {
	t.Helper()
	methods := map[string]string{
		"get": http.MethodGet, "list": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut,
		"patch": http.MethodPatch, "delete": http.MethodDelete,
	}
	request := newKubernetes(t, config).CoreV1().RESTClient().Verb(methods[a.verb]).AbsPath(a.path())
	if a.verb != "get" && a.verb != "list" {
		request = request.Param("dryRun", "All")
	}
	switch {
	case a.verb == "patch":
		request = request.SetHeader("Content-Type", string(types.MergePatchType))
	case a.body != "":
		request = request.SetHeader("Content-Type", "application/json")
	}
	return request.Body([]byte(a.body)).Do(t.Context()).Error()
}

// check says what is wrong with the answer. What comes too late to be created was let through: that is found out after admission.
func (a attempt) check(err error) error {
	switch {
	case a.refused == "" && err != nil && !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s: %w, expected to be allowed", a, err)
	case a.refused != "" && err == nil:
		return fmt.Errorf("%s: allowed, expected: %s", a, a.refused)
	case a.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), a.refused)):
		return fmt.Errorf("%s: %w, expected: %s", a, err, a.refused)
	}
	return nil
}

// byRBAC is what RBAC says of a request that it forbids.
func (a attempt) byRBAC() attempt {
	group, _, _ := strings.Cut(a.group, "/")
	if a.group == coreAPI {
		group = ""
	}
	a.refused = fmt.Sprintf("cannot %s resource %q in API group %q", a.verb, a.resource, group)
	return a
}

// forbidden are the requests with each of the verbs.
func forbidden(verbs, group, namespace, resource, name string) []attempt {
	var all []attempt
	for verb := range strings.FieldsSeq(verbs) {
		a := attempt{verb: verb, group: group, namespace: namespace, resource: resource, name: name, body: "{}"}
		if verb == "list" || verb == "create" && !strings.Contains(resource, "/") {
			a.name = ""
		}
		all = append(all, a.byRBAC())
	}
	return all
}

// criResizeOf is a CRIResize that no agent looks at, since it lacks their label.
func criResizeOf(name, node string) string {
	return fmt.Sprintf(`{"apiVersion": "podresize.dev/v1alpha1", "kind": "CRIResize", "metadata": {"name": %[1]q}, "spec": {
		"podName": "nobody", "podUID": %[1]q, "nodeName": %[2]q, "qosClass": "Burstable", "containers": [{"name": "app"}]}}`, name, node)
}

// createCRIResize creates one of those until the test ends.
func (e *env) createCRIResize(t *testing.T, name, node string) {
	t.Helper()
	path := "/apis/" + podresizeAPI + "/namespaces/" + namespace + "/criresizes"
	client := e.Client().CoreV1().RESTClient()
	must(t, client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(criResizeOf(name, node))).Do(t.Context()).Error())
	t.Cleanup(func() {
		if err := client.Delete().AbsPath(path, name).Do(withoutCancel(t)).Error(); err != nil {
			t.Error(err)
		}
	})
}

// testAttempts: agent, tenant and caller can do what they are for, and nothing of this.
func (e *env) testAttempts(t *testing.T) {
	const object = "attempted"
	node := e.agentPod(t).Spec.NodeName
	e.createCRIResize(t, object, node)
	const others = "kube-node-lease"
	ours := v1alpha1.AgentLeaseName(node)
	status := attempt{verb: "patch", group: podresizeAPI, namespace: namespace, resource: "criresizes/status", name: object, body: `{"status": {"repairs": 1}}`}
	for _, who := range []struct {
		name     string
		config   *rest.Config
		attempts [][]attempt
	}{
		{"agent", e.token(t, v1alpha1.AgentNamespace, "podresize-agent", e.agentPod(t)), [][]attempt{
			{status, {verb: "list", group: podresizeAPI, resource: "criresizes"}, {verb: "get", group: coreAPI, resource: "nodes", name: node}, {verb: "get", group: leasesAPI, namespace: v1alpha1.AgentNamespace, resource: "leases", name: ours}},
			forbidden("create update patch delete", podresizeAPI, namespace, "criresizes", object),
			forbidden("update", podresizeAPI, namespace, "criresizes/status", object),
			forbidden("list get create update patch delete", coreAPI, namespace, "pods", "web-0"),
			forbidden("list", coreAPI, "", "pods", ""),
			forbidden("patch", coreAPI, namespace, "pods/resize", "web-0"),
			forbidden("create", coreAPI, namespace, "pods/exec", "web-0"),
			forbidden("list get", coreAPI, namespace, "secrets", "any"),
			forbidden("list", coreAPI, "", "secrets", ""),
			forbidden("list get", coreAPI, v1alpha1.AgentNamespace, "secrets", "any"),
			forbidden("create", coreAPI, v1alpha1.AgentNamespace, "serviceaccounts/token", "podresize-agent"),
			forbidden("list get update create patch delete", leasesAPI, others, "leases", node),
			forbidden("list patch delete", leasesAPI, v1alpha1.AgentNamespace, "leases", ours),
			forbidden("list update patch delete", coreAPI, "", "nodes", node),
			forbidden("patch", coreAPI, "", "nodes/status", node),
		}},
		{"tenant with edit", e.tenant(t, "edit"), tenants(object, node)},
		{"tenant with admin", e.tenant(t, "admin"), append(tenants(object, node), []attempt{
			{
				verb: "create", group: rbacAPI, namespace: namespace, resource: "roles", refused: "is attempting to grant RBAC permissions not currently held",
				body: `{"metadata": {"name": "more"}, "rules": [{"apiGroups": ["podresize.dev"], "resources": ["criresizes"], "verbs": ["create"]}]}`,
			},
			{
				verb: "create", group: rbacAPI, namespace: namespace, resource: "rolebindings", refused: "is attempting to grant RBAC permissions not currently held",
				body: `{"metadata": {"name": "more"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "podresize-resizer"}, "subjects": [{"kind": "ServiceAccount", "name": "default"}]}`,
			},
		})},
		{"caller", e.as(t, resizerUser, resizers), [][]attempt{
			{{verb: "create", group: podresizeAPI, namespace: namespace, resource: "criresizes", body: criResizeOf("another", node)}, {verb: "get", group: leasesAPI, namespace: v1alpha1.AgentNamespace, resource: "leases", name: ours}},
			forbidden("update patch", podresizeAPI, namespace, "criresizes/status", object),
			forbidden("create update patch delete", podresizeAPI, "default", "criresizes", object),
			forbidden("create", coreAPI, namespace, "pods/exec", "web-0"),
			forbidden("create delete", coreAPI, namespace, "pods", "web-0"),
			forbidden("list get", coreAPI, namespace, "secrets", "any"),
			forbidden("list create update patch delete", leasesAPI, v1alpha1.AgentNamespace, "leases", ours),
			forbidden("update patch delete", coreAPI, "", "nodes", node),
			forbidden("create", coreAPI, v1alpha1.AgentNamespace, "serviceaccounts/token", "podresize-agent"),
		}},
	} {
		for _, some := range who.attempts {
			for _, a := range some {
				if err := a.check(a.by(t, who.config)); err != nil {
					t.Errorf("%s: %v", who.name, err)
				}
			}
		}
	}
	e.testSpecByStatus(t, object)
}

// tenants are the attempts of people with the built-in roles in a namespace.
func tenants(object, node string) [][]attempt {
	return [][]attempt{
		{{verb: "list", group: coreAPI, namespace: namespace, resource: "pods"}, {verb: "create", group: coreAPI, namespace: namespace, resource: "configmaps", body: `{"metadata": {"name": "mine"}}`}},
		forbidden("list get create update patch delete", podresizeAPI, namespace, "criresizes", object),
		forbidden("update patch", podresizeAPI, namespace, "criresizes/status", object),
		forbidden("create", coreAPI, v1alpha1.AgentNamespace, "serviceaccounts/token", "podresize-agent"),
		forbidden("create", coreAPI, v1alpha1.AgentNamespace, "pods", ""),
		forbidden("update create", leasesAPI, v1alpha1.AgentNamespace, "leases", v1alpha1.AgentLeaseName(node)),
	}
}

// testSpecByStatus: who may write the status only cannot change the spec along with it.
func (e *env) testSpecByStatus(t *testing.T, name string) {
	t.Helper()
	agent := newClient(t, e.token(t, v1alpha1.AgentNamespace, "podresize-agent", e.agentPod(t)))
	object := &v1alpha1.CRIResize{}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	must(t, e.objects.Get(t.Context(), key, object))
	was := object.DeepCopy()
	patch := mergePatch(`{"spec": {"enforce": false, "containers": [{"name": "app", "wanted": {"requests": {"cpu": "2"}}}]}, "status": {"repairs": 7}}`)
	must(t, agent.Status().Patch(t.Context(), object, patch))
	must(t, e.objects.Get(t.Context(), key, object))
	equal(t, "the spec, after a patch of the status", object.Spec, was.Spec)
	equal(t, "the generation", object.Generation, was.Generation)
	equal(t, "the status", object.Status.Repairs, int64(7))
}

// token logs in as a service account, with a new token that is bound to a pod unless that is nil.
func (e *env) token(t *testing.T, namespace, account string, pod *corev1.Pod) *rest.Config {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	answer, err := e.Client().CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	must(t, err)
	config := rest.AnonymousClientConfig(e.RESTConfig())
	config.BearerToken = answer.Status.Token
	return config
}

// tenant logs in as a user with a built-in role in the namespace of the suites.
func (e *env) tenant(t *testing.T, role string) *rest.Config {
	t.Helper()
	user := "tenant-" + role
	e.bind(t, namespace, "ClusterRole", role, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user})
	e.waitAllowed(t, user, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"})
	e.waitAllowed(t, user, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "configmaps"})
	return e.as(t, user)
}

// bind gives somebody a role in a namespace, until the test ends.
func (e *env) bind(t *testing.T, namespace, kind, role string, who rbacv1.Subject) {
	t.Helper()
	bindings := e.Client().RbacV1().RoleBindings(namespace)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role + "-of-" + who.Name}, Subjects: []rbacv1.Subject{who},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	}
	_, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := bindings.Delete(withoutCancel(t), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// testConfined looks at the agent's process: root, and nothing more.
func (e *env) testConfined(t *testing.T) {
	agentPod := e.agentPod(t)
	for _, pid := range e.processes(t, agentPod, "agent") {
		status, err := e.Exec(t.Context(), agentPod.Spec.NodeName, "cat", "/proc/"+pid+"/status")
		must(t, err)
		held := map[string]string{}
		for line := range strings.Lines(status) {
			name, value, _ := strings.Cut(line, ":")
			held[name] = strings.TrimSpace(value)
		}
		const none = "0000000000000000"
		for name, want := range map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2"} {
			equal(t, name+" of the agent's process "+pid, held[name], want)
		}
	}
	for line := range strings.Lines(e.mountsSeen(t, agentPod)) {
		fields := strings.Fields(line) // proc(5): the 5th is the mount point, the 6th its options
		if fields[4] == "/" && !strings.HasPrefix(fields[5], "ro") {
			t.Errorf("the agent's root is mounted %s", fields[5])
		}
	}
	equal(t, "the ports on which the agent listens", e.listens(t, agentPod), []string(nil))
}

// listens gives the addresses, in the kernel's notation, of the TCP sockets on which a container's first process listens.
func (e *env) listens(t *testing.T, pod *corev1.Pod) []string {
	t.Helper()
	const look = `ls -l /proc/$0/fd; cat /proc/$0/net/tcp /proc/$0/net/tcp6`
	out, err := e.Exec(t.Context(), pod.Spec.NodeName, "sh", "-c", look, e.processes(t, pod, pod.Spec.Containers[0].Name)[0])
	must(t, err)
	var found []string
	sockets := 0
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if strings.Contains(line, "socket:[") {
			sockets++
		}
		// In net/tcp the 4th is the state, in which 0A is to listen, the 10th the inode.
		if len(fields) > 9 && fields[3] == "0A" && strings.Contains(out, "socket:["+fields[9]+"]") {
			found = append(found, fields[1])
		}
	}
	if sockets == 0 {
		t.Error("the agent has no socket at all")
	}
	return found
}
