package kind

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/test/cluster"
)

// runner runs docker with these arguments and returns its standard output. Without stdin there is none.
type runner func(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error)

func docker(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.Bytes(), nil
}

// NodeName is the name of the Node object that a node of the configuration is. Other names stay what they are.
func (c *Cluster) NodeName(node string) string {
	for _, p := range places(c.config) {
		if p.Name == node && node != "" {
			return p.container
		}
	}
	return node
}

// plane is the container of the control plane.
func (c *Cluster) plane() string { return places(c.config)[0].container }

// Exec runs a command on a node, as root, and returns its output, stdout and stderr in one.
func (c *Cluster) Exec(ctx context.Context, node string, argv ...string) (string, error) {
	both := append([]string{"sh", "-c", `exec "$@" 2>&1`, "sh"}, argv...)
	out, err := c.exec(ctx, node, nil, both...)
	return string(out), err
}

// exec is Exec with the standard output alone.
func (c *Cluster) exec(ctx context.Context, node string, stdin io.Reader, argv ...string) ([]byte, error) {
	args := []string{"exec", "--privileged"}
	if stdin != nil {
		args = append(args, "--interactive")
	}
	out, err := c.docker(ctx, stdin, append(append(args, c.NodeName(node)), argv...)...)
	if err != nil {
		return out, fmt.Errorf("running %q on node %q: %w", argv, node, err)
	}
	return out, nil
}

// Cgroup reads the cgroup of a container of a running pod, or with an empty name that of the pod.
func (c *Cluster) Cgroup(ctx context.Context, pod *corev1.Pod, container string) (cluster.Cgroup, error) {
	dir, err := c.CgroupPath(ctx, pod, container)
	if err != nil {
		return cluster.Cgroup{}, err
	}
	return c.ReadCgroup(ctx, pod.Spec.NodeName, dir)
}

// CgroupPath is the path of that cgroup below the mount of a hierarchy, as the kernel tells it of the process that the runtime names.
func (c *Cluster) CgroupPath(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	node := pod.Spec.NodeName
	sandbox, err := c.theOne(ctx, node, "crictl", "pods", "--state=ready", "--label=io.kubernetes.pod.uid="+string(pod.UID), "--quiet")
	if err != nil {
		return "", err
	}
	if container == "" {
		dir, err := c.cgroupOf(ctx, node, "inspectp", sandbox)
		return path.Dir(dir), err
	}
	id, err := c.theOne(ctx, node, "crictl", "ps", "--state=running", "--pod="+sandbox, "--name=^"+container+"$", "--quiet")
	if err != nil {
		return "", err
	}
	return c.cgroupOf(ctx, node, "inspect", id)
}

// theOne is what a command prints that lists ids, of which there must be one.
func (c *Cluster) theOne(ctx context.Context, node string, argv ...string) (string, error) {
	out, err := c.exec(ctx, node, nil, argv...)
	if err != nil {
		return "", err
	}
	ids := strings.Fields(string(out))
	if len(ids) != 1 {
		return "", fmt.Errorf("running %q on node %q: it lists %q, not one id", argv, node, ids)
	}
	return ids[0], nil
}

// cgroupOf is the cgroup of the process that crictl's verb inspects.
func (c *Cluster) cgroupOf(ctx context.Context, node, verb, id string) (string, error) {
	out, err := c.exec(ctx, node, nil, "crictl", verb, "--output=json", id)
	if err != nil {
		return "", err
	}
	var inspected struct{ Info struct{ Pid int } }
	if err := json.Unmarshal(out, &inspected); err != nil || inspected.Info.Pid == 0 {
		return "", fmt.Errorf("reading what crictl %s %s tells: no process id (%w)", verb, id, err)
	}
	out, err = c.exec(ctx, node, nil, "cat", fmt.Sprintf("/proc/%d/cgroup", inspected.Info.Pid))
	if err != nil {
		return "", err
	}
	return parseProcCgroup(string(out))
}

