package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with testdata/name.golden; -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-update writes it anew): %s", path, diff)
	}
}

// command runs a command line.
func command(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	var buffer bytes.Buffer
	cmd, err := newCommand(&buffer, &buffer)
	if err != nil {
		t.Fatal(err)
	}
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return buffer.String(), err
}

func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"podresize": {"--help"}, "set": {"set", "--help"}, "plan": {"plan", "--help"}, "status": {"status", "--help"},
		"policy": {"policy", "--help"}, "policy-check": {"policy", "check", "--help"}, "policy-explain": {"policy", "explain", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := command(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			// The flags of the client library change with it.
			own, _, _ := strings.Cut(out, "Global Flags:")
			if name == "podresize" {
				own, _, _ = strings.Cut(out, "Flags:")
			}
			golden(t, name, own)
		})
	}
}

// TestUsage: a wrong command line is told in one line, before anybody is asked.
func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		text string
	}{
		{name: "no pod", args: []string{"set", "--cpu", "1"}, code: exitUsage, text: "Usage: want the name of one pod, got 0 arguments"},
		{name: "two pods", args: []string{"status", "a", "b"}, code: exitUsage, text: "Usage: want the name of one pod, got 2 arguments"},
		{name: "unknown flag", args: []string{"set", "web", "--cpus", "1"}, code: exitUsage, text: "Usage: unknown flag: --cpus"},
		{name: "unknown command", args: []string{"resize", "web"}, code: exitUsage, text: `Usage: unknown command "resize": set, plan, status and policy are known`},
		{name: "output", args: []string{"status", "web", "-o", "yaml"}, code: exitUsage, text: `Usage: --output: "yaml" is neither json nor empty`},
		{name: "quantity", args: []string{"set", "web", "--cpu", "lots"}, code: exitInvalidQuantity, text: `InvalidQuantity: --cpu: "lots" is not a quantity such as 500m, 2 or 256Mi`},
		{name: "nothing", args: []string{"plan", "web"}, code: exitNoChange, text: "NoChange: nothing to change"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := command(t, tc.args...)
			if err == nil || exitCode(err) != tc.code || !strings.HasPrefix(err.Error(), tc.text) {
				t.Errorf("got %d, %v; want %d, %s", exitCode(err), err, tc.code, tc.text)
			}
			if out != "" {
				t.Errorf("printed %q", out)
			}
		})
	}
}

