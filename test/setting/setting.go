// Package setting knows the clusters that the suites run on: a release of Kubernetes as it comes, one with the gate of in-place resize
// on or off, one with another container runtime, or one of mixed parts.
package setting

import (
	"errors"
	"fmt"
	"strings"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/cluster"
)

// Gate is the feature gate of resizing in place.
const Gate = "InPlacePodVerticalScaling"

const (
	// HasGateSince is the first minor release that has the gate.
	HasGateSince = 27
	// SubresourceSince is the first one with pods/resize; before, pods are patched themselves.
	SubresourceSince = 32
	// GateOnSince is the first one that has the gate on by default.
	GateOnSince = 33
)

// Setting is what one cluster is to be.
type Setting struct {
	// Name is how it is asked for: "1.31", "1.31:on", "1.26+crun", "mixed:nodes".
	Name string
	// Config starts it.
	Config cluster.Config
	// Minor is the API server's.
	Minor int
	// Nodes are the paths that pods are resized by on its nodes; of a cluster with one node under the name "".
	Nodes []Node
}

// Node is what a node of a Setting offers.
type Node struct {
	Name string
	Path resize.Path
}

// Parse reads "1.31", a release as it comes; "1.31:on" or "1.31:off", with the gate so on control plane and node; "1.26+crun" or
// "1.31+containerd2:off", with a runtime as cluster.ParseRuntime reads it; or the name of a mixed cluster.
func Parse(text string) (Setting, error) {
	for _, m := range mixed() {
		if m.Name == text {
			return m, nil
		}
	}
	name, state, given := strings.Cut(text, ":")
	release, config, err := parseParts(name)
	if err != nil {
		return Setting{}, fmt.Errorf("cluster %q: %w", text, err)
	}
	on := release.Minor >= GateOnSince
	config.Name = clusterName(text)
	if given {
		if state != "on" && state != "off" || release.Before(HasGateSince) {
			return Setting{}, fmt.Errorf("cluster %q: a release is followed by nothing, and from 1.%d on by :on or :off", text, HasGateSince)
		}
		on = state == "on"
		config.Gates = map[string]bool{Gate: on}
	}
	path := resize.PathCRI
	if on {
		path = resize.PathInPlace
	}
	return Setting{Name: text, Config: config, Minor: release.Minor, Nodes: []Node{{Path: path}}}, nil
}

// parseParts reads a release and, after a plus, the runtime of its one node.
func parseParts(text string) (cluster.Version, cluster.Config, error) {
	name, runtime, other := strings.Cut(text, "+")
	release, err := cluster.ParseVersion(name)
	config := cluster.Config{Kubernetes: release.String()}
	if err != nil || !other {
		return release, config, err
	}
	node := cluster.Node{Name: "n1"}
	if runtime == "" {
		return release, config, errors.New("a plus is followed by a runtime")
	}
	node.Runtime, err = cluster.ParseRuntime(runtime)
	config.Nodes = []cluster.Node{node}
	return release, config, err
}

// clusterName is short, as names of clusters must be.
func clusterName(setting string) string {
	return "e2e-" + strings.NewReplacer(".", "-", ":", "-", "+", "-", string(cluster.Containerd2), "c2").Replace(setting)
}

// ParseAll reads several, separated by spaces; "mixed" is all mixed ones.
func ParseAll(text string) ([]Setting, error) {
	var all []Setting
	for name := range strings.FieldsSeq(text) {
		if name == "mixed" {
			all = append(all, mixed()...)
			continue
		}
		s, err := Parse(name)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// All are the names of every setting, oldest release first: with the gate on and off where it is not on by default, then those with
// other runtimes, and the mixed ones.
func All() []string {
	var names []string
	for _, v := range cluster.Versions() {
		name := fmt.Sprintf("1.%d", v.Minor)
		if v.Minor >= HasGateSince && v.Minor < GateOnSince {
			names = append(names, name+":off", name+":on")
		} else {
			names = append(names, name)
		}
	}
	names = append(names, "1.26+crun", "1.26+containerd2", fmt.Sprintf("1.%d+containerd2:off", GateOnSince-1))
	for _, m := range mixed() {
		names = append(names, m.Name)
	}
	return names
}

// Runtime is that of its nodes.
func (s Setting) Runtime() cluster.Runtime {
	if len(s.Config.Nodes) == 0 {
		return ""
	}
	return s.Config.Nodes[0].Runtime
}

// IsMixed says that its parts are not all of one release with one gate.
func (s Setting) IsMixed() bool { return strings.HasPrefix(s.Name, "mixed:") }

func mixed() []Setting {
	on, off := map[string]bool{Gate: true}, map[string]bool{Gate: false}
	return []Setting{
		{
			Name: "mixed:nodes", Minor: 33,
			Config: cluster.Config{Name: "e2e-mixed-nodes", Kubernetes: "1.33", Nodes: []cluster.Node{
				{Name: "off", Kubernetes: "1.31", Gates: off}, {Name: "on", Kubernetes: "1.31", Gates: on}, {Name: "new"},
			}},
			Nodes: []Node{{"off", resize.PathCRI}, {"on", resize.PathInPlace}, {"new", resize.PathInPlace}},
		},
		{
			Name: "mixed:gates", Minor: 28,
			Config: cluster.Config{Name: "e2e-mixed-gates", Kubernetes: "1.28", Gates: on, Nodes: []cluster.Node{{Name: "off", Gates: off}}},
			Nodes:  []Node{{"off", resize.PathCRI}},
		},
		{
			Name: "mixed:upgrade", Minor: 31,
			Config: cluster.Config{Name: "e2e-mixed-upgrade", Kubernetes: "1.31", Gates: on, Nodes: []cluster.Node{{Name: "n1", Gates: on}}},
			Nodes:  []Node{{"n1", resize.PathInPlace}},
		},
		{
			Name: "mixed:hand-over", Minor: 32,
			Config: cluster.Config{Name: "e2e-mixed-hand-over", Kubernetes: "1.32", Gates: on, Nodes: []cluster.Node{{Name: "n1", Gates: off}}},
			Nodes:  []Node{{"n1", resize.PathCRI}},
		},
	}
}
