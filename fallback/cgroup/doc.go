// Package cgroup finds, reads and writes the few cgroup files that hold the
// CPU and memory of a pod and of its containers, on cgroup v1 and v2.
//
// It promises that nothing outside the root given to Open is touched, that a
// value which already holds is not written again, that writes to one cgroup
// come in an order the kernel accepts, and that the kernel's own errno reaches
// the caller. It knows neither pods nor runtimes: which numbers belong into
// which file is the business of fallback/figures, and the order between a pod's
// cgroup and those of its containers is that of fallback/agent.
//
// Only the cgroup of a pod is meant to be written here. A container's cgroup
// belongs to its runtime, which writes its own idea of it again at every
// update: change it through fallback/cri, and read here what came of it.
//
// Quotas and periods are microseconds, memory is bytes, and NoLimit stands for
// the absence of a limit, whatever the kernel's spelling of it.
package cgroup
