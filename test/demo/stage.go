package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/podresize/podresize/resize/v1alpha1"
	"github.com/podresize/podresize/test/cluster"
)

// stage is one cluster and what is shown on it.
type stage struct {
	name, kubernetes string
	// path is what the command must say that it took; how says the same to people.
	path, how string
	// agent says that this release needs podresize-agent.
	agent bool

	cluster *cluster.Cluster
	release string
	pod     *corev1.Pod
	took    map[string]time.Duration // by the name of a step
}

// step is one command and what app has afterwards.
type step struct {
	name, says string
	app        amounts
}

func steps() []step {
	return []step{
		{name: "raise", says: `More for "app": 500m CPU and 256Mi memory. Its limits, twice its requests here, follow.`, app: amounts{500, 256}},
		{name: "lower", says: `And back again.`, app: before()},
	}
}

// setUp starts the cluster, and on it the agent where it is needed, and the pod.
func (s *stage) setUp(ctx context.Context, out io.Writer) error {
	version, err := cluster.ParseVersion(s.kubernetes)
	if err != nil {
		return err
	}
	s.release, s.took = version.String(), map[string]time.Duration{}
	s.cluster, err = cluster.Start(ctx, cluster.Config{Name: s.name, Kubernetes: s.kubernetes, Progress: out})
	if err != nil {
		return err
	}
	if s.agent {
		if err := s.deployAgent(ctx, out); err != nil {
			return err
		}
	}
	s.pod, err = s.cluster.RunPod(ctx, web())
	return err
}

func (s *stage) deployAgent(ctx context.Context, out io.Writer) error {
	if _, err := fmt.Fprintln(out, "Building podresize-agent and deploying it from manifests/base"); err != nil {
		return err
	}
	if err := s.cluster.LoadImage(ctx, "localhost/podresize-agent:dev", "../cmd/podresize-agent"); err != nil {
		return err
	}
	if err := s.cluster.Apply(ctx, "e2e/manifests"); err != nil {
		return err
	}
	if err := s.cluster.WaitDaemonSet(ctx, v1alpha1.AgentNamespace, "podresize-agent"); err != nil {
		return err
	}
	return s.awaitLease(ctx)
}

// awaitLease waits for the agent's sign of life.
func (s *stage) awaitLease(ctx context.Context) error {
	leases := s.cluster.Client().CoordinationV1().Leases(v1alpha1.AgentNamespace)
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := leases.Get(ctx, v1alpha1.AgentLeaseName("n1"), metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the Lease of podresize-agent: %w", err)
	}
	return nil
}

// show runs the commands as a user would, and checks what the kernel holds after each.
func (s *stage) show(ctx context.Context, podresize string, out io.Writer) error {
	title := fmt.Sprintf("Kubernetes %s: %s", s.release, s.how)
	_, err := fmt.Fprintf(out, "\n%s\n%s\n\n$ export KUBECONFIG=%s\n", title, strings.Repeat("=", len(title)), s.cluster.Kubeconfig())
	if err != nil {
		return err
	}
	was, err := s.look(ctx, before())
	if err != nil {
		return err
	}
	if err := s.command(ctx, podresize, out, "status", "web"); err != nil {
		return err
	}
	for _, step := range steps() {
		if was, err = s.resize(ctx, podresize, out, step, was); err != nil {
			return fmt.Errorf("to %s: %w", step.name, err)
		}
	}
	return nil
}

func (s *stage) resize(ctx context.Context, podresize string, out io.Writer, step step, was picture) (picture, error) {
	if _, err := fmt.Fprintf(out, "\n# %s\n", step.says); err != nil {
		return nil, err
	}
	began := time.Now()
	err := s.command(ctx, podresize, out, "set", "web", "-c", "app", "--cpu", step.app.cpuText(), "--memory", step.app.memoryText(), "--wait")
	if err != nil {
		return nil, err
	}
	s.took[step.name] = time.Since(began)
	is, err := s.look(ctx, step.app)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(out, "\nThe kernel, before and after (the command took %s):\n", seconds(s.took[step.name])); err != nil {
		return nil, err
	}
	return is, compare(out, was, is)
}

// command runs podresize with its output shown, and insists on success and, if it tells one, on the path.
func (s *stage) command(ctx context.Context, podresize string, out io.Writer, args ...string) error {
	line := "podresize " + strings.Join(args, " ")
	if _, err := fmt.Fprintf(out, "$ %s\n", line); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, podresize, args...)
	cmd.Env = []string{"KUBECONFIG=" + s.cluster.Kubeconfig(), "HOME=" + filepath.Dir(podresize), "PATH=" + os.Getenv("PATH")}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &stdout), &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, stderr.String())
	}
	if !regexp.MustCompile(`(?m)^Path: +` + s.path + `$`).Match(stdout.Bytes()) {
		return fmt.Errorf("%s: it does not say that it took the path %s", line, s.path)
	}
	return nil
}

// conclude is the last word: both releases side by side.
func conclude(out io.Writer, all []*stage) error {
	const ok = "\nThe kernel held what was asked after every command, and no container was restarted.\n"
	if _, err := io.WriteString(out, ok); err != nil {
		return err
	}
	for _, s := range all {
		var times []string
		for _, step := range steps() {
			times = append(times, fmt.Sprintf("%s %s", step.name, seconds(s.took[step.name])))
		}
		if _, err := fmt.Fprintf(out, "  %-10s %-36s %s\n", s.release, s.how, strings.Join(times, "   ")); err != nil {
			return err
		}
	}
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
