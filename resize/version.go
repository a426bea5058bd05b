package resize

import "k8s.io/apimachinery/pkg/util/version"

// minor reads the minor version of a Kubernetes version string of any vendor: v1.27.9-gke.300, v1.32.3+k3s1, 1.21+. ok is false
// where there is none to read: a version is a hint, and no hint is not version 0.
func minor(s string) (m uint, ok bool) {
	v, err := version.ParseGeneric(s)
	if err != nil || v.Major() != 1 {
		return 0, false
	}
	return v.Minor(), true
}
