package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of the times in /proc/<pid>/stat, 1/100 s on Linux.
const clockTick = 10 * time.Millisecond

// processStat are the fields of /proc/<pid>/stat after the command's name: the state is the first.
func processStat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, fmt.Errorf("looking at a process: %w", err)
	}
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	return strings.Fields(rest), nil
}

// cpuTime is what the process has used, and with the children that it has waited for if those count.
func cpuTime(pid int) (own, withChildren time.Duration, err error) {
	fields, err := processStat(pid)
	if err != nil {
		return 0, 0, err
	}
	var ticks [4]time.Duration // user, system, children's user, children's system
	for i := range ticks {
		n, err := strconv.ParseInt(fields[11+i], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
		}
		ticks[i] = time.Duration(n) * clockTick
	}
	own = ticks[0] + ticks[1]
	return own, own + ticks[2] + ticks[3], nil
}

func parentOf(pid int) (int, error) {
	fields, err := processStat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[1])
}

// anonymousMemory is RssAnon of the process, in bytes.
func anonymousMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("looking at a process: %w", err)
	}
	kib, err := strconv.ParseInt(find(string(text), `(?m)^RssAnon:\s*(\d+) kB$`), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	return kib << 10, nil
}

// processesOf are those of a cgroup, the oldest number first.
func processesOf(path string) ([]int, error) {
	file := filepath.Join("/sys/fs/cgroup/memory", path, "cgroup.procs")
	if _, err := os.Stat(file); err != nil {
		file = filepath.Join("/sys/fs/cgroup", path, "cgroup.procs")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("listing the processes of a cgroup: %w", err)
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("listing the processes of a cgroup: %w", err)
		}
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

// ownCPUTime is what this process has used.
func ownCPUTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("reading the CPU time of this process: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
