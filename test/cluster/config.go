package cluster

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Config says what cluster to start.
type Config struct {
	// Name tells clusters on one machine apart: a short DNS label. Tests that
	// may run at the same time use different names. Empty means "dev".
	Name string

	// Kubernetes is the release of the control plane and the default for the
	// nodes: "1.26" or "v1.26.15". See Versions.
	Kubernetes string

	// Gates are the feature gates of the control plane and the default for
	// the nodes of the same release. A gate unknown to a release keeps its
	// component from starting, and the error says so.
	Gates map[string]bool

	// Nodes are the nodes; none means one node "n1".
	Nodes []Node

	// Progress receives a line per step, and every 15 s in a long one. Nil
	// means silence.
	Progress io.Writer `json:"-"`
}

// Node is one kubelet with its own containerd.
type Node struct {
	// Name is the node's name in the API: a short DNS label.
	Name string

	// Kubernetes is the kubelet's release; empty means the control plane's.
	Kubernetes string `json:",omitempty"`

	// Gates are the kubelet's feature gates. Nil means the control plane's for
	// a kubelet of the same release, and none for another: releases do not
	// know the same gates. An empty map means none.
	Gates map[string]bool

	// VM, if it is not empty, puts the node into a virtual machine with cgroup
	// v2 and systemd, and is the cgroup driver there: VMCgroupfs or VMSystemd.
	// Such a node is slow, and its machine takes 2.5 GB.
	VM string `json:",omitempty"`

	// Runtime is what runs the node's containers. In virtual machines it is
	// always Debian's containerd and runc, which the empty value is.
	Runtime Runtime `json:",omitempty"`

	// Labels are added to the Node object.
	Labels map[string]string `json:",omitempty"`

	// Kubelet overrides fields of the KubeletConfiguration, by their JSON
	// names at top level, as in {"syncFrequency": "2s"}.
	Kubelet map[string]any `json:",omitempty"`
}

// The cgroup drivers of nodes in virtual machines.
const (
	VMCgroupfs = "cgroupfs"
	VMSystemd  = "systemd"
)

// ParseVM reads what kind of nodes to test on: "" is this machine's own, "vm"
// and "vm-systemd" are virtual machines with the cgroup drivers VMCgroupfs and
// VMSystemd. The result is Node.VM.
func ParseVM(kind string) (string, error) {
	known := map[string]string{"": "", "vm": VMCgroupfs, "vm-systemd": VMSystemd}
	vm, found := known[kind]
	if !found {
		return "", fmt.Errorf("no kind of nodes %q: choose vm, vm-systemd or nothing", kind)
	}
	return vm, nil
}

