package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProcessIsNotAnotherOne(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	start, _, err := procStat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p, reused := process{cmd.Process.Pid, start}, process{cmd.Process.Pid, start - 1}
	if !p.alive() || reused.alive() || (process{}).alive() {
		t.Errorf("alive: %t, with another start time: %t, none: %t", p.alive(), reused.alive(), (process{}).alive())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Not yet waited for, it is a zombie.
	if err := p.wait(t.Context()); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

func TestPoll(t *testing.T) {
	wrong := errors.New("wrong")
	if err := poll(t.Context(), time.Nanosecond, func() error { return fatalError{wrong} }); !errors.Is(err, wrong) {
		t.Errorf("a fatal error gives %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := poll(ctx, time.Hour, func() error { return wrong })
	if !errors.Is(err, wrong) || !errors.Is(err, context.Canceled) {
		t.Errorf("a poll that was cancelled says %v", err)
	}
	left := 3
	err = poll(t.Context(), time.Nanosecond, func() error {
		if left--; left > 0 {
			return wrong
		}
		return nil
	})
	if err != nil || left != 0 {
		t.Errorf("got %v with %d left", err, left)
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var said strings.Builder
	unlock, err := lockFile(t.Context(), path, &said)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, path, &said); !errors.Is(err, errLocked) || !strings.Contains(said.String(), path) {
		t.Errorf("a second lock: %v, said %q", err, said.String())
	}
	unlock()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock file stays: %v", err)
	}
	unlock, err = lockFile(t.Context(), path, &said)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestLastLines(t *testing.T) {
	if got := lastLines("a\nb\nc\n", 2); got != "\n  b\n  c" {
		t.Errorf("got %q", got)
	}
	if got := lastLines("\n", 2); got != "" {
		t.Errorf("got %q of nothing", got)
	}
}
