package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podresize/podresize/resize/v1alpha1"
)

func TestStartLimits(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       map[string]corev1.ResourceList
		err        string // what it must name, on one line
	}{
		{name: "both", text: `{"app":{"cpu":"250m","memory":"256Mi"},"log":{"cpu":1}}`, want: map[string]corev1.ResourceList{
			"app": {"cpu": resource.MustParse("250m"), "memory": resource.MustParse("256Mi")}, "log": {"cpu": resource.MustParse("1")},
		}},
		{name: "no container", text: `{}`, want: map[string]corev1.ResourceList{}},
		{name: "no JSON", text: `app: 250m`, err: "must be like"},
		{name: "empty", text: ``, err: "must be like"},
		{name: "a list", text: `["app"]`, err: "must be like"},
		{name: "no quantity", text: `{"app":{"cpu":"250x"}}`, err: "app.cpu"},
		{name: "an object for a quantity", text: `{"app":{"cpu":{}}}`, err: "app.cpu"},
		{name: "null for a quantity", text: `{"app":{"memory":null}}`, err: "app.memory"},
		{name: "zero", text: `{"app":{"memory":"0"}}`, err: "app.memory"},
		{name: "negative", text: `{"app":{"cpu":"-1"}}`, err: "app.cpu"},
		{name: "no machine has it", text: `{"app":{"cpu":"9E"}}`, err: "app.cpu"},
		{name: "another resource", text: `{"app":{"cpu":"1","ephemeral-storage":"1Gi"}}`, err: "app.ephemeral-storage"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := v1alpha1.StartLimits(map[string]string{v1alpha1.AnnotationStartLimits: tc.text})
			if (err != nil) != (tc.err != "") {
				t.Fatalf("error %v, want one: %t", err, tc.err != "")
			}
			if err != nil && (!strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), v1alpha1.AnnotationStartLimits) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("error %q must name the annotation and %q on one line", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got, err := v1alpha1.StartLimits(map[string]string{"other": "x"}); got != nil || err != nil {
		t.Errorf("without the annotation: %v, %v", got, err)
	}
}
