package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// TestNotOptedIn: nothing of a pod without the label is written, whatever becomes of its CRIResize.
func TestNotOptedIn(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			was := b.kernel(t)
			b.agent.selector = labels.SelectorFromSet(labels.Set{"podresize.dev/resize": "allowed"})
			b.pod.Labels = map[string]string{"podresize.dev/resize": "no"}
			b.leaves(t)
			b.says(t, v1alpha1.ReasonNotOptedIn, `"podresize.dev/resize=allowed"`)
			// Both ends of a CRIResize would raise the pod's cgroup.
			b.change(t, func(s *v1alpha1.CRIResizeSpec) {
				s.Enforce = ptr.To(false)
				s.Containers[0].Before.Limits, s.Containers[1].Before.Limits = list("cpu=3 memory=3Gi"), list("cpu=3 memory=3Gi")
			})
			b.leaves(t)
			b.says(t, v1alpha1.ReasonNotEnforced) // who hands the pod over waits for it
			if err := b.client.Delete(t.Context(), newObject()); err != nil {
				t.Fatal(err)
			}
			b.leaves(t)
			if diff := cmp.Diff(was, b.kernel(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOptedIn(t *testing.T) {
	b := enlarging(t, true)
	b.agent.selector = labels.SelectorFromSet(labels.Set{"podresize.dev/resize": "allowed"})
	b.pod.Labels = map[string]string{"podresize.dev/resize": "allowed", "app": "web"}
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
}

// TestBadOptIn: each mistake is a line that names the option.
func TestBadOptIn(t *testing.T) {
	good := Options{NodeName: "n1", RuntimeEndpoint: "/run/x.sock", CgroupRoot: "/sys/fs/cgroup", Namespaces: []string{"a", "b"}, PodSelector: "a=b,c in (d,e),!f"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	if got := good.watched(); len(got) != 2 {
		t.Errorf("it watches %v", got)
	}
	if got := (Options{}).watched(); got != nil {
		t.Errorf("without namespaces it watches %v", got)
	}
	bad := good
	bad.Namespaces, bad.PodSelector = []string{"a", "", "B"}, "a=b=c"
	err := bad.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], `namespaces: ""`) || !strings.HasPrefix(lines[1], `namespaces: "B"`) || !strings.HasPrefix(lines[2], "pod-selector: ") {
		t.Errorf("got %q", lines)
	}
}
