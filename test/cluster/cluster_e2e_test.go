//go:build e2e

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/podresize/podresize/test/cluster"
)

// TestCluster runs the releases under test side by side, the last with a node
// of the first one's kubelet too, does to them what suites will do, and checks
// that nothing is left. In virtual machines it runs them one after the other,
// with one node each.
func TestCluster(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
	before := snapshot(t)
	t.Cleanup(func() {
		if left := snapshot(t).Since(before); len(left) > 0 {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
	})
	all := releases()
	vm := nodeVM(t)
	t.Run("group", func(t *testing.T) {
		for i, name := range all {
			release, runtime := parseRelease(t, name)
			config := cluster.Config{Name: fmt.Sprintf("test-%d", i), Kubernetes: release, Nodes: []cluster.Node{{Name: "n1", VM: vm, Runtime: runtime}}}
			if i == len(all)-1 && vm == "" {
				oldest, _ := parseRelease(t, all[0])
				config.Nodes = []cluster.Node{
					{Name: "n1", Runtime: runtime, Labels: map[string]string{"topology.kubernetes.io/region": "west"}},
					{Name: "old", Kubernetes: oldest, Kubelet: map[string]any{"syncFrequency": "2s"}},
				}
			}
			t.Run(name, func(t *testing.T) {
				if vm == "" {
					t.Parallel()
				}
				testCluster(t, config)
			})
		}
	})
}

// releases are those under test, oldest first: of what the suites are to run
// on ("1.26 1.31:on 1.26+crun mixed") those that are named, with their runtimes
// and without their gates.
func releases() []string {
	var list []string
	for setting := range strings.FieldsSeq(os.Getenv("PODRESIZE_KUBERNETES")) {
		if release, _, _ := strings.Cut(setting, ":"); release != "mixed" && !slices.Contains(list, release) {
			list = append(list, release)
		}
	}
	if len(list) == 0 {
		return []string{"1.26", "1.37"}
	}
	return list
}

// parseRelease reads "1.26" and "1.26+crun".
func parseRelease(t *testing.T, name string) (string, cluster.Runtime) {
	t.Helper()
	release, runtime, _ := strings.Cut(name, "+")
	parsed, err := cluster.ParseRuntime(runtime)
	if err != nil {
		t.Fatal(err)
	}
	return release, parsed
}

// nodeVM is the kind of the nodes under test.
func nodeVM(t *testing.T) string {
	t.Helper()
	vm, err := cluster.ParseVM(os.Getenv("PODRESIZE_NODE"))
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

func testCluster(t *testing.T, config cluster.Config) {
	t.Helper()
	ctx := t.Context()
	config.Progress = t.Output()
	c, err := cluster.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 { // it may be stopped again
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	if again, err := cluster.Start(ctx, config); err != nil || again.Kubeconfig() != c.Kubeconfig() {
		t.Errorf("starting it again: %v", err)
	}
	other := config
	other.Gates = map[string]bool{"AllAlpha": false}
	if _, err := cluster.Start(ctx, other); err == nil || !strings.Contains(err.Error(), "another configuration") {
		t.Errorf("starting it with other gates: %v", err)
	}
	checkVersions(t, c, config)
	for _, n := range config.Nodes {
		checkNode(t, c, n)
	}
	checkManifests(t, c, len(config.Nodes))
	checkExec(t, c)
	checkAudit(t, c)
	checkControlPlane(t, c)
}

// checkVersions: every component says the release that was asked for.
func checkVersions(t *testing.T, c *cluster.Cluster, config cluster.Config) {
	t.Helper()
	info, err := c.Client().Discovery().ServerVersion()
	if err != nil || !strings.HasPrefix(info.GitVersion, "v"+config.Kubernetes+".") {
		t.Errorf("API server says version %v, %v", info, err)
	}
	for _, want := range config.Nodes {
		node, err := c.Client().CoreV1().Nodes().Get(t.Context(), want.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		release := want.Kubernetes
		if release == "" {
			release = config.Kubernetes
		}
		if got := node.Status.NodeInfo.KubeletVersion; !strings.HasPrefix(got, "v"+release+".") {
			t.Errorf("kubelet of %s says version %s", want.Name, got)
		}
		for key, value := range want.Labels {
			if node.Labels[key] != value {
				t.Errorf("node %s has labels %v", want.Name, node.Labels)
			}
		}
	}
}

// checkNode runs a pod on a node and keeps it running while its kubelet and
// its containerd go and come.
func checkNode(t *testing.T, c *cluster.Cluster, node cluster.Node) {
	t.Helper()
	ctx := t.Context()
	pod, err := c.RunPod(ctx, testPod(node.Name))
	if err != nil {
		t.Fatal(err)
	}
	checkFigures(t, c, pod)
	if err := waitLog(ctx, c, pod, "holding 1048576"); err != nil {
		t.Error(err)
	}
	for _, program := range []string{"kubelet", "containerd"} {
		p, err := c.Component(program, node.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Restart(ctx); err != nil {
			t.Error(err)
		}
		if err := p.Kill(ctx); err != nil || p.Running() {
			t.Errorf("killing %s: running %t, %v", program, p.Running(), err)
		}
		if err := p.Start(ctx); err != nil {
			t.Error(err)
		}
	}
	checkFigures(t, c, pod)
	now, err := c.Client().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod did not outlive its kubelet and containerd: %v, %v", now.Status, err)
	}
	checkCommand(t, c, node.Name)
	if err := c.KillContainer(ctx, pod, "app"); err != nil {
		t.Error(err)
	}
	if _, err := c.WaitPod(ctx, pod.Namespace, pod.Name, runsAgain); err != nil {
		t.Error(err)
	}
	if err := c.DeletePod(ctx, pod); err != nil {
		t.Error(err)
	}
}

func runsAgain(pod *corev1.Pod) error {
	if s := pod.Status.ContainerStatuses[0]; s.RestartCount != 1 || !s.Ready {
		return fmt.Errorf("%d restarts, ready %t", s.RestartCount, s.Ready)
	}
	return nil
}

// checkCommand: commands run on the node itself, and their failures are told.
func checkCommand(t *testing.T, c *cluster.Cluster, node string) {
	t.Helper()
	out, err := c.Exec(t.Context(), node, "ls", "/run/containerd/containerd.sock")
	if err != nil || out != "/run/containerd/containerd.sock\n" {
		t.Errorf("looking for the node's containerd: %q, %v", out, err)
	}
	_, err = c.Exec(t.Context(), node, "ls", "/nowhere")
	if err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a command that fails: %v", err)
	}
}

func checkFigures(t *testing.T, c *cluster.Cluster, pod *corev1.Pod) {
	t.Helper()
	for _, container := range []string{"", "app"} {
		got, err := c.Cgroup(t.Context(), pod, container)
		if err != nil {
			t.Fatal(err)
		}
		if got.CPUWeight != 8 && got.CPUShares != 204 { // v2, v1
			t.Errorf("%q has weight %d and shares %d, not 8 or 204", container, got.CPUWeight, got.CPUShares)
		}
		if got.CPUQuota != 20000 || got.CPUPeriod != 100000 || got.MemoryLimit != 64<<20 {
			t.Errorf("%q has %+v", container, got)
		}
	}
}

// checkManifests: a program of ours runs on every node, from its image and its
// manifests, and reaches the API server with the rights of its service account.
func checkManifests(t *testing.T, c *cluster.Cluster, nodes int) {
	t.Helper()
	ctx := t.Context()
	if err := c.LoadImage(ctx, "localhost/incluster:dev", "cluster/testdata/incluster"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be applied again
		if err := c.Apply(ctx, "cluster/testdata/manifests"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.WaitDaemonSet(ctx, "incluster", "incluster"); err != nil {
		t.Fatal(err)
	}
	pods, err := c.Client().CoreV1().Pods("incluster").List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) != nodes {
		t.Fatalf("%d pods on %d nodes, %v", len(pods.Items), nodes, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if err := waitLog(ctx, c, pod, "pods seen: "); err != nil {
			t.Errorf("on node %s: %v", pod.Spec.NodeName, err)
		}
		if !strings.HasPrefix(pod.Status.PodIP, "127.") {
			t.Errorf("a pod in the network of its node has address %s", pod.Status.PodIP)
		}
	}
}

// checkExec runs a command in a container through API server and kubelet.
func checkExec(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	pod, err := c.RunPod(t.Context(), testPod(""))
	if err != nil {
		t.Fatal(err)
	}
	request := c.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"/workload", "exit", "3", "0s"}, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(c.RESTConfig(), http.MethodPost, request.URL())
	if err != nil {
		t.Fatal(err)
	}
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stderr: t.Output()})
	var exit exec.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("exec of a command that ends with code 3: %v", err)
	}
}

// checkAudit: requests on a pod are counted by user, and dry-runs are not.
func checkAudit(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx := t.Context()
	pod, err := c.RunPod(ctx, testPod(""))
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.RESTConfigAs("jane", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	jane := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(pod.Namespace)
	patch := []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)
	for _, options := range []metav1.PatchOptions{{}, {DryRun: []string{"All"}}} {
		if _, err := jane.Patch(ctx, pod.Name, types.MergePatchType, patch, options); err != nil {
			t.Fatal(err)
		}
	}
	events, err := c.PodRequests(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, e.User.Username+" "+e.Verb+" "+http.StatusText(e.ResponseStatus.Code))
	}
	if len(got) != 1 || got[0] != "jane patch OK" {
		t.Errorf("requests on the pod: %q", got)
	}
	nobody, err := c.RESTConfigAs("nobody")
	if err != nil {
		t.Fatal(err)
	}
	_, err = kubernetes.NewForConfigOrDie(nobody).CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights lists pods: %v", err)
	}
}

