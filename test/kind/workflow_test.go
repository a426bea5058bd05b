package kind_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/podresize/podresize/test/kind"
)

// TestWorkflow: every setting is in the matrix, and what the workflow uses of others cannot change under it.
func TestWorkflow(t *testing.T) {
	var workflow struct {
		Permissions map[string]string
		Jobs        map[string]struct {
			Timeout  int `json:"timeout-minutes"`
			Strategy struct{ Matrix struct{ Cluster []string } }
			Steps    []struct{ Uses string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../.github/workflows/ci.yaml")), &workflow); err != nil {
		t.Fatal(err)
	}
	settings, err := kind.Settings()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(settings, workflow.Jobs["kind"].Strategy.Matrix.Cluster); diff != "" {
		t.Errorf("the matrix (- settings, + workflow):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"contents": "read"}, workflow.Permissions); diff != "" {
		t.Errorf("permissions:\n%s", diff)
	}
	pinned := regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40}$`)
	for name, job := range workflow.Jobs {
		if job.Timeout == 0 {
			t.Errorf("job %s has no timeout", name)
		}
		for _, step := range job.Steps {
			if step.Uses != "" && !pinned.MatchString(step.Uses) {
				t.Errorf("job %s uses %s, which is not pinned", name, step.Uses)
			}
		}
	}
}
