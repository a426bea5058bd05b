package v1alpha1_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize/v1alpha1"
)

func TestStartLimits(t *testing.T) {
	read := func(text string) (map[string]v1alpha1.Requirements, error) {
		return v1alpha1.StartLimits(map[string]string{v1alpha1.StartLimitsAnnotation: text})
	}
	limits, err := read(`{"app": {"cpu": "250m", "memory": "256Mi"}, "log": {"cpu": "1"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if app := corev1.ResourceList(limits["app"].Limits); len(limits) != 2 || app.Cpu().MilliValue() != 250 || app.Memory().Value() != 256<<20 {
		t.Errorf("got %v", limits)
	}
	if limits, err := v1alpha1.StartLimits(nil); limits != nil || err != nil {
		t.Errorf("without the annotation: %v, %v", limits, err)
	}
	for text, say := range map[string]string{
		"":                         "by container",
		"250m":                     "by container",
		`{"app": "250m"}`:          "by container",
		`{"app": {"cpu": 1}}`:      "by container",
		`{"app": {"cpu": "much"}}`: `container "app": cpu: "much"`,
		`{"app": {"cpu": "0"}}`:    `container "app": cpu: "0" is not above zero`,
		`{"app": {"pids": "9"}}`:   `container "app": pids: only cpu and memory`,
	} {
		_, err := read(text)
		if err == nil || !strings.Contains(err.Error(), v1alpha1.StartLimitsAnnotation) || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
