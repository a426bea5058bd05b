package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// crictlVersion is the cri-tools of the newest release in Versions.
const crictlVersion = "v1.37.0"

// Crictl returns the path of crictl, built from its module once, like Kubectl, and its version.
func Crictl(ctx context.Context, progress io.Writer) (path, version string, err error) {
	p := product{
		name: "crictl-" + crictlVersion, files: []string{"crictl"},
		what: fmt.Sprintf("Building crictl %s (once; a minute or two)", crictlVersion), progress: progress,
	}
	dir, err := p.cached(ctx, buildCrictl)
	if err != nil {
		return "", "", fmt.Errorf("building crictl %s: %w", crictlVersion, err)
	}
	return filepath.Join(dir, "crictl"), crictlVersion, nil
}

func buildCrictl(ctx context.Context, work, out string) error {
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", "-ldflags=-s -w", "sigs.k8s.io/cri-tools/cmd/crictl@"+crictlVersion)
	cmd.Dir = work
	cmd.Env = append(buildEnv(os.Environ(), filepath.Join(work, "gocache")), "GOFLAGS=", "GOBIN="+out)
	// The compilers are children of go: stop the whole group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running go install: %w%s", err, lastLines(string(text), 10))
	}
	return nil
}
