package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Snapshot is what clusters may leave on a machine.
type Snapshot struct {
	// traces hold a value, by a name that tells what it is.
	traces map[string]trace

	// living are the clusters that were there.
	living map[string]bool
}

type trace struct {
	value string

	// cluster is whose it is, where that can be told; everyOne is what all
	// clusters have in common.
	cluster string
}

const everyOne = "*"

// TakeSnapshot looks at processes, mounts, cgroups, network links, sysctls and
// directories. It sees nothing of programs that have nothing to do with
// Kubernetes.
func TakeSnapshot() (Snapshot, error) {
	shot := Snapshot{traces: map[string]trace{}, living: map[string]bool{}}
	// Clusters come and go while we look: those before and after count.
	err := errors.Join(shot.clusters(), shot.processes(), shot.mounts(), shot.cgroups(), shot.links(), shot.files(), shot.clusters())
	if err != nil {
		return Snapshot{}, fmt.Errorf("looking at the machine: %w", err)
	}
	for name, value := range surveyHost().Sysctls {
		shot.traces["sysctl "+name] = trace{value, everyOne}
	}
	return shot, nil
}

// Since lists what has appeared or changed since an earlier snapshot and
// belongs to no cluster that still exists, sorted.
func (now Snapshot) Since(earlier Snapshot) []string {
	var changes []string
	for name, t := range now.traces {
		was, known := earlier.traces[name]
		switch {
		case now.living[t.cluster], earlier.living[t.cluster] && t.cluster == everyOne:
		case !known:
			changes = append(changes, fmt.Sprintf("new %s %s", name, t.value))
		case was.value != t.value:
			changes = append(changes, fmt.Sprintf("changed %s from %s to %s", name, was.value, t.value))
		}
	}
	slices.Sort(changes)
	return changes
}

func (now Snapshot) clusters() error {
	names, err := clusterNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		now.living[name] = true
		now.living[everyOne] = true
	}
	return nil
}

// processes of the kinds that a cluster consists of.
func (now Snapshot) processes() error {
	kinds := append(programs(), "etcd", "containerd", "containerd-shim-runc-v2", "runc", "crun", "ctr", "workload", "qemu-system-x86_64")
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, dir := range entries {
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(command) == 0 {
			continue // gone meanwhile, dead, or a thread of the kernel
		}
		cgroups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil {
			continue
		}
		argv := strings.Split(strings.TrimRight(string(command), "\x00"), "\x00")
		owner := cgroupOwner(string(cgroups))
		if owner != "" || slices.Contains(kinds, filepath.Base(argv[0])) {
			now.traces["process "+filepath.Base(dir)] = trace{strings.Join(argv[:min(3, len(argv))], " "), owner}
		}
	}
	return nil
}

// cgroupOwner is the cluster that a text with a cgroup path belongs to.
func cgroupOwner(text string) string {
	_, below, found := strings.Cut(text, "/"+cgroupTop)
	if !found {
		return ""
	}
	name := strings.TrimPrefix(below, "/")
	if end := strings.IndexAny(name, "/\n"); end >= 0 {
		name = name[:end]
	}
	if name == "" {
		return everyOne
	}
	return name
}

func (now Snapshot) mounts() error {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 2 {
			now.traces["mount "+fields[1]] = trace{value: fields[2]}
		}
	}
	return nil
}

// cgroups: those of clusters, and those that a kubelet or runc would make
// elsewhere.
func (now Snapshot) cgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		err := filepath.WalkDir(h.mount, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !d.IsDir() {
				return err
			}
			owner := cgroupOwner(path)
			if owner != "" || strings.Contains(path, "kube") {
				now.traces["cgroup "+path] = trace{cluster: owner}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (now Snapshot) links() error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	owners := map[string]string{}
	for name := range now.living {
		if s, err := readState(name); err == nil {
			for _, n := range s.Config.Nodes {
				owners[bridge(name, n.Name)] = name
			}
		}
	}
	for _, link := range links {
		owner := owners[link.Name]
		if master, err := os.Readlink(filepath.Join("/sys/class/net", link.Name, "master")); err == nil {
			owner = owners[filepath.Base(master)]
		}
		now.traces["link "+link.Name] = trace{cluster: owner}
	}
	return nil
}

// files: what is in the directories where Kubernetes and its runtimes keep
// things by default, and ours.
func (now Snapshot) files() error {
	dirs := append(mountPoints(), StateDir, "/run", "/var/lib", "/var/log", "/var/run/netns", "/etc", "/etc/cni", "/opt", "/usr/libexec", "/usr/libexec/kubernetes")
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			now.traces["file "+path] = trace{cluster: fileOwner(path)}
		}
	}
	return nil
}

func fileOwner(path string) string {
	switch {
	case filepath.Dir(path) == StateDir && path != hostPath():
		return filepath.Base(path)
	case strings.HasPrefix(path, StateDir), strings.HasPrefix(path, "/run/podresize"), slices.Contains(mountPoints(), path):
		return everyOne
	default:
		return ""
	}
}
