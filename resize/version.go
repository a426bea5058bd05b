package resize

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// minor reads the minor version of a Kubernetes version string of any vendor: v1.27.9-gke.300, v1.32.3+k3s1, 1.21+. ok is false
// where there is none to read: a version is a hint, and no hint is not version 0.
func minor(s string) (m uint, ok bool) {
	v, err := version.ParseGeneric(s)
	if err != nil || v.Major() != 1 {
		return 0, false
	}
	return v.Minor(), true
}

// kubeletOf is the minor version of a node's kubelet; zero: unknown.
func kubeletOf(node *corev1.Node) uint {
	if node == nil {
		return 0
	}
	m, _ := minor(node.Status.NodeInfo.KubeletVersion)
	return m
}

// reportsLate tells the kubelets that resize in place and report it only at their next sync of the pod, after 60 to 90 s.
func reportsLate(kubelet uint) bool { return kubelet >= 27 && kubelet <= 31 }
