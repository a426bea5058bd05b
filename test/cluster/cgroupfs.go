package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// cgroupTop is the directory in every cgroup hierarchy that all clusters live
// below: /podresize/<cluster>/system for the components and
// /podresize/<cluster>/<node> for the pods of a node.
const cgroupTop = "podresize"

// hierarchy is one mounted cgroup file system.
type hierarchy struct {
	mount string

	// controllers are those of a v1 hierarchy; none for v2 and for named ones.
	controllers []string
	v2          bool
}

// hierarchies finds the cgroup file systems of this machine: on v1 several
// (and often a v2 one without controllers), on v2 a single one.
func hierarchies() ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("finding cgroup hierarchies: %w", err)
	}
	return parseHierarchies(string(data)), nil
}

func parseHierarchies(mounts string) []hierarchy {
	known := []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "hugetlb", "net_cls", "net_prio", "perf_event", "rdma", "misc"}
	var all []hierarchy
	lines := bufio.NewScanner(strings.NewReader(mounts))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		switch fields[2] {
		case "cgroup2":
			all = append(all, hierarchy{mount: fields[1], v2: true})
		case "cgroup":
			h := hierarchy{mount: fields[1]}
			for option := range strings.SplitSeq(fields[3], ",") {
				if slices.Contains(known, option) {
					h.controllers = append(h.controllers, option)
				}
			}
			all = append(all, h)
		}
	}
	return all
}

// controller finds the hierarchy that has a controller: the v1 hierarchy with
// it, or else the v2 one.
func controller(all []hierarchy, name string) (hierarchy, error) {
	for _, h := range all {
		if slices.Contains(h.controllers, name) {
			return h, nil
		}
	}
	for _, h := range all {
		if h.v2 {
			return h, nil
		}
	}
	return hierarchy{}, fmt.Errorf("no cgroup hierarchy with controller %q is mounted", name)
}

// makeCgroups makes the cgroups of a cluster. The kubelet insists that its
// cgroupRoot exists with every controller.
func (s state) makeCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	children := []string{"system"}
	for _, n := range s.Config.Nodes {
		if n.VM == "" {
			children = append(children, n.Name)
		}
	}
	for _, h := range all {
		for _, child := range children {
			if err := h.makeFor(s.Config.Name, child); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeFor makes a cgroup of a cluster. Another cluster that ends takes the top
// with it as long as nothing else is there, so it may be gone again half-way.
func (h hierarchy) makeFor(cluster, child string) error {
	err := h.make(cgroupTop, cluster, child)
	for tries := 10; tries > 0 && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)); tries-- {
		err = h.make(cgroupTop, cluster, child)
	}
	return err
}

// make makes a directory level by level: each has to be given what the kernel
// does not pass on by itself.
func (h hierarchy) make(path ...string) error {
	dir := h.mount
	for _, elem := range path {
		parent := dir
		dir = filepath.Join(dir, elem)
		if h.v2 {
			if err := enableControllers(parent); err != nil {
				return err
			}
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making a cgroup: %w", err)
		}
		if slices.Contains(h.controllers, "cpuset") {
			if err := inheritCPUSet(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// enableControllers lets the children of a v2 cgroup have all its controllers.
func enableControllers(dir string) error {
	names, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading cgroup controllers: %w", err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644); err != nil {
			return fmt.Errorf("enabling cgroup controller %q: %w", name, err)
		}
	}
	return nil
}

// inheritCPUSet: a new v1 cpuset has no CPU, and no process can enter it.
func inheritCPUSet(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return fmt.Errorf("reading a cpuset: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return fmt.Errorf("writing a cpuset: %w", err)
		}
	}
	return nil
}

// systemCgroup is the directory in which the components of a cluster are born.
// The pids controller is in every container's spec, so containers leave it for
// their own cgroups.
func systemCgroup(cluster string) (string, error) {
	all, err := hierarchies()
	if err != nil {
		return "", err
	}
	h, err := controller(all, "pids")
	if err != nil {
		return "", err
	}
	return filepath.Join(h.mount, cgroupTop, cluster, "system"), nil
}

// clusterCgroups lists every cgroup of a cluster, children before parents.
func clusterCgroups(cluster string) ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, h := range all {
		top := filepath.Join(h.mount, cgroupTop, cluster)
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			// Cgroups come and go while we look.
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("listing cgroups: %w", err)
		}
	}
	slices.SortFunc(dirs, func(a, b string) int { return strings.Compare(b, a) })
	return dirs, nil
}

// clusterProcesses lists every process of a cluster, its containers' too.
func clusterProcesses(cluster string) ([]int, error) {
	dirs, err := clusterCgroups(cluster)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // gone meanwhile
		}
		for field := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}