// parseProcCgroup finds in /proc/PID/cgroup the path in the hierarchy with the memory controller: of v1, or else the one of v2.
func parseProcCgroup(text string) (string, error) {
	var found string
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) != 3:
			return "", fmt.Errorf("reading %q: not a line of /proc/PID/cgroup", line)
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			return fields[2], nil
		case fields[0] == "0":
			found = fields[2]
		}
	}
	if found == "" {
		return "", fmt.Errorf("reading %q: no cgroup with the memory controller", text)
	}
	return found, nil
}

// readFigures prints "v2", weight, quota, period and limit, or "v1", shares, quota, period and limit of cgroup $0.
const readFigures = `cd /sys/fs/cgroup
if [ -e cgroup.controllers ]; then echo v2; cd ".$0" && cat cpu.weight cpu.max memory.max
else echo v1; cat "cpu$0/cpu.shares" "cpu$0/cpu.cfs_quota_us" "cpu$0/cpu.cfs_period_us" "memory$0/memory.limit_in_bytes"; fi`

// ReadCgroup reads what the kernel holds on a node for a CgroupPath, fresh at each call.
func (c *Cluster) ReadCgroup(ctx context.Context, node, dir string) (cluster.Cgroup, error) {
	out, err := c.exec(ctx, node, nil, "sh", "-c", readFigures, dir)
	if err != nil {
		return cluster.Cgroup{}, err
	}
	figures, err := parseFigures(string(out))
	figures.Path = dir
	return figures, err
}

func parseFigures(text string) (cluster.Cgroup, error) {
	var held cluster.Cgroup
	fields := strings.Fields(text)
	if len(fields) != 5 || fields[0] != "v1" && fields[0] != "v2" {
		return held, fmt.Errorf("reading %q: not the figures of a cgroup", text)
	}
	share := &held.CPUWeight
	if fields[0] == "v1" {
		share = &held.CPUShares
	}
	for i, into := range []*int64{share, &held.CPUQuota, &held.CPUPeriod, &held.MemoryLimit} {
		var err error
		if *into, err = parseFigure(fields[i+1]); err != nil {
			return held, fmt.Errorf("reading %q: %w", text, err)
		}
	}
	return held, nil
}

// parseFigure: no limit is "max", or on v1 the largest number of whole pages, and becomes -1.
func parseFigure(text string) (int64, error) {
	const noLimit = 1 << 62
	if text == "max" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if n > noLimit {
		n = -1
	}
	return n, err
}

// readCPUStat prints what cpu.stat of cgroup $0 has on v2.
const readCPUStat = `cd /sys/fs/cgroup
if [ -e cgroup.controllers ]; then cat ".$0/cpu.stat"
else cat "cpu$0/cpu.stat" && echo usage_usec $(($(cat "cpuacct$0/cpuacct.usage") / 1000)); fi`

// CPUUse reads what the kernel of a node has counted for a CgroupPath.
func (c *Cluster) CPUUse(ctx context.Context, node, dir string) (cluster.CPUUse, error) {
	out, err := c.exec(ctx, node, nil, "sh", "-c", readCPUStat, dir)
	if err != nil {
		return cluster.CPUUse{}, err
	}
	return cluster.ParseCPUStat(string(out))
}

// KillContainer ends every process of a container, as kill -9 does.
func (c *Cluster) KillContainer(ctx context.Context, pod *corev1.Pod, container string) error {
	dir, err := c.CgroupPath(ctx, pod, container)
	if err != nil {
		return err
	}
	const kill = `kill -9 $(cat "/sys/fs/cgroup$0/cgroup.procs" || cat "/sys/fs/cgroup/memory$0/cgroup.procs")`
	_, err = c.exec(ctx, pod.Spec.NodeName, nil, "sh", "-c", kill, dir)
	return err
}
