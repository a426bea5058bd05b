package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/test/cluster"
)

// updates is what one update of a container costs, by each of three ways that take turns on one container.
type updates struct {
	setting setting
	crictl  string // its version
	callers []*caller
}

// caller is one way to update a container.
type caller struct {
	name   string
	update func(ctx context.Context, quota int64) (cpu time.Duration, err error)

	wall durations
	// cpu is the caller's own CPU time with its children's, runtime that of containerd, the pod's shim and its runc.
	cpu, runtime time.Duration
}

// target is the container that is updated. Its pod has no CRIResize, so that no agent looks after it.
type target struct {
	id     string
	socket string
	quota  string // the file
	// containerd and shim are their processes.
	containerd, shim int
}

const (
	updateShares, updatePeriod = 102, 100_000
	updateMemory               = 64 << 20
)

func (b *bench) measureUpdates(ctx context.Context) (*updates, error) {
	u := &updates{}
	s, err := b.openOnly(ctx, &u.setting, criRelease)
	if err != nil {
		return nil, err
	}
	crictl, version, err := cluster.Crictl(ctx, b.progress)
	if err != nil {
		return nil, err
	}
	u.crictl = version
	t, err := s[0].newTarget(ctx)
	if err != nil {
		return nil, err
	}
	client, err := cri.Dial(t.socket, cri.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }() // nothing is in flight any more
	u.callers = []*caller{
		{name: "podresize, gRPC on one connection", update: t.byClient(client)},
		{name: "exec of `crictl update` " + version, update: t.byProgram(crictl, "--runtime-endpoint=unix://"+t.socket, "update",
			"--cpu-period="+strconv.Itoa(updatePeriod), "--cpu-share="+strconv.Itoa(updateShares), "--memory="+strconv.Itoa(updateMemory))},
		{name: "exec of `runc update`", update: t.byProgram("runc", "--root="+filepath.Join(filepath.Dir(t.socket), "runc", "k8s.io"), "update",
			"--cpu-period="+strconv.Itoa(updatePeriod), "--cpu-share="+strconv.Itoa(updateShares), "--memory="+strconv.Itoa(updateMemory))},
	}
	return u, b.takeTurns(ctx, u.callers, t)
}

// newTarget runs the pod and finds out who is to do the work.
func (s *site) newTarget(ctx context.Context) (*target, error) {
	pod, err := s.RunPod(ctx, newPod("updated", low()))
	if err != nil {
		return nil, err
	}
	path, err := s.CgroupPath(ctx, pod, container)
	if err != nil {
		return nil, err
	}
	t := &target{id: filepath.Base(path), quota: quotaFile(path)}
	if t.socket, err = s.Socket("n1"); err != nil {
		return nil, err
	}
	pids, err := processesOf(path)
	if err != nil {
		return nil, err
	}
	if t.shim, err = parentOf(slices.Min(pids)); err != nil {
		return nil, err
	}
	t.containerd, err = serverOf(ctx, t.socket)
	return t, err
}

// serverOf is the process that listens on a unix socket.
func serverOf(ctx context.Context, socket string) (int, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("finding containerd: %w", err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn() //nolint:forcetypeassert // it was dialled as one
	if err != nil {
		return 0, fmt.Errorf("finding containerd: %w", err)
	}
	var peer *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, fmt.Errorf("finding containerd: %w", err)
	}
	return int(peer.Pid), nil
}

func (t *target) byClient(client *cri.Client) func(context.Context, int64) (time.Duration, error) {
	return func(ctx context.Context, quota int64) (time.Duration, error) {
		before, err := ownCPUTime()
		if err != nil {
			return 0, err
		}
		err = client.Update(ctx, t.id, cri.Resources{CPUShares: updateShares, CPUQuota: quota, CPUPeriod: updatePeriod, MemoryLimit: updateMemory})
		if err != nil {
			return 0, err
		}
		after, err := ownCPUTime()
		return after - before, err
	}
}

func (t *target) byProgram(program string, args ...string) func(context.Context, int64) (time.Duration, error) {
	return func(ctx context.Context, quota int64) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, program, slices.Concat(args, []string{"--cpu-quota=" + strconv.FormatInt(quota, 10), t.id})...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("running %s: %w: %s", filepath.Base(program), err, out)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
	}
}

// takeTurns updates the container by each way in turn, back and forth between two quotas, and sees each time that the kernel has it.
func (b *bench) takeTurns(ctx context.Context, callers []*caller, t *target) error {
	for i := range b.updates + 1 { // the first is not counted
		if i%25 == 0 {
			b.say("Updating one container in %d ways: %d of %d each", len(callers), i, b.updates)
		}
		for n, c := range callers {
			if err := c.once(ctx, t, int64(10_000+1_000*((i*len(callers)+n)%2)), i > 0); err != nil {
				return fmt.Errorf("updating by %s: %w", c.name, err)
			}
		}
	}
	return nil
}

func (c *caller) once(ctx context.Context, t *target, quota int64, counts bool) error {
	before, err := t.runtimeCPU()
	if err != nil {
		return err
	}
	began := time.Now()
	cpu, err := c.update(ctx, quota)
	took := time.Since(began)
	if err != nil {
		return err
	}
	after, err := t.runtimeCPU()
	if err != nil {
		return err
	}
	held, err := kernelHolds([]string{t.quota}, quota)
	switch {
	case err != nil:
		return err
	case !held:
		return fmt.Errorf("the kernel does not hold the quota %d", quota)
	}
	if counts {
		c.wall, c.cpu, c.runtime = append(c.wall, took), c.cpu+cpu, c.runtime+after-before
	}
	return nil
}

// runtimeCPU is the CPU time of containerd and of the pod's shim with the runcs that it has started.
func (t *target) runtimeCPU() (time.Duration, error) {
	containerd, _, err := cpuTime(t.containerd)
	if err != nil {
		return 0, err
	}
	_, shim, err := cpuTime(t.shim)
	return containerd + shim, err
}

func (u *updates) write(path string) error {
	return replace(path, marksOf("update"), func(b *bytes.Buffer) {
		u.setting.report(b)
		grpc, crictl, runc := u.callers[0], u.callers[1], u.callers[2]
		line(b, "| %d updates each, by | wall, p50 / p99 | CPU time of the caller, mean | CPU time of containerd, shim and its runc, mean |", len(grpc.wall))
		line(b, "|---|---|---|---|")
		for _, c := range u.callers {
			n := time.Duration(len(c.wall))
			line(b, "| %s | %s | %s ms | %s ms |", c.name, both(c.wall), milliseconds(c.cpu/n), milliseconds(c.runtime/n))
		}
		line(b, "\n| what | goal | measured |")
		line(b, "|---|---|---|")
		line(b, "| gRPC, p50, above `runc update` | ≤ 2 ms | %+.2f ms |", float64((grpc.wall.percentile(50)-runc.wall.percentile(50)).Microseconds())/1000)
		line(b, "| gRPC / crictl, p50 | ≤ 0.45 | %s |", ratio(grpc.wall, crictl.wall))
		line(b, "| CPU time of the caller, gRPC / crictl | ≤ 0.10 | %.3f |", float64(grpc.cpu)/float64(crictl.cpu))
	})
}
