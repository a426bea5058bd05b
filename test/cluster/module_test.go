package cluster

import "testing"

func TestGoMod(t *testing.T) {
	upstream, err := parseModule([]byte(`{
		"Module": {"Path": "k8s.io/kubernetes"}, "Go": "1.22.0",
		"Godebug": [{"Key": "default", "Value": "go1.22"}],
		"Require": [{"Path": "k8s.io/api", "Version": "v0.0.0"}],
		"Replace": [
			{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
			{"Old": {"Path": "k8s.io/kube-scheduler"}, "New": {"Path": "./staging/src/k8s.io/kube-scheduler"}},
			{"Old": {"Path": "example.com/a", "Version": "v1.0.0"}, "New": {"Path": "example.com/b", "Version": "v2.0.0+incompatible"}}
		]}`))
	if err != nil {
		t.Fatal(err)
	}
	version := Version{Minor: 31, Patch: 14, pins: map[string]string{"k8s.io/kube-scheduler": "v0.31.13"}}
	const want = `module cluster.local/build

go 1.22.0

godebug default=go1.22
require k8s.io/kubernetes v1.31.14

replace k8s.io/api => k8s.io/api v0.31.14
replace k8s.io/kube-scheduler => k8s.io/kube-scheduler v0.31.13
replace example.com/a v1.0.0 => example.com/b v2.0.0+incompatible
`
	if got := goMod(upstream, version); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestBuildEnvDropsWhatChangesTheResult(t *testing.T) {
	got := buildEnv([]string{"PATH=/bin", "GOFLAGS=-modfile=x", "GOWORK=/w", "CGO_ENABLED=1", "GOPROXY=p"}, "/c")
	want := []string{"GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0", "GOCACHE=/c", "PATH=/bin", "GOPROXY=p"}
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
