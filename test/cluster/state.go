package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// StateDir holds one directory per cluster. It exists while a cluster does.
const StateDir = "/var/lib/podresize"

// state is what a cluster writes down so that another process can use it and
// take it down. It is written before what it describes is done.
type state struct {
	// Index is unique among the clusters of this machine: from 1.
	Index int

	// Config is the complete configuration it was started with.
	Config Config

	// Components holds what runs now, by the names of Cluster.Component.
	Components map[string]component

	// Ready says that the start came to its end.
	Ready bool
}

// component is one process of the cluster.
type component struct {
	Kubernetes string          `json:",omitempty"`
	Gates      map[string]bool `json:",omitempty"`
	Process    process
}

// clusterDir is where everything of a cluster is kept.
func clusterDir(name string) string { return filepath.Join(StateDir, name) }

func statePath(name string) string { return filepath.Join(clusterDir(name), "state.json") }

// readState returns fs.ErrNotExist where there is no such cluster.
func readState(name string) (state, error) {
	var s state
	data, err := os.ReadFile(statePath(name))
	if err != nil {
		return state{}, fmt.Errorf("reading the state of cluster %q: %w", name, err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return state{}, fmt.Errorf("reading the state of cluster %q: %w", name, err)
	}
	return s, nil
}

func (s state) write() error { return writeJSON(statePath(s.Config.Name), s) }

// writeJSON replaces a file in one step: a reader sees the old content or the
// new.
func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %q: %w", path, err)
	}
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	return nil
}

// clusterNames lists the clusters of this machine, broken ones too.
func clusterNames() ([]string, error) {
	entries, err := os.ReadDir(StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// node finds a node of the cluster and its position, which its address and
// its pod network follow from.
func (s state) node(name string) (Node, int, error) {
	i := slices.IndexFunc(s.Config.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		names := make([]string, 0, len(s.Config.Nodes))
		for _, n := range s.Config.Nodes {
			names = append(names, n.Name)
		}
		return Node{}, 0, fmt.Errorf("no node %q in cluster %q: it has %s", name, s.Config.Name, strings.Join(names, ", "))
	}
	return s.Config.Nodes[i], i, nil
}
