// Package agent applies CRIResizes on one node, keeps them applied and proves it: the watching half of package fallback.
//
// It learns containers and cgroup paths from the runtime (fallback/cri) at each look and remembers none of them, computes what a
// kubelet would set (fallback/figures), and writes in the kubelet's order: pod cgroup up, containers, pod cgroup down. The pod's
// cgroup is written as files (fallback/cgroup), the containers' by the runtime. What goes into the status was read back from the
// kernel.
//
// It reads CRIResizes and nothing else from the API server, opens no port, and never exits because the runtime or the API
// server is away.
package agent
