//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/kind"
)

// provider is what the suites do with a cluster besides its API: whoever runs it, they are the same.
type provider interface {
	lifecycle
	nodes
	cgroups
}

type lifecycle interface {
	// Kubeconfig is the path of the admin's.
	Kubeconfig() string
	// LoadImage builds an image of this repository and brings it to every node, as cluster.Cluster does.
	LoadImage(ctx context.Context, image, dir string) error
	Stop(ctx context.Context) error
}

type nodes interface {
	// NodeName is the name of the Node object for a node of the configuration.
	NodeName(node string) string
	// Component is a program of a node, or with an empty node of the control plane.
	Component(program, node string) (component, error)
	KillContainer(ctx context.Context, pod *corev1.Pod, container string) error
}

type cgroups interface {
	Cgroup(ctx context.Context, pod *corev1.Pod, container string) (cluster.Cgroup, error)
	CgroupPath(ctx context.Context, pod *corev1.Pod, container string) (string, error)
	ReadCgroup(ctx context.Context, node, path string) (cluster.Cgroup, error)
}

// component is a cluster.Component, wherever it runs.
type component interface {
	Stop(ctx context.Context) error
	Start(ctx context.Context) error
	RestartWith(ctx context.Context, want cluster.Settings) error
}

// byKind says whether the clusters are to be kind's, from PODRESIZE_PROVIDER.
func byKind() (bool, error) {
	switch name := os.Getenv("PODRESIZE_PROVIDER"); name {
	case "", "bed":
		return false, nil
	case "kind":
		return true, nil
	default:
		return false, fmt.Errorf("no provider %q: choose bed or kind", name)
	}
}

// startCluster starts a cluster, after taking down one of that name.
func startCluster(t *testing.T, config cluster.Config) (*cluster.API, provider) {
	t.Helper()
	if err := takeDownCluster(t.Context(), config.Name, t.Output()); err != nil {
		t.Fatal(err)
	}
	if yes, _ := byKind(); yes {
		c, err := kind.Start(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		return c.API, kindCluster{c}
	}
	c, err := cluster.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return c.API, bedCluster{c}
}

// takeDownCluster does nothing where there is none of that name.
func takeDownCluster(ctx context.Context, name string, progress io.Writer) error {
	yes, err := byKind()
	if err != nil {
		return err
	}
	if yes {
		return kind.Stop(name, progress)
	}
	return cluster.Down(ctx, name, progress)
}

// kindCluster is a cluster that kind runs.
type kindCluster struct{ *kind.Cluster }

func (c kindCluster) Component(program, node string) (component, error) {
	return c.Cluster.Component(program, node)
}

// bedCluster is a cluster of the test bed. Its nodes have the kernel of this machine.
type bedCluster struct{ *cluster.Cluster }

func (c bedCluster) Component(program, node string) (component, error) {
	return c.Cluster.Component(program, node)
}

func (bedCluster) NodeName(node string) string { return node }

func (bedCluster) ReadCgroup(_ context.Context, _, path string) (cluster.Cgroup, error) {
	return cluster.ReadCgroup(path)
}

func (c bedCluster) KillContainer(ctx context.Context, pod *corev1.Pod, container string) error {
	path, err := c.CgroupPath(ctx, pod, container)
	if err != nil {
		return err
	}
	for _, mount := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} { // v1, v2
		data, err := os.ReadFile(filepath.Join(mount, path, "cgroup.procs"))
		if err == nil {
			return killAll(string(data))
		}
	}
	return errors.New("the container has no cgroup " + path)
}

func killAll(pids string) error {
	for text := range strings.FieldsSeq(pids) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	return nil
}
