package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// host is what clusters change on the machine itself. The first cluster writes
// it down, the last one puts it back.
type host struct {
	// Sysctls are values before the first kubelet changed them, by path
	// below /proc/sys.
	Sysctls map[string]string

	// Made are directories that did not exist before.
	Made []string
}

// sysctls are the settings that a kubelet or a CNI plugin may write.
func sysctls() []string {
	return []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet",
	}
}

// mountPoints are directories that each node covers, in its own mount
// namespace, with one of its own. They stay empty on the machine.
func mountPoints() []string {
	return []string{"/run/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers"}
}

func hostPath() string { return filepath.Join(StateDir, "host.json") }

// lockHost guards StateDir itself: the list of clusters and host.json.
func lockHost(ctx context.Context, progress io.Writer) (func(), error) {
	return lockFile(ctx, "/run/podresize.lock", progress)
}

// lockCluster keeps two processes from starting or stopping one cluster.
func lockCluster(ctx context.Context, name string, progress io.Writer) (func(), error) {
	return lockFile(ctx, "/run/podresize-"+name+".lock", progress)
}

// enterHost reserves an index for a new cluster and writes its first state.
func enterHost(ctx context.Context, config Config) (state, error) {
	unlock, err := lockHost(ctx, config.Progress)
	if err != nil {
		return state{}, err
	}
	defer unlock()
	if err := os.MkdirAll(StateDir, 0o755); err != nil {
		return state{}, fmt.Errorf("making the state directory: %w", err)
	}
	if err := prepareHost(); err != nil {
		return state{}, err
	}
	index, err := freeIndex(ctx)
	if err != nil {
		return state{}, err
	}
	s := state{Index: index, Config: config, Components: map[string]component{}}
	if err := os.MkdirAll(clusterDir(config.Name), 0o755); err != nil {
		return state{}, fmt.Errorf("making the cluster directory: %w", err)
	}
	return s, s.write()
}

func prepareHost() error {
	if _, err := os.Stat(hostPath()); errors.Is(err, fs.ErrNotExist) {
		if err := writeJSON(hostPath(), surveyHost()); err != nil {
			return err
		}
	}
	for _, dir := range mountPoints() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a mount point: %w", err)
		}
	}
	return nil
}

func surveyHost() host {
	h := host{Sysctls: map[string]string{}}
	for _, name := range sysctls() {
		if value, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil {
			h.Sysctls[name] = strings.TrimSpace(string(value))
		}
	}
	for _, dir := range mountPoints() {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			h.Made = append(h.Made, dir)
		}
	}
	return h
}

// freeIndex is the lowest index that no cluster has and whose API server
// address nobody uses.
func freeIndex(ctx context.Context) (int, error) {
	names, err := clusterNames()
	if err != nil {
		return 0, err
	}
	taken := map[int]bool{}
	for _, name := range names {
		if s, err := readState(name); err == nil {
			taken[s.Index] = true
		}
	}
	for k := 1; k <= maxClusters; k++ {
		if taken[k] {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.20.%d.1:443", k))
		if err == nil {
			return k, listener.Close()
		}
	}
	return 0, fmt.Errorf("no address free on 127.20.1.1:443 … 127.20.%d.1:443", maxClusters)
}

// leaveHost removes the directory of a cluster and, with the last one, every
// trace on the machine.
func leaveHost(ctx context.Context, name string, progress io.Writer) error {
	unlock, err := lockHost(ctx, progress)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.RemoveAll(clusterDir(name)); err != nil {
		return fmt.Errorf("removing the cluster directory: %w", err)
	}
	names, err := clusterNames()
	if err != nil || len(names) > 0 {
		return err
	}
	return restoreHost()
}

func restoreHost() error {
	data, err := os.ReadFile(hostPath())
	if errors.Is(err, fs.ErrNotExist) {
		return removeEmpty(StateDir)
	}
	if err != nil {
		return fmt.Errorf("reading what to restore: %w", err)
	}
	var h host
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf("reading what to restore: %w", err)
	}
	for name, value := range h.Sysctls {
		if err := restoreSysctl(filepath.Join("/proc/sys", name), value); err != nil {
			return err
		}
	}
	for _, dir := range h.Made {
		if err := removeEmpty(dir); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(StateDir); err != nil {
		return fmt.Errorf("removing the state directory: %w", err)
	}
	return nil
}

// restoreSysctl writes only what differs: some settings have effects of their
// own when written.
func restoreSysctl(path, value string) error {
	now, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading a sysctl: %w", err)
	}
	if strings.TrimSpace(string(now)) == value {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("restoring a sysctl: %w", err)
	}
	return nil
}

// removeEmpty removes a directory, if it is there and nobody put anything in.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || len(entries) > 0 {
		return nil
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an empty directory: %w", err)
	}
	return nil
}
