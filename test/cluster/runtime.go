package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Runtime is what runs the containers of a node. Empty, it is Debian's
// containerd and runc; otherwise something takes the place of one of them.
type Runtime string

const (
	// Containerd2 is a containerd of version 2, built from its module once per
	// user, into the user's cache.
	Containerd2 Runtime = "containerd2"

	// Crun is Debian's crun in the place of runc. The node's containerd has it
	// under the name of its default, runc, so that a RuntimeClass with that
	// handler is any node's. Debian's (1.8) takes no container that a containerd
	// of version 2 asks for: it knows the OCI specification up to 1.0.
	Crun Runtime = "crun"
)

// Containerd2Version is the release of Containerd2: the newest of those that
// were there in the module proxy and that Go 1.26 builds.
const Containerd2Version = "v2.4.2"

// ParseRuntime reads a Runtime by its name. Nothing is the empty one.
func ParseRuntime(name string) (Runtime, error) {
	switch r := Runtime(name); r {
	case "", Containerd2, Crun:
		return r, nil
	default:
		return "", fmt.Errorf("no runtime %q: choose %s or %s", name, Crun, Containerd2)
	}
}

// oci is the program that makes containers.
func (r Runtime) oci() string {
	if r == Crun {
		return "crun"
	}
	return "runc"
}

// provideRuntimes makes sure that what the nodes run containers with is on this
// machine.
func provideRuntimes(ctx context.Context, nodes []Node, progress io.Writer) error {
	for _, n := range nodes {
		if n.Runtime == Crun {
			if err := ensurePackages(ctx, map[string]string{"crun": "crun"}, progress); err != nil {
				return err
			}
		}
		if n.Runtime == Containerd2 {
			if _, err := buildContainerd2(ctx, progress); err != nil {
				return err
			}
		}
	}
	return nil
}

// buildContainerd2 returns the directory of the binaries of Containerd2, which
// it builds first if they are not there. Snapshotters that need a library or a
// disk of their own are left out.
func buildContainerd2(ctx context.Context, progress io.Writer) (string, error) {
	programs := []string{"containerd", "containerd-shim-runc-v2"}
	p := product{
		name: "containerd-" + Containerd2Version, files: programs,
		what: fmt.Sprintf("Building containerd %s (once; a minute or two)", Containerd2Version), progress: progress,
	}
	dir, err := p.cached(ctx, func(ctx context.Context, work, out string) error {
		const module = "github.com/containerd/containerd/v2"
		file := filepath.Join(work, "go.mod")
		// With a go line, modules that no program needs are not asked for.
		text := fmt.Sprintf("module cluster.local/build\n\ngo 1.26\n\nrequire %s %s\n", module, Containerd2Version)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing %q: %w", file, err)
		}
		args := []string{
			"build", "-mod=mod", "-buildvcs=false", "-trimpath", "-tags=no_btrfs,no_devmapper,no_tracing,no_zfs",
			"-ldflags=-s -w -X " + module + "/version.Version=" + Containerd2Version, "-o", out,
		}
		for _, program := range programs {
			args = append(args, module+"/cmd/"+program)
		}
		_, err := build{work: work}.goTool(ctx, args...)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("building containerd %s: %w", Containerd2Version, err)
	}
	return dir, nil
}

// containerdCommand runs a node's containerd. One that was built looks for its
// shim in PATH, where it must not find Debian's.
func (s state) containerdCommand(ctx context.Context, i int, progress io.Writer) ([]string, error) {
	n := s.Config.Nodes[i]
	config := "--config=" + s.files().node(n.Name, "containerd.toml")
	if n.Runtime != Containerd2 {
		return s.inNode(i, "containerd", config), nil
	}
	dir, err := buildContainerd2(ctx, progress)
	if err != nil {
		return nil, err
	}
	return s.inNode(i, "env", "PATH="+dir+":"+os.Getenv("PATH"), filepath.Join(dir, "containerd"), config), nil
}
