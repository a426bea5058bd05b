package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

func TestHelp(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	t.Setenv("POD_UID", "")
	t.Setenv("POD_NAMESPACE", "")
	printed, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = printed
	err = run([]string{"--help"})
	os.Stderr = stderr
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(printed.Name())
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "podresize-agent.golden")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-update writes it anew): %s", golden, diff)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--nodename=n1"},
		{"stray"},
		{"--node-name=n1", "--namespaces="},
		{"--node-name=n1", "--namespaces=shop,"},
		{"--node-name=n1", "--namespaces=a/b"},
		{"--node-name=n1", "--pod-selector="},
		{"--node-name=n1", "--pod-selector=a=b=c"},
		{"--sidecar", "--pod-uid=u1", "--pod-namespace="},
		{"--sidecar", "--pod-namespace=shop", "--pod-uid="},
		{"--sidecar", "--pod-uid=u1", "--pod-namespace=shop", "--namespaces=shop"},
		{"--sidecar", "--pod-uid=u1", "--pod-namespace=shop", "--pod-selector=a=b"},
		{"--sidecar=false", "--node-name="},
		{"probe", "heartbeat"},
		{"probe", "--heartbeat=nowhere"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(strings.SplitN(args[len(args)-1], "=", 2)[0], "--")) {
			t.Errorf("%q: got %v", args, err)
		}
	}
}
