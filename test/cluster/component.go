package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Component is one process of a cluster, running or not.
type Component struct {
	cluster *Cluster
	key     string
}

// Settings are what a component can be restarted with. Zero fields keep what
// was.
type Settings struct {
	// Kubernetes is another release, for the components that have one.
	Kubernetes string

	// Gates replace all feature gates; an empty map means none.
	Gates map[string]bool
}

// Component returns a process of the cluster: "kubelet" or "containerd" of a
// node, or "kube-apiserver", "kube-controller-manager", "kube-scheduler" or
// "etcd" with an empty node.
func (c *Cluster) Component(program, node string) (*Component, error) {
	key := program
	if node != "" {
		key = node + "/" + program
	}
	s := c.snapshot()
	if _, ok := s.Components[key]; !ok {
		return nil, fmt.Errorf("no component %q in cluster %q: it has %s", key, s.Config.Name,
			strings.Join(slices.Sorted(maps.Keys(s.Components)), ", "))
	}
	return &Component{cluster: c, key: key}, nil
}

// Running says whether the process is there.
func (p *Component) Running() bool {
	return p.cluster.snapshot().Components[p.key].Process.alive()
}

// Log is the path of the file with the process's output, all starts in one.
func (p *Component) Log() string { return p.cluster.snapshot().files().log(p.key) }

// Signal sends a signal, SIGSTOP say, and does not wait for anything.
func (p *Component) Signal(ctx context.Context, sig syscall.Signal) error {
	if node, program, _ := strings.Cut(p.key, "/"); p.inMachine() {
		return p.cluster.signalInMachine(ctx, node, program, sig)
	}
	return p.cluster.snapshot().Components[p.key].Process.signal(sig)
}

// inMachine says whether the process itself is in a virtual machine, and what
// is on this machine only stands for it.
func (p *Component) inMachine() bool {
	node, program, _ := strings.Cut(p.key, "/")
	n, _, err := p.cluster.snapshot().node(node)
	return err == nil && n.VM != "" && (program == "containerd" || program == "kubelet")
}

// Kill is kill -9; it returns when the process is gone.
func (p *Component) Kill(ctx context.Context) error { return p.end(ctx, syscall.SIGKILL) }

// Stop asks the process to end and returns when it is gone. One that does not
// end within 3 s is killed: an API server never does while somebody watches.
func (p *Component) Stop(ctx context.Context) error {
	gentle, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := p.end(gentle, syscall.SIGTERM)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return p.Kill(ctx)
	}
	return err
}

func (p *Component) end(ctx context.Context, sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := p.Signal(ctx, sig); err != nil {
		return err
	}
	if err := p.cluster.snapshot().Components[p.key].Process.wait(ctx); err != nil {
		return fmt.Errorf("ending %q: %w", p.key, err)
	}
	return nil
}

// Start starts the process as it was started last and returns when it is
// healthy: a kubelet when its node is Ready with it. It does nothing to a
// process that runs.
func (p *Component) Start(ctx context.Context) error {
	if p.Running() {
		return nil
	}
	return p.cluster.launch(ctx, p.key)
}

// Restart is Stop and Start.
func (p *Component) Restart(ctx context.Context) error { return p.RestartWith(ctx, Settings{}) }

// RestartWith is Stop, then Start with other settings, which hold from then on.
func (p *Component) RestartWith(ctx context.Context, want Settings) error {
	if want.Kubernetes != "" {
		version, err := ParseVersion(want.Kubernetes)
		if err != nil {
			return err
		}
		want.Kubernetes = version.String()
	}
	if err := p.Stop(ctx); err != nil {
		return err
	}
	err := p.cluster.update(func(s *state) {
		settings := s.Components[p.key]
		if want.Kubernetes != "" {
			settings.Kubernetes = want.Kubernetes
		}
		if want.Gates != nil {
			settings.Gates = want.Gates
		}
		s.Components[p.key] = settings
	})
	if err != nil {
		return err
	}
	return p.Start(ctx)
}

// launchPlan is how a component is started and when it counts as up.
type launchPlan struct {
	argv    []string
	healthy func(context.Context) error
}

// launch starts a component and waits until it is healthy. On a busy machine
// the start of a virtual one takes more than a minute.
func (c *Cluster) launch(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	plan, err := c.plan(ctx, key)
	if err != nil {
		return fmt.Errorf("preparing %q: %w", key, err)
	}
	s := c.snapshot()
	cgroup, err := systemCgroup(s.Config.Name)
	if err != nil {
		return err
	}
	log := s.files().log(key)
	proc, err := spawn(cgroup, log, plan.argv)
	if err != nil {
		return err
	}
	if err := c.setProcess(key, proc); err != nil {
		return err
	}
	err = poll(ctx, 50*time.Millisecond, func() error {
		if !proc.alive() {
			return fatalError{errors.New("the process ended")}
		}
		return plan.healthy(ctx)
	})
	if err != nil {
		return fmt.Errorf("starting %q: %w%s", key, err, logTail(log))
	}
	return nil
}

func (c *Cluster) setProcess(key string, proc process) error {
	return c.update(func(s *state) {
		settings := s.Components[key]
		settings.Process = proc
		s.Components[key] = settings
	})
}

// plan knows how each component is started, with the settings it has now.
func (c *Cluster) plan(ctx context.Context, key string) (launchPlan, error) {
	s := c.snapshot()
	settings := s.Components[key]
	bin, version, err := c.binaries(ctx, settings.Kubernetes)
	if err != nil {
		return launchPlan{}, err
	}
	switch key {
	case "etcd":
		return launchPlan{s.etcdCommand(), s.etcdHealthy}, nil
	case "kube-apiserver":
		return launchPlan{s.apiServerCommand(bin, settings.Gates), s.apiServerHealthy}, nil
	case "kube-controller-manager":
		return launchPlan{s.controllerManagerCommand(bin, settings.Gates), s.controllerManagerHealthy}, nil
	case "kube-scheduler":
		return launchPlan{s.schedulerCommand(bin, settings.Gates), s.schedulerHealthy}, nil
	}
	node, program, _ := strings.Cut(key, "/")
	_, i, err := s.node(node)
	if err != nil {
		return launchPlan{}, err
	}
	switch program {
	case "machine":
		return c.machinePlan(ctx, i)
	case "socket":
		return launchPlan{s.socketCommand(i), func(context.Context) error { return s.socketHealthy(node) }}, nil
	case "mounts":
		return launchPlan{s.mountsCommand(node), func(context.Context) error { return c.snapshot().mountsHealthy(node) }}, nil
	case "containerd":
		argv, err := s.containerdCommand(ctx, i, c.progress)
		return launchPlan{argv, func(ctx context.Context) error { return s.containerdHealthy(ctx, node) }}, err
	default:
		err := errors.Join(s.writeKubelet(node, version, settings.Gates), c.forgetHeartbeat(ctx, node))
		return launchPlan{s.kubeletCommand(i, bin, version), func(ctx context.Context) error { return c.kubeletHealthy(ctx, i) }}, err
	}
}

// binaries is nothing for a component that is no part of Kubernetes.
func (c *Cluster) binaries(ctx context.Context, release string) (string, Version, error) {
	if release == "" {
		return "", Version{}, nil
	}
	version, err := ParseVersion(release)
	if err != nil {
		return "", Version{}, err
	}
	dir, err := Binaries(ctx, version, c.progress)
	return dir, version, err
}
