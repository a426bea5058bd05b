//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/podresize/podresize/test/cluster"
)

// keepsMemoryLimit is the minor release of API servers that take no decrease of a memory limit (k/k#133012), so that questions which
// lower one are not asked there. That they say so is a rule of TestConformance.
const keepsMemoryLimit = 33

// TestKubernetes asks every question on every release: -run TestKubernetes/1.26/Resize is one of them.
func TestKubernetes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("a cluster needs root: for cgroups, mounts and network")
	}
	podresize := buildCommand(t)
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := start(t, version, podresize)
			// Without our API type and agent, in this order: the second one brings the type.
			t.Run("NothingInstalled", e.testNothingInstalled)
			t.Run("NoAgent", e.testNoAgent)

			e.deploy(t)
			if e.minor != keepsMemoryLimit {
				t.Run("Resize", e.testResize)
				t.Run("Interrupt", e.testInterrupt)
				t.Run("ContainerRestart", e.testContainerRestart)
			}
			t.Run("AnotherCaller", e.testAnotherCaller)
			t.Run("BadInput", e.testBadInput)
			t.Run("Rights", e.testRights)
			t.Run("CLI", e.testCLI)
			t.Run("PodReplaced", e.testPodReplaced)
			t.Run("LeastPrivilege", e.testLeastPrivilege) // looks back on the others
			t.Run("Reports", e.testReports)               // is refused things on purpose
		})
	}
}

// versions are the releases to run on.
func versions() []string {
	if named := strings.Fields(os.Getenv("PODRESIZE_KUBERNETES")); len(named) > 0 {
		return named
	}
	return []string{"1.26", "1.37"}
}

func clusterName(version string) string { return "e2e-" + strings.ReplaceAll(version, ".", "-") }

// keep says that clusters are to be left running, to look into them.
func keep() bool { return os.Getenv("PODRESIZE_KEEP") != "" }

// buildCommand builds the podresize command and gives its path.
func buildCommand(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "podresize")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./cmd/podresize")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the podresize command: %v\n%s", err, out)
	}
	return binary
}

// TestMain takes the clusters down when the run is interrupted: tests' own clean-up does not run then.
func TestMain(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		takeDown()
		os.Exit(exitInterrupted)
	}()
	os.Exit(m.Run())
}

func takeDown() {
	if keep() {
		return
	}
	names := []string{gateCluster()}
	for _, version := range versions() {
		names = append(names, clusterName(version))
	}
	for _, name := range names {
		if err := cluster.Down(context.Background(), name, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
