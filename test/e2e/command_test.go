//go:build e2e

package e2e_test

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// What the command ends with: docs/cli.md and cmd/podresize/exit.go have the same numbers.
const (
	exitOK               = 0
	exitOther            = 1
	exitUsage            = 2
	exitPodNotFound      = 3
	exitUnknownContainer = 4
	exitInvalidQuantity  = 5
	exitNoChange         = 6
	exitForbidden        = 7
	exitAgentNotReady    = 8
	exitInfeasible       = 9
	exitRefused          = 10
	exitDeferred         = 11
	exitInterrupted      = 130
)

// outcome is what a command left.
type outcome struct {
	code           int
	stdout, stderr string
}

// command prepares the podresize command as a process of its own, with the login in a kubeconfig and no other settings.
func (e *env) command(t *testing.T, kubeconfig string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), e.podresize, args...)
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + t.TempDir()}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return cmd, &stdout, &stderr
}

// runCommand runs the podresize command to its end.
func (e *env) runCommand(t *testing.T, kubeconfig string, args ...string) outcome {
	t.Helper()
	cmd, stdout, stderr := e.command(t, kubeconfig, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// kubeconfig writes a login of a user, for the namespace of the suites.
func (e *env) kubeconfig(t *testing.T, user string, groups ...string) string {
	t.Helper()
	config := e.as(t, user, groups...)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"e2e": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"e2e": {Cluster: "e2e", AuthInfo: user, Namespace: namespace}},
		CurrentContext: "e2e",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// refusal is a command that must not succeed.
type refusal struct {
	name string
	args string
	// code and reason are those of the answer; a line on stderr begins with the reason, and has all of says.
	code   int
	reason string
	says   []string
	// asked are the requests that the API server refuses: no other is made that would change something.
	asked []string
}

// refuse runs the command as a user of its own in these groups, and insists that it is refused in one line, and that nothing is
// half done.
func (e *env) refuse(t *testing.T, user string, groups []string, pods []*corev1.Pod, c refusal) {
	t.Helper()
	kubeconfig, before := e.kubeconfig(t, user, groups...), e.stateOf(t, pods)
	got := e.runCommand(t, kubeconfig, strings.Fields(c.args)...)
	if got.code != c.code || got.stdout != "" {
		t.Errorf("podresize %s: exit code %d, want %d; stdout %q", c.args, got.code, c.code, got.stdout)
	}
	checkLine(t, got.stderr, c.reason, c.says...)
	equal(t, "pods and kernel afterwards", e.stateOf(t, pods), before)
	equal(t, "requests that would change something", e.changes(t, user), c.asked)
}

// refuseAll does so with cases that are not about rights.
func (e *env) refuseAll(t *testing.T, pods []*corev1.Pod, cases []refusal) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { e.refuse(t, t.Name(), []string{resizers}, pods, c) })
	}
}

// checkLine insists on exactly one line, with the reason in front and everything else that it has to say.
func checkLine(t *testing.T, stderr, reason string, says ...string) {
	t.Helper()
	if !strings.HasSuffix(stderr, "\n") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("stderr is not one line:\n%s", stderr)
	}
	if prefix := "podresize: " + reason + ": "; !strings.HasPrefix(stderr, prefix) {
		t.Errorf("stderr does not begin with %q: %s", prefix, stderr)
	}
	for _, text := range says {
		if !strings.Contains(stderr, text) {
			t.Errorf("stderr does not say %q: %s", text, stderr)
		}
	}
}

// podState is what a command that is refused must leave as it was.
type podState struct {
	Resources map[string]corev1.ResourceRequirements
	Runs      runs
	Kernel    kernel
	// CRIResize is its resourceVersion; empty: there is none.
	CRIResize string
}

func (e *env) stateOf(t *testing.T, pods []*corev1.Pod) map[string]podState {
	t.Helper()
	all := map[string]podState{}
	for _, pod := range pods {
		pod = e.latest(t, pod)
		s := podState{Resources: map[string]corev1.ResourceRequirements{}, Runs: runsOf(pod), Kernel: e.read(t, pod)}
		for _, c := range pod.Spec.Containers {
			s.Resources[c.Name] = c.Resources
		}
		if object := e.criResize(t, pod); object != nil {
			s.CRIResize = object.ResourceVersion
		}
		all[pod.Name] = s
	}
	return all
}
