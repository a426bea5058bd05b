package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Cgroup is what the kernel holds for a pod or a container.
type Cgroup struct {
	// Path is the cgroup's path below the mount of a hierarchy.
	Path string

	// CPUShares is cpu.shares on cgroup v1 and 0 on v2.
	CPUShares int64

	// CPUWeight is cpu.weight on cgroup v2 and 0 on v1.
	CPUWeight int64

	// CPUQuota and CPUPeriod are in microseconds; quota -1 means no limit.
	CPUQuota, CPUPeriod int64

	// MemoryLimit is in bytes; -1 means no limit.
	MemoryLimit int64
}

// Cgroup reads the cgroup of a container of a running pod, or with an empty
// name that of the pod, fresh from the kernel at each call. The path is the one
// that the container runtime was told.
func (c *Cluster) Cgroup(ctx context.Context, pod *corev1.Pod, container string) (Cgroup, error) {
	what := fmt.Sprintf("%s/%s", pod.Namespace, pod.Name)
	if container != "" {
		what += "/" + container
	}
	dir, err := c.CgroupPath(ctx, pod, container)
	if err != nil {
		return Cgroup{}, fmt.Errorf("finding the cgroup of %q: %w", what, err)
	}
	figures, err := c.ReadCgroup(ctx, pod.Spec.NodeName, dir)
	if err != nil {
		return Cgroup{}, fmt.Errorf("reading the cgroup of %q: %w", what, err)
	}
	return figures, nil
}

// CgroupPath is Cgroup's Path alone. The directory is below the mount of each
// hierarchy, such as /sys/fs/cgroup/cpu.
func (c *Cluster) CgroupPath(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	s := c.snapshot()
	if _, _, err := s.node(pod.Spec.NodeName); err != nil {
		return "", err
	}
	conn, err := s.dial(pod.Spec.NodeName)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	if container == "" {
		sandbox, err := sandboxCgroup(ctx, runtime, pod.UID)
		return path.Dir(sandbox), err
	}
	return containerCgroup(ctx, runtime, pod.UID, container)
}

// sandboxCgroup is the cgroup of the pod's pause container; it is a child of
// the pod's.
func sandboxCgroup(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, pod types.UID) (string, error) {
	list, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod)},
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return "", err
	}
	if len(list.GetItems()) != 1 {
		return "", fmt.Errorf("the runtime has %d ready sandboxes of it, not one", len(list.GetItems()))
	}
	status, err := runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: list.GetItems()[0].GetId(), Verbose: true})
	if err != nil {
		return "", err
	}
	return parseCgroupsPath(status.GetInfo())
}

func containerCgroup(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, pod types.UID, name string) (string, error) {
	list, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod), "io.kubernetes.container.name": name},
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return "", err
	}
	if len(list.GetContainers()) != 1 {
		return "", fmt.Errorf("the runtime has %d running containers of it, not one", len(list.GetContainers()))
	}
	status, err := runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: list.GetContainers()[0].GetId(), Verbose: true})
	if err != nil {
		return "", err
	}
	return parseCgroupsPath(status.GetInfo())
}

// ReadCgroup reads what the kernel of a node holds for a CgroupPath. It asks
// nobody but the kernel, so that it is as fast as a test needs that compares
// what is said with what is, at one moment.
func (c *Cluster) ReadCgroup(ctx context.Context, node, dir string) (Cgroup, error) {
	n, i, err := c.snapshot().node(node)
	switch {
	case err != nil:
		return Cgroup{}, err
	case n.VM != "":
		return c.snapshot().readMachineCgroup(ctx, i, dir)
	default:
		return readCgroup(dir)
	}
}

// KillContainer ends every process of a container, as kill -9 does.
func (c *Cluster) KillContainer(ctx context.Context, pod *corev1.Pod, container string) error {
	dir, err := c.CgroupPath(ctx, pod, container)
	if err != nil {
		return err
	}
	n, _, err := c.snapshot().node(pod.Spec.NodeName)
	if err != nil {
		return err
	}
	mount, err := n.processCgroups()
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, n.Name, "sh", "-c", `kill -9 $(cat "$0")`, filepath.Join(mount, dir, "cgroup.procs"))
	return err
}

