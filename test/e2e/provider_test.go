//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/kind"
)

// provider is what the suites do with a cluster besides its API: whoever runs it, they are the same.
type provider interface {
	lifecycle
	names
	onNodes
	kernels
}

type lifecycle interface {
	// Kubeconfig is the path of the admin's.
	Kubeconfig() string
	// LoadImage builds an image of this repository and brings it to every node, as cluster.Cluster does.
	LoadImage(ctx context.Context, image, dir string) error
	Stop(ctx context.Context) error
}

type names interface {
	// NodeName is the name of the Node object for a node of the configuration.
	NodeName(node string) string
	// NodeDir is a directory on every node, for files that are to go when the cluster does.
	NodeDir() string
	// Containerd is a regular expression for the command line of a node's containerd.
	Containerd(node string) string
}

type onNodes interface {
	// Component is a program of a node, or with an empty node of the control plane.
	Component(program, node string) (component, error)
	// Exec runs a command as root and returns its output.
	Exec(ctx context.Context, node string, argv ...string) (string, error)
	KillContainer(ctx context.Context, pod *corev1.Pod, container string) error
}

type kernels interface {
	Cgroup(ctx context.Context, pod *corev1.Pod, container string) (cluster.Cgroup, error)
	CgroupPath(ctx context.Context, pod *corev1.Pod, container string) (string, error)
	CPUUse(ctx context.Context, node, path string) (cluster.CPUUse, error)
	ReadCgroup(ctx context.Context, node, path string) (cluster.Cgroup, error)
}

// component is a cluster.Component, wherever it runs.
type component interface {
	Stop(ctx context.Context) error
	Start(ctx context.Context) error
	Kill(ctx context.Context) error
	Restart(ctx context.Context) error
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

// bySystemd says whether the kubelets leave cgroups to systemd, as kind's do.
func bySystemd() bool {
	yes, _ := byKind()
	return yes || os.Getenv("PODRESIZE_NODE") == "vm-systemd"
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

func (kindCluster) NodeDir() string { return "/run" }

func (kindCluster) Containerd(string) string { return "^/usr/local/bin/containerd$" }

// bedCluster is a cluster of the test bed.
type bedCluster struct{ *cluster.Cluster }

func (c bedCluster) Component(program, node string) (component, error) {
	return c.Cluster.Component(program, node)
}

func (bedCluster) NodeName(node string) string { return node }

func (c bedCluster) NodeDir() string { return c.Dir() }

func (c bedCluster) Containerd(node string) string {
	return `^(\S+/)?containerd --config=` + c.Dir() + "/nodes/" + node + "/"
}