// apiServer has one pod "default/web", which it resizes in place.
type apiServer struct {
	pod    *corev1.Pod
	refuse *metav1.Status
	writes int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /api/v1":
		reply(w, http.StatusOK, &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods/resize"}}})
	case "GET /version":
		reply(w, http.StatusOK, map[string]string{"gitVersion": "v1.37.2"})
	case "GET /api/v1/nodes/n1":
		reply(w, http.StatusOK, &corev1.Node{Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.2"}, Allocatable: list("4", "8Gi"),
		}})
	case "GET /api/v1/namespaces/default/pods/web":
		reply(w, http.StatusOK, s.pod)
	case "PATCH /api/v1/namespaces/default/pods/web/resize":
		s.writes++
		if s.refuse != nil {
			reply(w, int(s.refuse.Code), s.refuse)
			return
		}
		patch := &corev1.Pod{}
		_ = json.NewDecoder(r.Body).Decode(patch)
		s.pod.Spec.Containers[0].Resources = patch.Spec.Containers[0].Resources // the test asks for all
		s.pod.Generation++
		reply(w, http.StatusOK, s.pod)
	case "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		reply(w, http.StatusCreated, map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": map[string]bool{"allowed": s.refuse == nil}})
	case "GET /api/v1/namespaces/default/pods/secret":
		reply(w, http.StatusForbidden, &metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: "no"})
	default:
		reply(w, http.StatusNotFound, &metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Message: "not found"})
	}
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func newPod() *corev1.Pod {
	r := corev1.ResourceRequirements{Requests: list("100m", "128Mi"), Limits: list("200m", "256Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1", Generation: 1, ResourceVersion: "1"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Resources: r}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ObservedGeneration: 1, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Resources: &r, AllocatedResources: r.Requests, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

func TestCommands(t *testing.T) {
	all := []string{"--cpu", "150m", "--memory", "192Mi"}
	rbac := &metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: `cannot patch resource "pods/resize"`}
	for _, tc := range []struct {
		name   string
		args   []string
		refuse *metav1.Status
		code   int
		text   string   // what the error says
		says   []string // what is printed
		writes int
	}{
		{name: "status", args: []string{"status", "web"}, says: []string{`default/web on node "n1"`, "InPlace", "Done (Confirmed)", "100m/200m", "128Mi/256Mi"}},
		{name: "status for programs", args: []string{"status", "web", "-o", "json"}, says: []string{`"state": "Done"`}},
		{name: "set", args: append([]string{"set", "web"}, all...), says: []string{"InProgress (Sent)", "150m/300m", "192Mi/384Mi"}, writes: 1},
		{name: "plan", args: append([]string{"plan", "web"}, all...), says: []string{"Path: InPlace", `container "app" gets requests.cpu 150m, requests.memory 192Mi, limits.cpu 300m, limits.memory 384Mi`, `container "app" had requests.cpu 100m`}},
		{name: "plan finds", args: []string{"plan", "web", "--cpu", "100"}, code: exitInfeasible, text: "NodeTooSmall", says: []string{"Infeasible: NodeTooSmall"}},
		{name: "plan without rights", args: append([]string{"plan", "web"}, all...), refuse: rbac, code: exitForbidden, text: "Forbidden", says: []string{`resources: ["pods/resize"]`}},
		{name: "no change", args: []string{"set", "web", "--cpu", "0.1"}, code: exitNoChange, text: `NoChange: container "app" of pod "default/web" already has requests.cpu 100m, limits.cpu 200m`},
		{name: "unknown container", args: []string{"set", "web", "-c", "ap", "--cpu", "1"}, code: exitUnknownContainer, text: `UnknownContainer: pod "default/web" has no container "ap": did you mean "app"?`},
		{name: "infeasible", args: []string{"set", "web", "--cpu-limit", "50m"}, code: exitInfeasible, text: "LimitBelowRequest"},
		{name: "infeasible for programs", args: []string{"set", "web", "--cpu-limit", "50m", "-o", "json"}, code: exitInfeasible, text: "LimitBelowRequest", says: []string{`"reason": "LimitBelowRequest"`}},
		{name: "without rights", args: append([]string{"set", "web"}, all...), refuse: rbac, code: exitForbidden, text: `Forbidden: resizing pod "default/web": add this rule`, writes: 1},
		{name: "pod not found", args: []string{"set", "gone", "--cpu", "1"}, code: exitPodNotFound, text: `PodNotFound: pod "default/gone" does not exist`},
		{name: "pod not readable", args: []string{"set", "secret", "--cpu", "1"}, code: exitForbidden, text: `Forbidden: reading pod "default/secret": add this rule`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &apiServer{pod: newPod(), refuse: tc.refuse}
			server := httptest.NewServer(s)
			defer server.Close()
			out, err := command(t, append(tc.args, "--server", server.URL)...)
			if exitCode(err) != tc.code || err != nil && !strings.HasPrefix(err.Error(), tc.text) {
				t.Fatalf("got %d, %v; want %d, %s", exitCode(err), err, tc.code, tc.text)
			}
			for _, says := range tc.says {
				if !strings.Contains(out, says) {
					t.Errorf("%q is not in:\n%s", says, out)
				}
			}
			if len(tc.says) == 0 && out != "" {
				t.Errorf("printed %q", out)
			}
			if s.writes != tc.writes {
				t.Errorf("%d writes, want %d", s.writes, tc.writes)
			}
		})
	}
}

// TestShow has the CRI path's figures in the table.
func TestShow(t *testing.T) {
	shares, weight := int64(204), int64(8)
	var out bytes.Buffer
	err := show(&out, "", newPod(), resize.Result{
		Path: resize.PathCRI, State: resize.StateDone, Reason: resize.ReasonConfirmed, Message: "words", Warnings: []string{"mind"},
		Pod: &resize.Kernel{CPUWeight: &weight, CPUQuotaMicroseconds: 40000, CPUPeriodMicroseconds: 100000, MemoryLimitBytes: 1 << 20},
		Containers: []resize.ContainerEvidence{
			{Name: "app", Desired: resize.Requirements{Requests: list("200m", "")}, RestartCount: 3, Kernel: &resize.Kernel{CPUShares: &shares, CPUQuotaMicroseconds: -1, MemoryLimitBytes: -1}},
			{Name: "log"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "show", out.String())
}
