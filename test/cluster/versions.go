package cluster

import (
	"fmt"
	"strings"
)

// Version is one Kubernetes release that the test bed can build and run.
type Version struct {
	// Minor is the N of 1.N, Patch the P of 1.N.P.
	Minor, Patch int

	// pins names staging modules (k8s.io/<name>) whose v0.N.P cannot be had
	// from the module proxy, with the neighbour that takes its place.
	pins map[string]string
}

// Versions lists every release that the test bed knows, oldest first: for each
// minor a late patch, with all its modules to be had from the module proxy.
func Versions() []Version {
	return []Version{
		{Minor: 26, Patch: 15, pins: map[string]string{
			"k8s.io/controller-manager": "v0.26.13", "k8s.io/kube-controller-manager": "v0.26.13",
		}},
		{Minor: 27, Patch: 16, pins: map[string]string{"k8s.io/legacy-cloud-providers": "v0.26.15"}},
		{Minor: 28, Patch: 15},
		{Minor: 29, Patch: 6, pins: map[string]string{
			"k8s.io/endpointslice": "v0.29.5", "k8s.io/kube-controller-manager": "v0.29.5", "k8s.io/legacy-cloud-providers": "v0.26.15",
		}},
		{Minor: 30, Patch: 14},
		{Minor: 31, Patch: 14, pins: map[string]string{
			"k8s.io/endpointslice": "v0.31.13", "k8s.io/kube-controller-manager": "v0.31.13", "k8s.io/kube-scheduler": "v0.31.13",
		}},
		{Minor: 32, Patch: 13, pins: map[string]string{"k8s.io/endpointslice": "v0.32.12"}},
		{Minor: 33, Patch: 13},
		{Minor: 34, Patch: 4},
		{Minor: 35, Patch: 4},
		{Minor: 36, Patch: 3},
		{Minor: 37, Patch: 2},
	}
}

// ParseVersion finds the release that "1.26", "v1.26" or "v1.26.15" names. The
// error lists what exists.
func ParseVersion(text string) (Version, error) {
	want := strings.TrimPrefix(text, "v")
	known := make([]string, 0, len(Versions()))
	for _, v := range Versions() {
		if want == v.minor() || want == v.number() {
			return v, nil
		}
		known = append(known, v.number())
	}
	return Version{}, fmt.Errorf("no Kubernetes version %q here: choose one of %s", text, strings.Join(known, ", "))
}

// String is the release as tags spell it: v1.26.15.
func (v Version) String() string { return "v" + v.number() }

// Before says whether v is older than 1.minor.
func (v Version) Before(minor int) bool { return v.Minor < minor }

func (v Version) number() string { return fmt.Sprintf("1.%d.%d", v.Minor, v.Patch) }
func (v Version) minor() string  { return fmt.Sprintf("1.%d", v.Minor) }

// staging is the version under which the modules of k8s.io/kubernetes/staging
// are published with this release.
func (v Version) staging(module string) string {
	if pin, ok := v.pins[module]; ok {
		return pin
	}
	return fmt.Sprintf("v0.%d.%d", v.Minor, v.Patch)
}
