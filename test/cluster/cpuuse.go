package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPUUse is what the kernel has counted for a cgroup since it was made.
type CPUUse struct {
	// Used is the CPU time of all its processes.
	Used time.Duration

	// Periods are the enforcement periods of its quota in which it was
	// runnable, Throttled those of them in which the quota stopped it. Without
	// a quota there are none.
	Periods, Throttled int64
}

// CPUUse reads what the kernel of a node has counted for a CgroupPath.
func (c *Cluster) CPUUse(ctx context.Context, node, dir string) (CPUUse, error) {
	n, i, err := c.snapshot().node(node)
	if err != nil {
		return CPUUse{}, err
	}
	text := ""
	if n.VM != "" {
		text, err = c.snapshot().runInMachine(ctx, i, []string{"cat", filepath.Join(machineCgroups, dir, "cpu.stat")})
	} else {
		text, err = readCPUStat(dir)
	}
	if err != nil {
		return CPUUse{}, fmt.Errorf("reading the CPU time of %q: %w", dir, err)
	}
	return ParseCPUStat(text)
}

// readCPUStat gives cpu.stat as cgroup v2 has it: v1 counts the CPU time
// elsewhere.
func readCPUStat(dir string) (string, error) {
	all, err := hierarchies()
	if err != nil {
		return "", err
	}
	cpu, err := controller(all, "cpu")
	if err != nil {
		return "", err
	}
	stat, err := os.ReadFile(filepath.Join(cpu.mount, dir, "cpu.stat"))
	if err != nil || cpu.v2 {
		return string(stat), err
	}
	accounting, err := controller(all, "cpuacct")
	if err != nil {
		return "", err
	}
	var nanoseconds int64
	err = readFigure(filepath.Join(accounting.mount, dir, "cpuacct.usage"), &nanoseconds)
	return fmt.Sprintf("%susage_usec %d\n", stat, nanoseconds/1000), err
}

// ParseCPUStat reads a cpu.stat as cgroup v2 has it.
func ParseCPUStat(text string) (CPUUse, error) {
	var use CPUUse
	var microseconds int64
	for key, into := range map[string]*int64{"usage_usec": &microseconds, "nr_periods": &use.Periods, "nr_throttled": &use.Throttled} {
		value, err := statLine(text, key)
		if err != nil {
			return CPUUse{}, err
		}
		*into = value
	}
	use.Used = time.Duration(microseconds) * time.Microsecond
	return use, nil
}

func statLine(text, key string) (int64, error) {
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == key {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("cpu.stat has no %s", key)
}
