package main

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podresize/podresize/resize"
)

// list reads cpu and memory; "" is none.
func list(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	if cpu != "" {
		out[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		out[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return out
}

// parse gives the quantities that a command line names.
func parse(t *testing.T, flags map[string]string) (map[string]resource.Quantity, error) {
	t.Helper()
	a := asked{given: map[string]*string{}}
	for flag, text := range flags {
		a.given[flag] = &text
	}
	return a.quantities()
}

func TestWanted(t *testing.T) {
	requests, limits := list("100m", "128Mi"), list("250m", "256Mi")
	for _, tc := range []struct {
		name             string
		requests, limits corev1.ResourceList // those of the container now
		flags            map[string]string
		want             resize.Requirements
	}{
		{name: "the limit keeps its ratio", requests: requests, limits: limits, flags: map[string]string{"cpu": "200m", "memory": "256Mi"}, want: resize.Requirements{Requests: list("200m", "256Mi"), Limits: list("500m", "512Mi")}},
		{name: "down as well", requests: requests, limits: limits, flags: map[string]string{"cpu": "50m"}, want: resize.Requirements{Requests: list("50m", ""), Limits: list("125m", "")}},
		{name: "rounded up to a milli-CPU", requests: list("300m", ""), limits: list("1", ""), flags: map[string]string{"cpu": "100m"}, want: resize.Requirements{Requests: list("100m", ""), Limits: list("334m", "")}},
		{name: "rounded up to a byte", requests: list("", "3"), limits: list("", "10"), flags: map[string]string{"memory": "2"}, want: resize.Requirements{Requests: list("", "2"), Limits: list("", "7")}},
		{name: "Guaranteed stays so", requests: list("300m", "100Mi"), limits: list("300m", "100Mi"), flags: map[string]string{"cpu": "0.7", "memory": "150M"}, want: resize.Requirements{Requests: list("0.7", "150M"), Limits: list("0.7", "150M")}},
		{name: "no limit", requests: requests, flags: map[string]string{"cpu": "200m"}, want: resize.Requirements{Requests: list("200m", ""), Limits: list("", "")}},
		{name: "a limit of a request of zero", requests: list("0", ""), limits: list("1", ""), flags: map[string]string{"cpu": "2"}, want: resize.Requirements{Requests: list("2", ""), Limits: list("2", "")}},
		{name: "request alone", requests: requests, limits: limits, flags: map[string]string{"cpu-request": "150m"}, want: resize.Requirements{Requests: list("150m", ""), Limits: list("", "")}},
		{name: "limits alone", requests: requests, limits: limits, flags: map[string]string{"cpu-limit": "2", "memory-limit": "1Gi"}, want: resize.Requirements{Requests: list("", ""), Limits: list("2", "1Gi")}},
		{name: "one both, one alone", requests: requests, limits: limits, flags: map[string]string{"cpu": "200m", "memory-request": "64Mi"}, want: resize.Requirements{Requests: list("200m", "64Mi"), Limits: list("500m", "")}},
		{name: "large numbers", requests: list("", "1Ei"), limits: list("", "2Ei"), flags: map[string]string{"memory": "2Ei"}, want: resize.Requirements{Requests: list("", "2Ei"), Limits: list("", "4Ei")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			quantities, err := parse(t, tc.flags)
			if err != nil {
				t.Fatal(err)
			}
			now := resize.Result{Containers: []resize.ContainerEvidence{
				{Name: "log", Desired: resize.Requirements{Requests: list("7", "7")}},
				{Name: "app", Desired: resize.Requirements{Requests: tc.requests, Limits: tc.limits}},
			}}
			got := wanted(now, "app", quantities)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestQuantities(t *testing.T) {
	for _, tc := range []struct {
		name  string
		flags map[string]string
		code  int
		text  string
	}{
		{name: "no number", flags: map[string]string{"cpu": "much"}, code: exitInvalidQuantity, text: `InvalidQuantity: --cpu: "much" is not a quantity such as 500m, 2 or 256Mi`},
		{name: "no unit", flags: map[string]string{"memory-limit": "256MB"}, code: exitInvalidQuantity, text: `InvalidQuantity: --memory-limit: "256MB" is not a quantity such as 500m, 2 or 256Mi`},
		{name: "negative", flags: map[string]string{"cpu-limit": "-1"}, code: exitInvalidQuantity, text: `InvalidQuantity: --cpu-limit: "-1" is not a quantity such as 500m, 2 or 256Mi`},
		{name: "nothing", flags: map[string]string{"cpu": "", "memory": ""}, code: exitNoChange, text: "NoChange: nothing to change: give at least one of --cpu, --memory, --cpu-request, --cpu-limit, --memory-request, --memory-limit"},
		{name: "both ways", flags: map[string]string{"memory": "1Gi", "memory-limit": "2Gi"}, code: exitUsage, text: "Usage: --memory gives request and limit: it does not go with --memory-request or --memory-limit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parse(t, tc.flags)
			if exitCode(err) != tc.code || err.Error() != tc.text {
				t.Errorf("got %d, %v; want %d, %s", exitCode(err), err, tc.code, tc.text)
			}
		})
	}
}

func TestPick(t *testing.T) {
	one := resize.Result{Containers: []resize.ContainerEvidence{{Name: "app"}}}
	two := resize.Result{Containers: []resize.ContainerEvidence{{Name: "app"}, {Name: "log"}}}
	if name, err := (&asked{}).pick(one); name != "app" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
	if name, err := (&asked{container: "log"}).pick(two); name != "log" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
	_, err := (&asked{}).pick(two)
	var command *commandError
	if !errors.As(err, &command) || command.code != exitUsage || err.Error() != "Usage: --container: choose one of app, log" {
		t.Errorf("got %v", err)
	}
}
