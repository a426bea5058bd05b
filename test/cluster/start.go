package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Cluster is a cluster that runs. Its methods may be called concurrently.
type Cluster struct {
	*API

	progress io.Writer

	mu    sync.Mutex
	state state
}

// Start brings a cluster up and returns when its nodes are Ready: in seconds,
// or in minutes where binaries have to be built first (see Binaries).
//
// A healthy cluster with the same configuration is returned as it is, with
// whatever runs in it; one with another configuration is an error; a broken
// one is taken down first. Two processes that start the same name at once take
// turns. When Start fails or ctx ends, nothing is left behind.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster needs root: for cgroups, mounts and network")
	}
	if err := provide(ctx, config); err != nil {
		return nil, err
	}
	unlock, err := lockCluster(ctx, config.Name, config.Progress)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c, err := running(ctx, config); c != nil || err != nil {
		return c, err
	}
	if err := down(ctx, config.Name, config.Progress); err != nil {
		return nil, fmt.Errorf("clearing what was there: %w", err)
	}
	c, err := start(ctx, config)
	if err != nil {
		err = fmt.Errorf("starting cluster %q: %w", config.Name, err)
		return nil, errors.Join(err, down(context.WithoutCancel(ctx), config.Name, config.Progress))
	}
	return c, nil
}

// Open returns a cluster that runs already, perhaps started by another process.
func Open(name string) (*Cluster, error) {
	s, err := readState(name)
	if errors.Is(err, os.ErrNotExist) || (err == nil && !s.Ready) {
		names, _ := clusterNames()
		return nil, fmt.Errorf("no cluster %q runs here (there is: %q)", name, names)
	}
	if err != nil {
		return nil, err
	}
	c := &Cluster{progress: io.Discard, state: s}
	return c, c.connect()
}

// Stop is Down for this cluster.
func (c *Cluster) Stop(ctx context.Context) error {
	return Down(ctx, c.Name(), c.progress)
}

// Name is the cluster's name.
func (c *Cluster) Name() string { return c.snapshot().Config.Name }

// Kubeconfig is the path of the admin's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.snapshot().files().kubeconfig() }

// Dir is where everything of the cluster is kept; logs are in Dir()/logs.
func (c *Cluster) Dir() string { return c.snapshot().files().dir }

// Socket is the path of a node's containerd socket on this machine. Inside the
// node, for hostPath volumes, it is /run/containerd/containerd.sock.
func (c *Cluster) Socket(node string) (string, error) {
	s := c.snapshot()
	if _, _, err := s.node(node); err != nil {
		return "", err
	}
	return s.files().socket(node), nil
}

// provide makes sure that everything to run is on this machine.
func provide(ctx context.Context, config Config) error {
	if err := ensurePackages(ctx, packages(), config.Progress); err != nil {
		return err
	}
	if slices.ContainsFunc(config.Nodes, func(n Node) bool { return n.VM != "" }) {
		if err := provideMachines(ctx, config.Progress); err != nil {
			return err
		}
	}
	if err := provideRuntimes(ctx, config.Nodes, config.Progress); err != nil {
		return err
	}
	releases := map[string]bool{config.Kubernetes: true}
	for _, n := range config.Nodes {
		releases[n.Kubernetes] = true
	}
	for _, release := range slices.Sorted(maps.Keys(releases)) {
		version, err := ParseVersion(release)
		if err != nil {
			return err
		}
		if _, err := Binaries(ctx, version, config.Progress); err != nil {
			return err
		}
	}
	return nil
}

// running returns the cluster if it is there and well, and neither cluster nor
// error if it has to be started.
func running(ctx context.Context, config Config) (*Cluster, error) {
	s, err := readState(config.Name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = s.healthy(ctx)
	}
	if err != nil {
		sayf(config.Progress, "Cluster %q is there but broken, so it is started anew: %v", config.Name, err)
		return nil, nil
	}
	if !sameConfig(s.Config, config) {
		return nil, fmt.Errorf("cluster %q runs already with another configuration: take it down or choose another name", config.Name)
	}
	sayf(config.Progress, "Cluster %q runs already", config.Name)
	c := &Cluster{progress: config.Progress, state: s}
	return c, c.connect()
}