// processCgroups is the mount of a hierarchy on a node in which every container
// has a cgroup.
func (n Node) processCgroups() (string, error) {
	if n.VM != "" {
		return machineCgroups, nil
	}
	all, err := hierarchies()
	if err != nil {
		return "", err
	}
	pids, err := controller(all, "pids")
	return pids.mount, err
}

// machineCgroups is where a machine has its one hierarchy.
const machineCgroups = "/sys/fs/cgroup"

// readMachineCgroup reads all in one go: it takes a machine long to start a
// program.
func (s state) readMachineCgroup(ctx context.Context, i int, dir string) (Cgroup, error) {
	argv := []string{"cat"}
	for _, file := range []string{"cpu.weight", "cpu.max", "memory.max"} {
		argv = append(argv, filepath.Join(machineCgroups, dir, file))
	}
	out, err := s.runInMachine(ctx, i, argv)
	if err != nil {
		return Cgroup{}, fmt.Errorf("%w%s", err, lastLines(out, 3))
	}
	figures := Cgroup{Path: dir}
	err = parseFigures(out, &figures.CPUWeight, &figures.CPUQuota, &figures.CPUPeriod, &figures.MemoryLimit)
	return figures, err
}

func readCgroup(dir string) (Cgroup, error) {
	all, err := hierarchies()
	if err != nil {
		return Cgroup{}, err
	}
	cpu, err := controller(all, "cpu")
	if err != nil {
		return Cgroup{}, err
	}
	memory, err := controller(all, "memory")
	if err != nil {
		return Cgroup{}, err
	}
	cpuDir, memoryDir := filepath.Join(cpu.mount, dir), filepath.Join(memory.mount, dir)
	if cpu.v2 {
		return readCgroupV2(dir, cpuDir)
	}
	return readCgroupV1(dir, cpuDir, memoryDir)
}

func readCgroupV1(dir, cpuDir, memoryDir string) (Cgroup, error) {
	figures := Cgroup{Path: dir}
	err := errors.Join(
		readFigure(filepath.Join(cpuDir, "cpu.shares"), &figures.CPUShares),
		readFigure(filepath.Join(cpuDir, "cpu.cfs_quota_us"), &figures.CPUQuota),
		readFigure(filepath.Join(cpuDir, "cpu.cfs_period_us"), &figures.CPUPeriod),
		readFigure(filepath.Join(memoryDir, "memory.limit_in_bytes"), &figures.MemoryLimit),
	)
	// No limit reads as the largest number of whole pages.
	if pages := int64(os.Getpagesize()); figures.MemoryLimit == (1<<63-1)/pages*pages {
		figures.MemoryLimit = -1
	}
	return figures, err
}

func readCgroupV2(dir, abs string) (Cgroup, error) {
	figures := Cgroup{Path: dir}
	err := errors.Join(
		readFigure(filepath.Join(abs, "cpu.weight"), &figures.CPUWeight),
		readFigure(filepath.Join(abs, "cpu.max"), &figures.CPUQuota, &figures.CPUPeriod),
		readFigure(filepath.Join(abs, "memory.max"), &figures.MemoryLimit),
	)
	return figures, err
}

// readFigure reads the numbers in a cgroup file.
func readFigure(file string, into ...*int64) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := parseFigures(string(data), into...); err != nil {
		return fmt.Errorf("reading %q: %w", file, err)
	}
	return nil
}

// parseFigures reads as many numbers as there are places for them; "max" is -1.
func parseFigures(text string, into ...*int64) error {
	fields := strings.Fields(text)
	if len(fields) != len(into) {
		return fmt.Errorf("%q holds not %d numbers", text, len(into))
	}
	for i, field := range fields {
		var err error
		if field == "max" {
			*into[i] = -1
		} else if *into[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return err
		}
	}
	return nil
}
