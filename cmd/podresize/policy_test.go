package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const policyText = `apiVersion: podresize.dev/v1alpha1
kind: RolloutPolicy
selector: {exceptNamespaces: [kube-system], pods: {matchLabels: {app: web}}}
regions:
  - name: eu
    inPlace: Observe
    stages: [{notBefore: 2026-03-02T08:00:00Z, inPlace: 50%, cri: On}]
`

func policyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPolicyCheck(t *testing.T) {
	good := policyFile(t, policyText)
	out, err := command(t, "policy", "check", good)
	if err != nil || out != good+" is a valid policy; regions that it names: 1\n" {
		t.Errorf("got %q, %v", out, err)
	}
	out, err = command(t, "policy", "check", policyFile(t, policyText+"killSwitch: {active: true}"))
	if err != nil || !strings.Contains(out, "its kill switch is active") {
		t.Errorf("got %q, %v", out, err)
	}
	bad := policyFile(t, policyText+"default: {inPlace: 5, cri: 6}")
	out, err = command(t, "policy", "check", bad)
	if want := bad + ": default.cri: 6 is no string\n" + bad + ": default.inPlace: 5 is no string\n"; out != want || exitCode(err) != exitInvalidPolicy {
		t.Errorf("got %q, %v", out, err)
	}
}

// TestPolicyExplain without a cluster, and with one.
func TestPolicyExplain(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pod := newPod()
		pod.Labels = map[string]string{"app": "web"}
		switch r.URL.Path {
		case "/api/v1/namespaces/default/pods/web":
			reply(w, http.StatusOK, pod)
		case "/api/v1/nodes/n1":
			reply(w, http.StatusOK, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyRegion: "eu"}}})
		default:
			reply(w, http.StatusNotFound, &metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound})
		}
	}))
	defer server.Close()
	for _, tc := range []struct {
		name string
		args []string
		says []string
		code int
		err  string
	}{
		{name: "before", args: []string{"--uid", "uid-4", "--labels", "app=web", "--region", "eu", "--at", "2026-03-01T08:00:00Z"}, says: []string{
			`InPlace  Observe  Observe  3.16%  region "eu": regions[0].inPlace is Observe`,
			`CRI      Off      Off      3.16%  region "eu": the policy does not name this path, so it is Off`,
		}},
		{name: "in", args: []string{"--uid", "uid-4", "--labels", "app=web", "--region", "eu", "--at", "2026-03-03T08:00:00Z", "--path", "InPlace"}, says: []string{
			`InPlace  On    InPercentage  3.16%  region "eu": regions[0].stages[0].inPlace is 50%, the pod's share is 3.16%`,
		}},
		{name: "left out", args: []string{"--uid", "uid-4", "-n", "kube-system", "--labels", "app=web", "--region", "eu"}, says: []string{"NotSelected"}},
		{name: "for programs", args: []string{"--uid", "uid-10", "--labels", "app=web", "--region", "eu", "--at", "2026-03-03T08:00:00Z", "-o", "json"}, says: []string{
			`"mode": "Off"`, `"reason": "OutsidePercentage"`, `"rule": "regions[0].stages[0].inPlace"`, `"sharePercent": 92.25`, `"path": "CRI"`, `"mode": "On"`,
		}},
		{name: "of the cluster", args: []string{"--pod", "web", "--at", "2026-03-03T08:00:00Z", "--server", server.URL}, says: []string{`region "eu": regions[0].stages[0].cri is On`}},
		{name: "the given region wins", args: []string{"--pod", "web", "--region", "us", "--server", server.URL}, says: []string{`region "us": the policy does not name this path`}},
		{name: "no such pod", args: []string{"--pod", "gone", "--server", server.URL}, code: exitPodNotFound, err: "PodNotFound"},
		{name: "nothing asked", code: exitUsage, err: "Usage: give one of --pod and --uid"},
		{name: "both", args: []string{"--pod", "web", "--uid", "u"}, code: exitUsage, err: "Usage: give one of --pod and --uid"},
		{name: "labels of a pod", args: []string{"--pod", "web", "--labels", "a=b"}, code: exitUsage, err: "Usage: --labels goes with --uid"},
		{name: "no labels", args: []string{"--uid", "u", "--labels", "a"}, code: exitUsage, err: "Usage: --labels: "},
		{name: "path", args: []string{"--uid", "u", "--path", "cri"}, code: exitUsage, err: `Usage: --path: "cri" is neither InPlace nor CRI`},
		{name: "time", args: []string{"--uid", "u", "--at", "monday"}, code: exitUsage, err: `Usage: --at: "monday" is no time such as`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := command(t, append([]string{"policy", "explain", policyFile(t, policyText)}, tc.args...)...)
			if exitCode(err) != tc.code || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Fatalf("got %d, %v; want %d, %s", exitCode(err), err, tc.code, tc.err)
			}
			for _, says := range tc.says {
				if !strings.Contains(out, says) {
					t.Errorf("%q is not in:\n%s", says, out)
				}
			}
		})
	}
}

func TestPolicyUsage(t *testing.T) {
	for text, args := range map[string][]string{
		"Usage: want one policy file, got 0 arguments":                     {"policy", "check"},
		`Usage: unknown command "show": check and explain are known`:       {"policy", "show"},
		`Usage: reading the policy: open /none: no such file or directory`: {"policy", "check", "/none"},
	} {
		if _, err := command(t, args...); exitCode(err) != exitUsage || err.Error() != text {
			t.Errorf("got %v, want %s", err, text)
		}
	}
}

// TestFeatureGates: without the CRI path a node that cannot resize in place is Refused; a gate that is not known warns.
func TestFeatureGates(t *testing.T) {
	s := &apiServer{pod: newPod()}
	s.pod.Status.ContainerStatuses[0].Resources = nil // the kubelet's gate is off
	server := httptest.NewServer(s)
	defer server.Close()
	out, err := command(t, "set", "web", "--cpu", "150m", "--server", server.URL, "--feature-gates", "CRIFallback=false,Nobody=true")
	if exitCode(err) != exitRefused || !strings.Contains(err.Error(), "there is no fallback") {
		t.Errorf("got %v", err)
	}
	if out != `podresize: Warning: feature gate "Nobody" is not known, setting it does nothing`+"\n" {
		t.Errorf("printed %q", out)
	}
	if _, err := command(t, "set", "web", "--feature-gates", "CRIFallback=no"); exitCode(err) != exitUsage {
		t.Errorf("got %v", err)
	}
}
