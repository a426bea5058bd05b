//go:build e2e

package cluster_test

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podresize/podresize/test/cluster"
)

// TestInterruptedStart: a start that is interrupted cleans up after itself, and
// one that is killed is cleaned up by the next down or start, wherever it was.
func TestInterruptedStart(t *testing.T) {
	command, vm := buildCommand(t), nodeVM(t)
	nodes := "--nodes=n1,n2"
	if vm != "" {
		nodes = "--nodes=n1:vm=" + vm
	}
	before := snapshot(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		for _, after := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second} {
			interrupt(t, command, nodes, signal, after)
			if signal == syscall.SIGKILL {
				if err := cluster.Down(t.Context(), "test-cut", t.Output()); err != nil {
					t.Fatal(err)
				}
			}
			if left := snapshot(t).Since(before); len(left) > 0 {
				t.Fatalf("left behind by %s after %s:\n%s", signal, after, strings.Join(left, "\n"))
			}
		}
	}
	interrupt(t, command, nodes, syscall.SIGKILL, 2*time.Second)
	config := cluster.Config{Name: "test-cut", Kubernetes: releases()[0], Nodes: []cluster.Node{{Name: "n1", VM: vm}}, Progress: t.Output()}
	c, err := cluster.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left := snapshot(t).Since(before); len(left) > 0 {
		t.Errorf("left behind in the end:\n%s", strings.Join(left, "\n"))
	}
}

// interrupt runs the command as a shell does and ends it after a while.
func interrupt(t *testing.T, command, nodes string, signal syscall.Signal, after time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, "up", "--name=test-cut", "--kubernetes="+releases()[0], nodes)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after) // any moment will do: there is nothing to wait for
	// To the whole group, as Ctrl-C does.
	if err := syscall.Kill(-cmd.Process.Pid, signal); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Fatalf("after %s the start was at its end already: %v", signal, err)
	}
}

func buildCommand(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "cluster")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/cluster").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}
