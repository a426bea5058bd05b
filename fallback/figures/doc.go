// Package figures is the kubelet's arithmetic: from the resources of a pod to the figures of its cgroup and of its containers'.
// It is pure: it reads nothing and writes nothing. fallback/agent writes the figures and compares the kernel with them.
//
// The rules are those of ResourceConfigForPod in pkg/kubelet/cm/helpers_linux.go and of calculateLinuxResources in
// pkg/kubelet/kuberuntime/kuberuntime_container_linux.go; they are the same from Kubernetes 1.26 to 1.37.
// `make figures` asks the kubelets of both.
package figures
