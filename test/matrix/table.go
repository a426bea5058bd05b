package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

const (
	beginMark = "<!-- table: written by make e2e-matrix -->\n"
	endMark   = "<!-- end of table -->\n"
	head      = "| cluster | API server | nodes | path | verdict | tests | took | commit | date |\n|---|---|---|---|---|---|---|---|---|\n"
)

// table is the file: what surrounds the rows, and the rows by the name of their cluster.
type table struct {
	before, after string
	rows          map[string]string
}

func readTable(path string) (table, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return table{}, fmt.Errorf("reading the table: %w", err)
	}
	before, rest, begins := strings.Cut(string(text), beginMark)
	rows, after, ends := strings.Cut(rest, endMark)
	if !begins || !ends {
		return table{}, fmt.Errorf("%q lacks the lines %q and %q, between which the table goes", path, strings.TrimSpace(beginMark), strings.TrimSpace(endMark))
	}
	t := table{before: before, after: after, rows: map[string]string{}}
	for row := range strings.Lines(strings.TrimPrefix(rows, "\n")) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(row, "| "), " |"); ok && strings.HasPrefix(row, "| ") {
			t.rows[name] = row
		}
	}
	return t, nil
}

// writeRow replaces the row of one cluster. Rows of clusters that are no more are dropped.
func writeRow(path string, s setting.Setting, r result) error {
	t, err := readTable(path)
	if err != nil {
		return err
	}
	t.rows[s.Name] = row(s, r)
	var b strings.Builder
	b.WriteString(t.before + beginMark + "\n" + head)
	for _, name := range setting.All() {
		b.WriteString(t.rows[name])
	}
	b.WriteString("\n" + endMark + t.after)
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

func row(s setting.Setting, r result) string {
	cells := []string{
		s.Name, release(s.Config.Kubernetes, s.Config.Gates), nodes(s), paths(s), r.verdict(), strconv.Itoa(r.tests), r.took.String(), r.commit, r.date,
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func release(version string, gates map[string]bool) string {
	if v, err := cluster.ParseVersion(version); err == nil {
		version = v.String()
	}
	on, given := gates[setting.Gate]
	switch {
	case given && on:
		return version + ", gate on"
	case given:
		return version + ", gate off"
	default:
		return version
	}
}

// nodes are the releases of the nodes: as the control plane's unless it is told otherwise.
func nodes(s setting.Setting) string {
	if len(s.Config.Nodes) == 0 {
		return release(s.Config.Kubernetes, s.Config.Gates)
	}
	all := make([]string, 0, len(s.Config.Nodes))
	for _, n := range s.Config.Nodes {
		version := n.Kubernetes
		if version == "" {
			version = s.Config.Kubernetes
		}
		gates := n.Gates
		if gates == nil && version == s.Config.Kubernetes {
			gates = s.Config.Gates
		}
		all = append(all, release(version, gates)+runtime(n.Runtime))
	}
	return strings.Join(all, "; ")
}

// runtime is what runs containers in the place of Debian's containerd and runc.
func runtime(r cluster.Runtime) string {
	switch r {
	case "":
		return ""
	case cluster.Containerd2:
		return ", containerd " + cluster.Containerd2Version
	default:
		return ", " + string(r)
	}
}

func paths(s setting.Setting) string {
	all := make([]string, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		all = append(all, string(n.Path))
	}
	return strings.Join(all, "; ")
}
