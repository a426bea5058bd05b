package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/podresize/podresize/test/cluster"
)

const introduction = `podresize demo: change the CPU and memory of a running pod, without a restart

  Two real Kubernetes clusters start on this machine. On each runs a pod "web" with two
  containers, and the same podresize command gives container "app" more CPU and memory
  and takes them back:
    Kubernetes 1.37  the kubelet can resize in place; nothing is installed
    Kubernetes 1.26  the kubelet cannot; podresize-agent does it through the container runtime
  After each command the demo reads the cgroup files, which is where the kernel keeps what
  it enforces, and ends with an error if they do not hold what was asked.

`

// errInterrupted: a signal ended the demo, and cleaning up went well.
var errInterrupted = errors.New("interrupted; both clusters are gone")

// stages are the clusters, in the order in which they are shown.
func stages() []*stage {
	return []*stage{
		{name: "demo-1-37", kubernetes: "1.37", path: "InPlace", how: "in place, by the kubelet"},
		{name: "demo-1-26", kubernetes: "1.26", path: "CRI", how: "through the CRI, by podresize-agent", agent: true},
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	if _, err := io.WriteString(out, introduction); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "podresize-demo-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	all := stages()
	defer func() { err = outcome(ctx, err, cleanUp(context.WithoutCancel(ctx), all, out)) }()
	if err := cleanUp(ctx, all, io.Discard); err != nil { // of a demo that was killed
		return err
	}
	podresize, err := buildCommand(ctx, dir, out)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := s.setUp(ctx, out); err != nil {
			return fmt.Errorf("setting up Kubernetes %s: %w", s.kubernetes, err)
		}
	}
	for _, s := range all {
		if err := s.show(ctx, podresize, out); err != nil {
			return fmt.Errorf("showing Kubernetes %s: %w", s.kubernetes, err)
		}
	}
	return conclude(out, all)
}

// outcome is what the demo ends with. An interrupted step fails in its own words; what counts is that it was interrupted.
func outcome(ctx context.Context, err, cleaning error) error {
	switch {
	case err == nil || cleaning != nil:
		return errors.Join(cleaning, err)
	case ctx.Err() != nil:
		return errInterrupted
	}
	return err
}

// buildCommand builds the podresize command as its own module has it, and gives its path.
func buildCommand(ctx context.Context, dir string, out io.Writer) (string, error) {
	if _, err := fmt.Fprintln(out, "Building the podresize command"); err != nil {
		return "", err
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/podresize/podresize").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the podresize module (run from within test/): %w", err)
	}
	binary := filepath.Join(dir, "podresize")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, "./cmd/podresize")
	build.Dir = strings.TrimSpace(string(root))
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the podresize command: %w: %s", err, text)
	}
	return binary, nil
}

func cleanUp(ctx context.Context, all []*stage, out io.Writer) error {
	var errs []error
	_, _ = fmt.Fprintln(out, "Cleaning up") // what follows matters also if nobody reads
	for _, s := range all {
		if err := cluster.Down(ctx, s.name, out); err != nil {
			errs = append(errs, fmt.Errorf("cleaning up: %w", err))
		}
	}
	return errors.Join(errs...)
}
