//go:build e2e

package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/setting"
)

// keepsMemoryLimit is the minor release of API servers that take no decrease of a memory limit (k/k#133012), so that questions which
// lower one are not asked there. That they say so is a rule of TestConformance.
const keepsMemoryLimit = 33

// TestKubernetes asks every question on every release: -run TestKubernetes/1.26/Resize is one of them.
func TestKubernetes(t *testing.T) {
	podresize := buildCommand(t)
	for _, s := range settings(t) {
		if s.IsMixed() {
			continue // TestMixed…
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			e := start(t, s, podresize)
			var early besideSidecar
			if e.path == resize.PathCRI {
				early = e.startSidecar(t)
			}
			// Without our API type and agent, in this order: the second one brings the type.
			t.Run("NothingInstalled", e.testNothingInstalled)
			t.Run("NoAgent", e.testNoAgent)

			e.deploy(t)
			if e.path == resize.PathCRI {
				t.Run("Sidecar", early.test)
			}
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
			if e.path == resize.PathCRI {
				t.Run("Faults", e.testFaults)
				t.Run("Weights", e.testWeights)
				t.Run("Quotas", e.testQuotas)
				t.Run("Rows", e.testRows)
				t.Run("StartsSmall", e.testStartsSmall)
				t.Run("AgentPod", e.testAgentPod)
				t.Run("Reboot", e.testReboot)
				if bySystemd() {
					t.Run("Reload", e.testReload)
				}
			}
			t.Run("LiveFigures", e.testLiveFigures)
			t.Run("LeastPrivilege", e.testLeastPrivilege) // looks back on the others
			t.Run("Reports", e.testReports)               // is refused things on purpose
			t.Run("Security", e.testSecurity)             // so is this
			if e.path == resize.PathCRI {
				t.Run("Uninstall", e.testUninstall)
			}
		})
	}
}

// settings are the clusters to run on, as package setting names them, from PODRESIZE_KUBERNETES.
func settings(t *testing.T) []setting.Setting {
	t.Helper()
	all, err := namedSettings()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func namedSettings() ([]setting.Setting, error) {
	return setting.ParseAll(cmp.Or(os.Getenv("PODRESIZE_KUBERNETES"), "1.26 1.37"))
}

// clusterName lets two people run the suites on one machine.
func clusterName(name string) string { return os.Getenv("PODRESIZE_CLUSTER_PREFIX") + name }

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
	all, err := namedSettings()
	if err != nil {
		return // nothing was started
	}
	names := []string{staticName, gateCluster}
	for _, s := range all {
		names = append(names, s.Config.Name)
	}
	for _, name := range names {
		if err := takeDownCluster(context.Background(), clusterName(name), os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