// checkControlPlane: every component can be restarted and the cluster still
// runs pods.
func checkControlPlane(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx := t.Context()
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		p, err := c.Component(program, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Restart(ctx); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.RunPod(ctx, testPod("")); err != nil {
		t.Error(err)
	}
	server, err := c.Component("kube-apiserver", "")
	if err != nil {
		t.Fatal(err)
	}
	err = server.RestartWith(ctx, cluster.Settings{Gates: map[string]bool{"NoSuchGate": true}})
	if err == nil || !strings.Contains(err.Error(), "NoSuchGate") || server.Running() {
		t.Errorf("restarting with a gate that does not exist: %v", err)
	}
	if err := server.RestartWith(ctx, cluster.Settings{Gates: map[string]bool{"AllAlpha": false}}); err != nil {
		t.Error(err)
	}
}

// waitLog reads the log of a container through the API server and the kubelet.
func waitLog(ctx context.Context, c *cluster.Cluster, pod *corev1.Pod, want string) error {
	var err error
	for range 50 {
		var log []byte
		log, err = c.Client().CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && strings.Contains(string(log), want) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("the log is %q, without %q", log, want)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// testPod is a Guaranteed pod; with an empty node the scheduler chooses.
func testPod(node string) *corev1.Pod {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	resources[corev1.ResourceCPU] = resource.MustParse("200m")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Namespace: "suite"},
		Spec: corev1.PodSpec{
			NodeName: node,
			Containers: []corev1.Container{{
				Name: "app", Image: cluster.WorkloadImage, ImagePullPolicy: corev1.PullNever,
				Args:      []string{"alloc", "1Mi"},
				Resources: corev1.ResourceRequirements{Requests: resources, Limits: resources},
			}},
		},
	}
}

func snapshot(t *testing.T) cluster.Snapshot {
	t.Helper()
	shot, err := cluster.TakeSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	return shot
}
