package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// rendered is manifests/base with components, by kind and name.
func rendered(t *testing.T, components ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	return renderedOn(t, "../../manifests/base", "", components...)
}

// renderedOn does so with components on any resource, and more lines of the kustomization.
func renderedOn(t *testing.T, base, more string, components ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	dir := t.TempDir()
	relative := func(path string) string {
		absolute, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := filepath.Rel(dir, absolute)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	file := more + "resources: [" + relative(base) + "]\ncomponents:\n"
	for _, c := range components {
		file += "  - " + relative("../../manifests/components/"+c) + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := kustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		out[o.GetKind()+" "+strings.TrimPrefix(o.GetNamespace()+"/", "/")+o.GetName()] = o
	}
	return out
}

// as reads one of them into its type.
func as[T any](t *testing.T, objects map[string]*unstructured.Unstructured, name string) T {
	t.Helper()
	var out T
	object, ok := objects[name]
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &out, true); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

const agents = "DaemonSet podresize-system/podresize-agent"

// TestAgentIsConfined: the agent's pod asks for what docs/agent.md lists and for nothing else of its node.
func TestAgentIsConfined(t *testing.T) {
	objects := rendered(t)
	spec := as[appsv1.DaemonSet](t, objects, agents).Spec.Template.Spec
	if spec.HostNetwork || spec.HostPID || spec.HostIPC || len(spec.InitContainers) > 0 || len(spec.Containers) != 1 {
		t.Errorf("the pod is %+v", spec)
	}
	c := spec.Containers[0]
	no, yes, root := false, true, int64(0)
	want := &corev1.SecurityContext{
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		RunAsUser:                &root,
		ReadOnlyRootFilesystem:   &yes,
		AllowPrivilegeEscalation: &no,
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if diff := cmp.Diff(want, c.SecurityContext); diff != "" {
		t.Error(diff)
	}
	if len(c.Ports) > 0 || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("ports %v, resources %v", c.Ports, c.Resources)
	}
	if diff := cmp.Diff([]string{"/run/containerd rw", "/sys/fs/cgroup rw", "/run/systemd ro", "memory rw"}, mountsOf(spec)); diff != "" {
		t.Error(diff)
	}
}

// mountsOf are the mounts of the pod's first container: from where on the node, and how.
func mountsOf(spec corev1.PodSpec) []string {
	var mounts []string
	for _, m := range spec.Containers[0].VolumeMounts {
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		from, mode := "memory", "rw"
		if path := spec.Volumes[i].HostPath; path != nil {
			from = path.Path
		}
		if m.ReadOnly {
			mode = "ro"
		}
		mounts = append(mounts, from+" "+mode)
	}
	return mounts
}

// TestTokenIsTheAgents: other pods that name its service account get no token by that alone.
func TestTokenIsTheAgents(t *testing.T) {
	objects := rendered(t)
	account := as[corev1.ServiceAccount](t, objects, "ServiceAccount podresize-system/podresize-agent").AutomountServiceAccountToken
	pod := as[appsv1.DaemonSet](t, objects, agents).Spec.Template.Spec.AutomountServiceAccountToken
	if account == nil || *account || pod == nil || !*pod {
		t.Errorf("token: account %v, pod %v", account, pod)
	}
}

// TestRoles: none of them has a wildcard, reads secrets, writes pods or nodes beyond what is said, or is added to a built-in role.
func TestRoles(t *testing.T) {
	var rules []string
	for name, o := range rendered(t) {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		if len(o.GetLabels()) > 0 {
			t.Errorf("%s has labels, by which it may be aggregated: %v", name, o.GetLabels())
		}
		role := as[rbacv1.ClusterRole](t, map[string]*unstructured.Unstructured{name: o}, name) // a Role has the same rules
		for _, r := range role.Rules {
			rules = append(rules, o.GetName()+": "+strings.Join(r.Verbs, " ")+" "+strings.Join(r.Resources, " "))
		}
	}
	slices.Sort(rules)
	want := []string{
		"podresize-agent-nodes: get nodes",
		"podresize-agent: get create update leases",
		"podresize-agent: list watch criresizes",
		"podresize-agent: patch criresizes/status",
		"podresize-resizer-agents: get leases",
		"podresize-resizer-nodes: get nodes",
		"podresize-resizer-old: patch pods",
		"podresize-resizer-room: list criresizes",
		"podresize-resizer-room: list pods",
		"podresize-resizer: get create update delete criresizes",
		"podresize-resizer: get pods",
		"podresize-resizer: patch pods/resize",
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Error(diff)
	}
}

// TestComponents: each of them changes what it says, also beside the others.
func TestComponents(t *testing.T) {
	objects := rendered(t, "opt-in-namespaces", "opt-in-label", "selinux", "node-bound")
	c := as[appsv1.DaemonSet](t, objects, agents).Spec.Template.Spec.Containers[0]
	for _, arg := range []string{"--namespaces=team-a", "--pod-selector=podresize.dev/resize=allowed"} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("no %s in %q", arg, c.Args)
		}
	}
	if o := c.SecurityContext.SELinuxOptions; o == nil || o.Type != "spc_t" {
		t.Errorf("SELinux options %v", o)
	}
	if _, there := objects["ClusterRoleBinding podresize-agent"]; there {
		t.Error("the agents have their rights in all namespaces")
	}
	binding := as[rbacv1.RoleBinding](t, objects, "RoleBinding team-a/podresize-agent")
	if s := binding.Subjects; len(s) != 1 || s[0].Namespace != "podresize-system" || s[0].Name != "podresize-agent" {
		t.Errorf("bound to %v", s)
	}
	for _, policy := range []string{"podresize-status", "podresize-leases"} {
		if objects["ValidatingAdmissionPolicy "+policy] == nil || objects["ValidatingAdmissionPolicyBinding "+policy] == nil {
			t.Errorf("no policy %s, or it is not bound", policy)
		}
	}
	if without := rendered(t); without["ClusterRoleBinding podresize-agent"] == nil || len(without) >= len(objects) {
		t.Errorf("without components there are %d objects, with them %d", len(without), len(objects))
	}
}
