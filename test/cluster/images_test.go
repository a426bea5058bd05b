package cluster

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// TestAgentImage: the image has one file, a static binary, and nothing that could run another: no shell, no loader, no library.
func TestAgentImage(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "agent.tar")
	if err := WriteImage(t.Context(), AgentImage, AgentDir, archive); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1.Config{Entrypoint: []string{"/podresize-agent"}}, config.Config); diff != "" {
		t.Error(diff)
	}
	files := filesOf(t, image)
	binary := files["podresize-agent"]
	if len(files) != 1 || binary == nil {
		t.Fatalf("it has %d files", len(files))
	}
	program, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is linked dynamically: it has %s", p.Type)
		}
	}
	if libraries, err := program.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("it needs %q", libraries)
	}
}

// filesOf is what is in the image, in all its layers.
func filesOf(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	content := mutate.Extract(image)
	t.Cleanup(func() {
		if err := content.Close(); err != nil {
			t.Error(err)
		}
	})
	files := map[string][]byte{}
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
