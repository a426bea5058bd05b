package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
)

// module is the part of `go mod edit -json` on k8s.io/kubernetes that its
// build depends on.
type module struct {
	Go      string
	Godebug []struct{ Key, Value string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

func parseModule(editJSON []byte) (module, error) {
	var m module
	if err := json.Unmarshal(editJSON, &m); err != nil {
		return module{}, fmt.Errorf("reading the go.mod of k8s.io/kubernetes: %w", err)
	}
	return m, nil
}

// goMod is a go.mod in which `go build k8s.io/kubernetes/cmd/...` builds
// release v. The replacements of a dependency do not count in Go, so
// upstream's have to be repeated, and those that point into its own staging
// tree point at the published modules instead.
func goMod(upstream module, v Version) string {
	var b strings.Builder
	fmt.Fprintf(&b, "module cluster.local/build\n\ngo %s\n\n", upstream.Go)
	for _, g := range upstream.Godebug {
		fmt.Fprintf(&b, "godebug %s=%s\n", g.Key, g.Value)
	}
	fmt.Fprintf(&b, "require k8s.io/kubernetes %s\n\n", v)
	for _, r := range upstream.Replace {
		newPath, newVersion := r.New.Path, r.New.Version
		if strings.HasPrefix(newPath, "./staging/") {
			newPath, newVersion = r.Old.Path, v.staging(r.Old.Path)
		}
		fmt.Fprintf(&b, "replace %s => %s\n", spaced(r.Old.Path, r.Old.Version), spaced(newPath, newVersion))
	}
	return b.String()
}

func spaced(path, version string) string { return strings.TrimSpace(path + " " + version) }
