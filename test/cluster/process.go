package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a process that cannot be mistaken for a later one with the same
// number.
type process struct {
	PID int

	// StartTime is field 22 of /proc/<pid>/stat, in clock ticks since boot.
	StartTime uint64
}

// spawn starts a program that outlives this process: in a session of its own,
// so that a Ctrl-C meant for the caller does not reach it; in the cgroup of
// its cluster, so that it can be found whatever happens; with its output
// appended to a log.
func spawn(cgroup, log string, argv []string) (process, error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return process{}, fmt.Errorf("making the log directory: %w", err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return process{}, fmt.Errorf("opening the log: %w", err)
	}
	defer out.Close()
	const enterCgroup = `set -e; echo $$ > "$0"; exec "$@"`
	cmd := exec.Command("/bin/sh", append([]string{"-c", enterCgroup, filepath.Join(cgroup, "cgroup.procs")}, argv...)...) //nolint:noctx // it outlives every context
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return process{}, fmt.Errorf("starting %q: %w", argv[0], err)
	}
	start, _, err := procStat(cmd.Process.Pid)
	// Collects the exit while this process lives; later init does.
	go func() { _ = cmd.Wait() }()
	if err != nil {
		return process{}, fmt.Errorf("starting %q: %w", argv[0], err)
	}
	return process{PID: cmd.Process.Pid, StartTime: start}, nil
}

// alive says whether the process still runs; a zombie does not.
func (p process) alive() bool {
	if p.PID == 0 {
		return false
	}
	start, status, err := procStat(p.PID)
	return err == nil && start == p.StartTime && status != "Z" && status != "X"
}

// signal does nothing to a process that has ended.
func (p process) signal(sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %s to process %d: %w", sig, p.PID, err)
	}
	return nil
}

// wait returns when the process has ended.
func (p process) wait(ctx context.Context) error {
	return poll(ctx, 10*time.Millisecond, func() error {
		if p.alive() {
			return fmt.Errorf("process %d still runs", p.PID)
		}
		return nil
	})
}

// procStat reads start time and state of a process from /proc. The name, in
// parentheses, may hold anything, so fields count from the last one.
func procStat(pid int) (startTime uint64, status string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 {
		return 0, "", fmt.Errorf("reading /proc/%d/stat: %d fields", pid, len(fields))
	}
	startTime, err = strconv.ParseUint(fields[19], 10, 64)
	return startTime, fields[0], err
}

// fatalError ends a poll at once.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// poll calls try until it returns nil or a fatalError, or ctx is done; then the
// error is what try said last.
func poll(ctx context.Context, every time.Duration, try func() error) error {
	for {
		err := try()
		var fatal fatalError
		if err == nil || errors.As(err, &fatal) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(every):
		}
	}
}

// logTail is the end of a log as part of an error message.
func logTail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("; the end of %s:%s", path, lastLines(string(data), 8))
}
