package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	kindexec "sigs.k8s.io/kind/pkg/exec"

	"github.com/podresize/podresize/test/cluster"
)

// Cluster is a cluster that runs. Its methods may be called concurrently. Wherever they take the name of a node, that is the one of its
// configuration or that of its container, which is the name of the Node object.
type Cluster struct {
	*cluster.API

	config     cluster.Config
	kubeconfig string
	docker     runner
}

// patience is how long kind may take until the control plane is ready.
const patience = 5 * time.Minute

// Start makes a cluster and returns when all its nodes are Ready. One of that name must not be there: see Stop. When Start fails,
// nothing is left behind. Kind does not end early when ctx does.
func Start(ctx context.Context, config cluster.Config) (*Cluster, error) {
	config, err := cluster.Complete(config)
	if err != nil {
		return nil, err
	}
	if _, err := docker(ctx, nil, "version", "--format={{.Server.Version}}"); err != nil { // kind's own words for it are long
		return nil, fmt.Errorf("starting cluster %q by kind: %w", config.Name, err)
	}
	c, err := create(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("starting cluster %q by kind: %w", config.Name, err)
	}
	if err := c.finish(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting cluster %q by kind: %w", config.Name, err), Stop(config.Name, config.Progress))
	}
	return c, nil
}

func create(ctx context.Context, config cluster.Config) (*Cluster, error) {
	want, err := located(ctx, config)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := kubeconfigPath(config.Name)
	if err != nil {
		return nil, err
	}
	err = newProvider(config.Progress).Create(config.Name,
		kindcluster.CreateWithV1Alpha4Config(want), kindcluster.CreateWithKubeconfigPath(kubeconfig), kindcluster.CreateWithWaitForReady(patience),
		kindcluster.CreateWithDisplayUsage(false), kindcluster.CreateWithDisplaySalutation(false))
	return &Cluster{config: config, kubeconfig: kubeconfig, docker: docker}, explain(err)
}

// explain adds what docker said, which kind keeps to itself.
func explain(err error) error {
	if failed := kindexec.RunErrorForError(err); failed != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(failed.Output))
	}
	return err
}

// located is Config for a process that runs anywhere in the repository.
func located(ctx context.Context, config cluster.Config) (*v1alpha4.Cluster, error) {
	want, err := Config(config)
	if err != nil {
		return nil, err
	}
	policy := &want.Nodes[0].ExtraMounts[0].HostPath
	*policy, err = cluster.SourceDir(ctx, "../"+*policy)
	return want, err
}

// finish connects to a cluster and brings it to where those of package cluster are when they have started.
func (c *Cluster) finish(ctx context.Context) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range places(c.config) {
		group.Go(func() error { return c.WaitNode(ctx, p.container) })
	}
	group.Go(func() error { return c.LoadImage(ctx, cluster.WorkloadImage, cluster.WorkloadDir) })
	return group.Wait()
}

func (c *Cluster) connect(ctx context.Context) error {
	admin, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	plane := &plane{cluster: c}
	for path, into := range map[string]*[]byte{"/etc/kubernetes/pki/ca.crt": &plane.cert, "/etc/kubernetes/pki/ca.key": &plane.key} {
		if *into, err = c.exec(ctx, c.plane(), nil, "cat", path); err != nil {
			return err
		}
	}
	c.API, err = cluster.NewAPI(admin, plane)
	return err
}

// Stop removes a cluster and its kubeconfig. Without such a cluster it does nothing.
func Stop(name string, progress io.Writer) error {
	kubeconfig, err := kubeconfigPath(name)
	if err != nil {
		return err
	}
	if err := newProvider(progress).Delete(name, kubeconfig); err != nil {
		return fmt.Errorf("removing cluster %q: %w", name, explain(err))
	}
	if err := os.Remove(kubeconfig); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a kubeconfig: %w", err)
	}
	return nil
}

// Stop is Stop for this cluster.
func (c *Cluster) Stop(context.Context) error { return Stop(c.config.Name, c.config.Progress) }

// Kubeconfig is the path of the admin's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// kubeconfigPath keeps clusters of tests out of the user's own file.
func kubeconfigPath(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("locating a kubeconfig: %w", err)
	}
	return filepath.Join(cache, "podresize", "kind", name+".kubeconfig"), nil
}

func newProvider(progress io.Writer) *kindcluster.Provider {
	if progress == nil {
		progress = io.Discard
	}
	return kindcluster.NewProvider(kindcluster.ProviderWithDocker(), kindcluster.ProviderWithLogger(logger{progress}))
}

// LoadImage builds an image as cluster.WriteImage does and imports it on every node.
func (c *Cluster) LoadImage(ctx context.Context, image, dir string) error {
	work, err := os.MkdirTemp("", "podresize-image-")
	if err != nil {
		return fmt.Errorf("making a directory for image %q: %w", image, err)
	}
	defer os.RemoveAll(work)
	archive := filepath.Join(work, "image.tar")
	if err := cluster.WriteImage(ctx, image, dir, archive); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range places(c.config) {
		group.Go(func() error { return c.importImage(ctx, p.container, archive) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("importing image %q: %w", image, err)
	}
	return nil
}

func (c *Cluster) importImage(ctx context.Context, node, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = c.exec(ctx, node, file, "ctr", "--namespace=k8s.io", "images", "import", "-")
	return err
}

// plane is what an API needs of a control plane. Of the log it reads each byte once.
type plane struct {
	cluster   *Cluster
	cert, key []byte

	mu  sync.Mutex
	log []byte
}

var _ cluster.ControlPlane = (*plane)(nil)

// AuditLog is part of cluster.ControlPlane.
func (p *plane) AuditLog(ctx context.Context) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := "--bytes=+" + strconv.Itoa(len(p.log)+1)
	more, err := p.cluster.exec(ctx, p.cluster.plane(), nil, "tail", from, auditLog)
	p.log = append(p.log, more...)
	return p.log, err
}

// Authority is part of cluster.ControlPlane.
func (p *plane) Authority() (cert, key []byte, err error) { return p.cert, p.key, nil }
