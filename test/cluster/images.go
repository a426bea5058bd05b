package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sync/errgroup"
)

const (
	// WorkloadImage is on every node from the start. Its program, /workload,
	// does what a test needs of a container: see test/images/workload. Without
	// arguments it waits.
	WorkloadImage = "localhost/podresize-workload:dev"

	// WorkloadDir is its source, as LoadImage takes it.
	WorkloadDir = "images/workload"

	// AgentImage and AgentDir are the node agent's. It is on no node from the
	// start.
	AgentImage = "localhost/podresize-agent:dev"
	AgentDir   = "../cmd/podresize-agent"
)

// LoadImage builds an image as WriteImage does and imports it on every node,
// where a name that is in use moves on. Use it with imagePullPolicy Never or
// IfNotPresent.
func (c *Cluster) LoadImage(ctx context.Context, image, dir string) error {
	work, err := os.MkdirTemp(c.Dir(), "image-")
	if err != nil {
		return fmt.Errorf("making a directory for image %q: %w", image, err)
	}
	defer os.RemoveAll(work)
	archive := filepath.Join(work, "image.tar")
	if err := WriteImage(ctx, image, dir, archive); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range c.snapshot().Config.Nodes {
		group.Go(func() error { return c.importImage(ctx, n.Name, archive) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("importing image %q: %w", image, err)
	}
	return nil
}

// WriteImage builds the Go program in dir as a static binary and packs it as
// the only file of an image with the given name ("localhost/agent:dev"), into
// an archive as "docker save" writes it. The program is /<last element of dir>
// and the image's entrypoint. A relative dir is relative to the directory of
// the test module, so "../cmd/podresize-agent" is the agent.
func WriteImage(ctx context.Context, image, dir, archive string) error {
	archive, err := filepath.Abs(archive) // the build runs in another directory
	if err != nil {
		return fmt.Errorf("locating the archive of image %q: %w", image, err)
	}
	work, err := os.MkdirTemp(filepath.Dir(archive), "build-")
	if err != nil {
		return fmt.Errorf("making a directory for image %q: %w", image, err)
	}
	defer os.RemoveAll(work)
	binary, err := buildProgram(ctx, work, dir)
	if err != nil {
		return fmt.Errorf("building image %q: %w", image, err)
	}
	if err := packImage(image, binary, archive); err != nil {
		return fmt.Errorf("packing image %q: %w", image, err)
	}
	return nil
}

// buildProgram returns the path of the binary.
func buildProgram(ctx context.Context, work, dir string) (string, error) {
	dir, err := SourceDir(ctx, dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(work, filepath.Base(dir))
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", binary, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=linux", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("running go build in %q: %w%s", dir, err, lastLines(string(out), 10))
	}
	return binary, nil
}

// SourceDir finds a directory of this repository from wherever in it the
// process runs.
func SourceDir(ctx context.Context, dir string) (string, error) {
	if filepath.IsAbs(dir) {
		return dir, nil
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w%s", err, lastLines(stderrOf(err), 3))
	}
	root := filepath.Dir(strings.TrimSpace(string(out)))
	if below := filepath.Join(root, "test", "go.mod"); exists(below) {
		root = filepath.Dir(below)
	}
	found := filepath.Join(root, dir)
	if !exists(found) {
		return "", fmt.Errorf("no directory %q: run from within the repository", found)
	}
	return found, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func packImage(image, binary, archive string) error {
	tag, err := name.NewTag(image)
	if err != nil {
		return err
	}
	layer, err := fileLayer(binary)
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := imageConfig(img, filepath.Base(binary))
	if err != nil {
		return err
	}
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, img)
}

// imageConfig makes the program the entrypoint. The platform must be said:
// containerd looks for its own.
func imageConfig(img v1.Image, program string) (*v1.ConfigFile, error) {
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{"/" + program}
	return config, nil
}

// fileLayer is a layer that holds one executable file at its root.
func fileLayer(file string) (v1.Layer, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	header := &tar.Header{Name: filepath.Base(file), Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
}

func (c *Cluster) importImage(ctx context.Context, node, archive string) error {
	socket, err := c.Socket(node)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("on node %q: %w%s", node, err, lastLines(string(out), 5))
	}
	return nil
}
