package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/podresize/podresize/fallback/sidecar"
)

const sidecarOverlay = `namespace: shop
images: [{name: podresize-agent, newName: localhost/podresize-agent, newTag: dev}]
`

// workload is a workload of some kind, whose pods have a volume if that is wanted.
func workload(t *testing.T, kind, labels, volumes string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "workload.yaml")
	content := `apiVersion: apps/v1
kind: ` + kind + `
metadata: {name: web, labels: {` + labels + `}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: app, image: localhost/web, resources: {requests: {cpu: 100m}}}
        - {name: log, image: localhost/log}
` + volumes
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// podSpec is that of the workload "web".
func podSpec(t *testing.T, objects map[string]*unstructured.Unstructured, kind string) *corev1.PodSpec {
	t.Helper()
	object, ok := objects[kind+" shop/web"]
	if !ok {
		t.Fatalf("there is no %s", kind)
	}
	found, _, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	content, ok := found.(map[string]any)
	if !ok {
		t.Fatalf("spec.template.spec is %v", found)
	}
	spec := &corev1.PodSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, spec, true); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	return spec
}

// TestSidecarComponent: the component and sidecar.Add make the same of a pod; what has no label stays as it is.
func TestSidecarComponent(t *testing.T) {
	const label = `podresize.dev/sidecar: "true"`
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		for _, volumes := range []string{"", "      volumes: [{name: data, emptyDir: {}}]\n"} {
			want := podSpec(t, renderedOn(t, workload(t, kind, "", volumes), sidecarOverlay), kind)
			if diff := cmp.Diff(want, podSpec(t, renderedOn(t, workload(t, kind, "", volumes), sidecarOverlay, "sidecar"), kind)); diff != "" {
				t.Errorf("%s without the label: %s", kind, diff)
			}
			if err := sidecar.Add(want, sidecar.Options{Image: "localhost/podresize-agent:dev"}); err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(want.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
			got := podSpec(t, renderedOn(t, workload(t, kind, label, volumes), sidecarOverlay, "sidecar"), kind)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (- sidecar.Add, + component): %s", kind, diff)
			}
			if got.Containers[0].Name != "app" || len(got.Containers) != 3 {
				t.Errorf("%s: %d containers, the first is %q", kind, len(got.Containers), got.Containers[0].Name)
			}
		}
	}
}

// TestSidecarRole: it is for one namespace, and for the status alone.
func TestSidecarRole(t *testing.T) {
	objects := renderedOn(t, workload(t, "Deployment", "", ""), sidecarOverlay, "sidecar")
	if len(objects) != 3 {
		t.Errorf("the component has %d objects beside the workload", len(objects)-1)
	}
	role := as[rbacv1.Role](t, objects, "Role shop/podresize-sidecar")
	if diff := cmp.Diff([]rbacv1.PolicyRule{
		{APIGroups: []string{"podresize.dev"}, Resources: []string{"criresizes"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"podresize.dev"}, Resources: []string{"criresizes/status"}, Verbs: []string{"patch"}},
	}, role.Rules); diff != "" || len(role.Labels) > 0 {
		t.Errorf("labels %v, rules: %s", role.Labels, diff)
	}
	binding := as[rbacv1.RoleBinding](t, objects, "RoleBinding shop/podresize-sidecar")
	want := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "shop", Name: "default"}}
	if diff := cmp.Diff(want, binding.Subjects); diff != "" || binding.RoleRef.Name != role.Name {
		t.Errorf("it binds %v: %s", binding.RoleRef, diff)
	}
}
