//go:build e2e

package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/podresize/podresize/resize"
)

// testCLI: the command does what it says, and says it to people and to programs.
func (e *env) testCLI(t *testing.T) {
	target := e.run(t, pod("cli", container("app", amounts{"100m/200m", "64Mi/128Mi"}), container("log", amounts{"50m/50m", "32Mi/32Mi"})))
	login := e.kubeconfig(t, resizerUser, resizers)

	t.Run("status of a pod as it began", func(t *testing.T) {
		res := result(t, e.runCommand(t, login, "status", "cli", "-o", "json"), exitOK)
		if res.State != resize.StateDone || res.Path != e.path || len(res.Containers) != 2 {
			t.Errorf("status: %+v", res)
		}
	})
	t.Run("set and wait", func(t *testing.T) {
		got := e.runCommand(t, login, "set", "cli", "-c", "app", "--cpu", "300m", "--memory", "96Mi", "--wait")
		checkSuccess(t, got, "e2e/cli", "Done", string(e.path), "300m/600m", "96Mi/192Mi") // limits keep their ratio
		equal(t, "the kernel", e.read(t, target), kernel{"": {358, 65000, 224 * mi}, "app": {307, 60000, 192 * mi}, "log": {51, 5000, 32 * mi}})
	})
	t.Run("set and wait, as JSON", func(t *testing.T) {
		res := result(t, e.runCommand(t, login, "set", "cli", "-c", "log", "--cpu", "100m", "--wait", "-o", "json"), exitOK)
		if res.State != resize.StateDone || res.Reason != resize.ReasonConfirmed || res.Path != e.path {
			t.Errorf("set: %+v", res)
		}
		equal(t, "the kernel", e.read(t, target), kernel{"": {409, 70000, 224 * mi}, "app": {307, 60000, 192 * mi}, "log": {102, 10000, 32 * mi}})
	})
	t.Run("set without waiting", func(t *testing.T) {
		res := result(t, e.runCommand(t, login, "set", "cli", "-c", "app", "--cpu-limit", "400m", "-o", "json"), exitOK)
		if res.State != resize.StateInProgress || res.RetryAfter == 0 {
			t.Errorf("set: %+v", res)
		}
		e.resizeTo(t, e.newResizer(t), target, want{"app": {cpu: "/400m"}}.resources())
	})
	t.Run("refused, as JSON", func(t *testing.T) {
		got := e.runCommand(t, login, "set", "cli", "-c", "app", "--cpu", "64", "-o", "json")
		checkLine(t, got.stderr, "NodeTooSmall", "64")
		if res := result(t, got, exitInfeasible); res.State != resize.StateInfeasible || res.Reason != resize.ReasonNodeTooSmall {
			t.Errorf("set: %+v", res)
		}
	})
	t.Run("status", func(t *testing.T) {
		checkSuccess(t, e.runCommand(t, login, "status", "cli"), "e2e/cli", "300m/400m")
	})
}

// checkSuccess insists on an answer on stdout that says all of this, and on nothing else.
func checkSuccess(t *testing.T, got outcome, says ...string) {
	t.Helper()
	if got.code != exitOK || got.stderr != "" {
		t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
	}
	for _, text := range says {
		if !strings.Contains(got.stdout, text) {
			t.Errorf("stdout does not say %q:\n%s", text, got.stdout)
		}
	}
}

// result reads what -o json printed; a field that resize.Result does not have is an error.
func result(t *testing.T, got outcome, code int) resize.Result {
	t.Helper()
	if got.code != code {
		t.Errorf("exit code %d, want %d: %s", got.code, code, got.stderr)
	}
	if code == exitOK && got.stderr != "" {
		t.Errorf("stderr: %s", got.stderr)
	}
	var res resize.Result
	decoder := json.NewDecoder(strings.NewReader(got.stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&res); err != nil || decoder.More() {
		t.Fatalf("stdout is not one Result (%v):\n%s", err, got.stdout)
	}
	return res
}
