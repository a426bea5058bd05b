package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// setting is where, when and of what the figures are.
type setting struct {
	options

	commit, date, machine, programs string
	releases                        []string
}

func (s *setting) look(ctx context.Context, o options) error {
	s.options, s.date = o, time.Now().UTC().Format(time.DateOnly)
	commit, err := output(ctx, "git", "describe", "--always", "--dirty=, with changes")
	if err != nil {
		return err
	}
	s.commit = commit
	if s.machine, err = machine(); err != nil {
		return err
	}
	return nil
}

// report writes the setting, with the versions of programs that only exist once a cluster was started.
func (s *setting) report(b *bytes.Buffer) {
	line(b, "Commit %s, %s. Kubernetes %s.\n", s.commit, s.date, strings.Join(s.releases, ", "))
	line(b, "Machine: %s. %s. Pauses seeded with %d.\n", s.machine, s.programs, s.seed)
}

// readPrograms asks the node's programs for their versions.
func (s *setting) readPrograms(ctx context.Context) error {
	containerd, err := output(ctx, "containerd", "--version")
	if err != nil {
		return err
	}
	runc, err := output(ctx, "runc", "--version")
	if err != nil {
		return err
	}
	s.programs = "containerd " + version(containerd) + ", runc " + version(runc)
	return nil
}

// version is the first word of a text that looks like one.
func version(text string) string {
	return regexp.MustCompile(`\d+\.\d+\.\d+\S*`).FindString(text)
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("running %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// machine is one line: processors, memory, kernel, and how busy it was with other things at the start.
func machine() (string, error) {
	var text [4]string
	for i, file := range []string{"/proc/cpuinfo", "/proc/meminfo", "/proc/sys/kernel/osrelease", "/proc/loadavg"} {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("looking at the machine: %w", err)
		}
		text[i] = string(data)
	}
	cpu := find(text[0], `(?m)^model name\s*: (.*)$`)
	var kib int64
	if _, err := fmt.Sscan(find(text[1], `(?m)^MemTotal:\s*(\d+)`), &kib); err != nil {
		return "", fmt.Errorf("reading /proc/meminfo: %w", err)
	}
	load, _, _ := strings.Cut(text[3], " ")
	release, _, _ := strings.Cut(strings.TrimSpace(text[2]), "-") // what follows is the distributor's
	return fmt.Sprintf("%d x %s, %d GiB, Linux %s, load %s before the start", runtime.NumCPU(), cpu, kib>>20, release, load), nil
}

func find(text, pattern string) string {
	if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "unknown"
}
