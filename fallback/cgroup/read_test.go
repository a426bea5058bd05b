package cgroup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podresize/podresize/fallback/cgroup"
)

// TestLongFile: files of any length are read to their end.
func TestLongFile(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "pod")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("cgroup.controllers", "cpu memory")
	put("pod/memory.current", "100\n")
	tree, err := cgroup.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	const end = "inactive_file 30\n"
	for _, length := range []int{100, 511, 512, 513, 1024, 5000} { // 512 is what is read at first
		put("pod/memory.stat", strings.Repeat("x", length-len(end)-1)+"\n"+end)
		if used, err := tree.MemoryInUse("/pod"); err != nil || used != 70 {
			t.Errorf("a file of %d bytes: got %d, %v, want 70", length, used, err)
		}
	}
}
