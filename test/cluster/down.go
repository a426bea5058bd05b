package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Down takes the cluster with this name down, whatever state it is in, and
// leaves nothing of it: processes, mounts, cgroups, network, sysctls, files.
// It may be called again at any time; without such a cluster it does nothing.
func Down(ctx context.Context, name string, progress io.Writer) error {
	if err := validateName("cluster", name); err != nil {
		return err
	}
	if progress == nil {
		progress = io.Discard
	}
	unlock, err := lockCluster(ctx, name, progress)
	if err != nil {
		return err
	}
	defer unlock()
	return down(ctx, name, progress)
}

// Names lists the clusters of this machine, those half started or half
// stopped too.
func Names() ([]string, error) { return clusterNames() }

// down does the work of Down for whoever holds the lock of the cluster.
func down(ctx context.Context, name string, progress io.Writer) error {
	// Without a state nothing with a name from the configuration was made.
	s, err := readState(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := killAll(ctx, name); err != nil {
		return err
	}
	for _, n := range s.Config.Nodes {
		if err := removeBridge(ctx, bridge(name, n.Name)); err != nil {
			return err
		}
	}
	if err := removeCgroups(ctx, name); err != nil {
		return err
	}
	return leaveHost(ctx, name, progress)
}

// killAll kills every process of a cluster. The mounts of its nodes go with
// the last process of each mount namespace.
func killAll(ctx context.Context, name string) error {
	return poll(ctx, 20*time.Millisecond, func() error {
		pids, err := clusterProcesses(name)
		if err != nil {
			return fatalError{err}
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fatalError{fmt.Errorf("killing process %d: %w", pid, err)}
			}
		}
		if len(pids) > 0 {
			return fmt.Errorf("killing the processes of cluster %q: %v still there", name, pids)
		}
		return nil
	})
}

// removeBridge removes a bridge and what is plugged into it. The kernel
// removes those links too when their pod's network goes, but later.
func removeBridge(ctx context.Context, name string) error {
	dir := filepath.Join("/sys/class/net", name)
	ports, err := os.ReadDir(filepath.Join(dir, "brif"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing the ports of bridge %q: %w", name, err)
	}
	links := make([]string, 0, len(ports)+1)
	for _, p := range ports {
		links = append(links, p.Name())
	}
	for _, link := range append(links, name) {
		if err := removeLink(ctx, link); err != nil {
			return err
		}
	}
	return nil
}

func removeLink(ctx context.Context, name string) error {
	path := filepath.Join("/sys/class/net", name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	out, err := exec.CommandContext(ctx, "ip", "link", "delete", name).CombinedOutput()
	if _, gone := os.Lstat(path); err != nil && gone == nil {
		return fmt.Errorf("removing network link %q: %w%s", name, err, lastLines(string(out), 2))
	}
	return nil
}

// removeCgroups retries: a cgroup stays busy for a moment after its last
// process.
func removeCgroups(ctx context.Context, name string) error {
	err := poll(ctx, 20*time.Millisecond, func() error {
		dirs, err := clusterCgroups(name)
		if err != nil {
			return fatalError{err}
		}
		var errs []error
		for _, dir := range dirs {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("removing the cgroups of cluster %q: %w", name, err)
	}
	return removeCgroupTop()
}

// removeCgroupTop removes the directory above all clusters when none is left
// in it.
func removeCgroupTop() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		err := os.Remove(filepath.Join(h.mount, cgroupTop))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("removing a cgroup: %w", err)
		}
	}
	return nil
}