// healthy is nil for a cluster that was started to the end and of which
// everything runs.
func (s state) healthy(ctx context.Context) error {
	if !s.Ready {
		return errors.New("its start was interrupted")
	}
	for name, component := range s.Components {
		if !component.Process.alive() {
			return fmt.Errorf("%s does not run", name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.apiServerHealthy(ctx)
}

// sameConfig compares as JSON: one of the two has been through a file.
func sameConfig(a, b Config) bool {
	left, errA := json.Marshal(a)
	right, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(left) == string(right)
}

func start(ctx context.Context, config Config) (*Cluster, error) {
	s, err := enterHost(ctx, config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{progress: config.Progress, state: s}
	what := fmt.Sprintf("Starting cluster %q with Kubernetes %s", config.Name, config.Kubernetes)
	sayf(c.progress, "%s", what)
	return c, step(c.progress, what, func() error { return c.bringUp(ctx) })
}

func (c *Cluster) bringUp(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	nodes := c.snapshot().Config.Nodes
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.launchAll(groupCtx, "etcd", "kube-apiserver") })
	for _, n := range nodes {
		group.Go(func() error { return c.launchAll(groupCtx, append(n.ground(), n.Name+"/containerd")...) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := c.LoadImage(ctx, WorkloadImage, WorkloadDir); err != nil {
		return err
	}
	group, groupCtx = errgroup.WithContext(ctx)
	group.Go(func() error { return c.launchAll(groupCtx, "kube-controller-manager") })
	group.Go(func() error { return c.launchAll(groupCtx, "kube-scheduler") })
	for i, n := range nodes {
		group.Go(func() error {
			if err := c.createNode(groupCtx, i); err != nil {
				return err
			}
			return c.launchAll(groupCtx, n.Name+"/kubelet")
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.update(func(s *state) { s.Ready = true })
}

func (c *Cluster) launchAll(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := c.launch(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes everything that the components find when they start.
func (c *Cluster) prepare() error {
	err := c.update(func(s *state) { s.Components = s.Config.components() })
	if err != nil {
		return err
	}
	s := c.snapshot()
	if err := s.makeCgroups(); err != nil {
		return err
	}
	if err := s.writePKI(); err != nil {
		return err
	}
	if err := s.writeLogins(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.files().etcd(), 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	if err := writeJSON(s.files().auditPolicy(), AuditPolicy()); err != nil {
		return err
	}
	for i := range s.Config.Nodes {
		if err := s.writeNode(i); err != nil {
			return err
		}
	}
	return c.connect()
}

// components are all components with the settings they start with.
func (c Config) components() map[string]component {
	all := map[string]component{"etcd": {}}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		all[name] = component{Kubernetes: c.Kubernetes, Gates: c.Gates}
	}
	for _, n := range c.Nodes {
		for _, key := range append(n.ground(), n.Name+"/containerd") {
			all[key] = component{}
		}
		all[n.Name+"/kubelet"] = component{Kubernetes: n.Kubernetes, Gates: n.Gates}
	}
	return all
}

// ground are the components that the others of a node stand on, in the order
// of their start.
func (n Node) ground() []string {
	if n.VM != "" {
		return []string{n.Name + "/machine", n.Name + "/socket"}
	}
	return []string{n.Name + "/mounts"}
}

// snapshot is the state now, safe to read.
func (c *Cluster) snapshot() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	s.Components = maps.Clone(s.Components)
	return s
}

// update changes the state, here and on disk.
func (c *Cluster) update(change func(*state)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := readState(c.state.Config.Name)
	if err != nil {
		return err
	}
	change(&s)
	c.state = s
	return s.write()
}