// complete is c with every default filled in, so that two configurations that
// mean the same are equal.
func (c Config) complete() (Config, error) {
	if c.Name == "" {
		c.Name = "dev"
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Gates == nil {
		c.Gates = map[string]bool{}
	}
	version, err := ParseVersion(c.Kubernetes)
	if err != nil {
		return Config{}, err
	}
	c.Kubernetes = version.String()
	if len(c.Nodes) == 0 {
		c.Nodes = []Node{{Name: "n1"}}
	}
	c.Nodes = slices.Clone(c.Nodes)
	for i := range c.Nodes {
		if err := c.completeNode(&c.Nodes[i]); err != nil {
			return Config{}, err
		}
	}
	return c, c.validate()
}

func (c Config) completeNode(n *Node) error {
	if n.Kubernetes == "" {
		n.Kubernetes = c.Kubernetes
	}
	version, err := ParseVersion(n.Kubernetes)
	if err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	n.Kubernetes = version.String()
	switch {
	case n.Gates != nil:
	case n.Kubernetes == c.Kubernetes:
		n.Gates = maps.Clone(c.Gates)
	default:
		n.Gates = map[string]bool{}
	}
	return nil
}

func (c Config) validate() error {
	var errs []error
	if err := validateName("cluster", c.Name); err != nil {
		errs = append(errs, err)
	}
	if len(c.Nodes) > maxNodes {
		errs = append(errs, fmt.Errorf("%d nodes: at most %d", len(c.Nodes), maxNodes))
	}
	seen := map[string]bool{}
	for _, n := range c.Nodes {
		if err := validateName("node", n.Name); err != nil {
			errs = append(errs, err)
		}
		if n.Name == "system" {
			errs = append(errs, errors.New(`node name "system": reserved`))
		}
		if seen[n.Name] {
			errs = append(errs, fmt.Errorf("node name %q: used twice", n.Name))
		}
		seen[n.Name] = true
		if !slices.Contains([]string{"", VMCgroupfs, VMSystemd}, n.VM) {
			errs = append(errs, fmt.Errorf("node %q: vm %q: must be %s or %s", n.Name, n.VM, VMCgroupfs, VMSystemd))
		}
		if _, err := ParseRuntime(string(n.Runtime)); err != nil {
			errs = append(errs, fmt.Errorf("node %q: %w", n.Name, err))
		}
		if n.VM != "" && n.Runtime != "" {
			errs = append(errs, fmt.Errorf("node %q: runtime %q: a node in a virtual machine has Debian's containerd and runc", n.Name, n.Runtime))
		}
	}
	return errors.Join(errs...)
}

// validateName keeps names short enough for what is made of them: socket
// paths of at most 107 bytes and cgroup directories.
func validateName(what, name string) error {
	if !regexp.MustCompile(`^[a-z]([-a-z0-9]{0,18}[a-z0-9])?$`).MatchString(name) {
		return fmt.Errorf("%s name %q: must be a DNS label of at most 20 characters that starts with a letter", what, name)
	}
	return nil
}

// ParseNodes reads nodes as "NAME[=RELEASE][:vm=DRIVER][:runtime=RUNTIME][:GATE=true|false]...",
// separated by commas or spaces, with a RUNTIME as ParseRuntime reads it:
// "n1,n2=1.33,n3=1.31:InPlacePodVerticalScaling=true,n4=1.30:vm=systemd,n5:runtime=crun".
func ParseNodes(text string) ([]Node, error) {
	var nodes []Node
	for _, item := range strings.FieldsFunc(text, separator) {
		head, options, _ := strings.Cut(item, ":")
		name, release, _ := strings.Cut(head, "=")
		node := Node{Name: name, Kubernetes: release}
		if err := node.parseOptions(options); err != nil {
			return nil, fmt.Errorf("node %q: %w", name, err)
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// parseOptions reads what ParseNodes has after the first colon.
func (n *Node) parseOptions(text string) error {
	var gates []string
	var err error
	for option := range strings.SplitSeq(text, ":") {
		if driver, found := strings.CutPrefix(option, "vm="); found {
			n.VM = driver
		} else if runtime, found := strings.CutPrefix(option, "runtime="); found {
			if n.Runtime, err = ParseRuntime(runtime); err != nil {
				return err
			}
		} else if option != "" {
			gates = append(gates, option)
		}
	}
	if len(gates) == 0 {
		return nil
	}
	n.Gates, err = ParseGates(strings.Join(gates, ","))
	return err
}

func separator(r rune) bool { return r == ',' || r == ' ' }

// ParseGates reads feature gates as Kubernetes flags spell them: "A=true,B=false".
func ParseGates(text string) (map[string]bool, error) {
	gates := map[string]bool{}
	for _, item := range strings.FieldsFunc(text, separator) {
		name, value, _ := strings.Cut(item, "=")
		switch value {
		case "true":
			gates[name] = true
		case "false":
			gates[name] = false
		default:
			return nil, fmt.Errorf("feature gate %q: must be NAME=true or NAME=false", item)
		}
	}
	return gates, nil
}

// gateFlag is --feature-gates, or nothing where there are no gates.
func gateFlag(gates map[string]bool) []string {
	items := make([]string, 0, len(gates))
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		items = append(items, fmt.Sprintf("%s=%t", name, gates[name]))
	}
	if len(items) == 0 {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(items, ",")}
}
