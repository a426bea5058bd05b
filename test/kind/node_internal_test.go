package kind

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/podresize/podresize/test/cluster"
)

// fakeNode is all nodes of a cluster in one directory: what docker would run in their containers runs here, and finds the files of a
// node below the directory. Programs that only a node has are scripts in its bin.
type fakeNode struct {
	t   *testing.T
	dir string
}

func newFake(t *testing.T, config cluster.Config) (*Cluster, fakeNode) {
	t.Helper()
	config, err := cluster.Complete(config)
	if err != nil {
		t.Fatal(err)
	}
	n := fakeNode{t, t.TempDir()}
	n.program("systemctl", "")
	n.program("ctr", `[ "$2" != images ] || cat > "$ROOT/imported"`)
	return &Cluster{config: config, docker: n.docker}, n
}

// docker takes the place of the program of that name.
func (n fakeNode) docker(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	switch args[0] {
	case "run": // what comes out of an image
		n.log(args)
		return []byte("from the image"), nil
	case "exec":
		args = slices.DeleteFunc(args[1:], func(arg string) bool { return arg == "--privileged" || arg == "--interactive" })
		return n.exec(ctx, stdin, args[0], args[1:])
	}
	return nil, errors.New("not played: docker " + args[0])
}

func (n fakeNode) exec(ctx context.Context, stdin io.Reader, container string, argv []string) ([]byte, error) {
	n.log(append([]string{container}, argv...))
	for i, arg := range argv {
		for _, top := range []string{"/sys/fs/cgroup", "/proc/", "/etc/kubernetes", "/var/log/kubernetes", "/var/lib/kubelet", "/usr/bin/kubelet"} {
			arg = strings.ReplaceAll(arg, top, n.dir+top)
		}
		argv[i] = arg
	}
	path := filepath.Join(n.dir, "bin")
	cmd := exec.CommandContext(ctx, "env", append([]string{"ROOT=" + n.dir, "PATH=" + path + ":" + os.Getenv("PATH")}, argv...)...)
	cmd.Stdin = stdin
	return cmd.Output()
}

// log keeps what was asked for, a command a line.
func (n fakeNode) log(args []string) {
	file, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.WriteString(file, strings.Join(args, " ")+"\n"); err != nil {
		n.t.Fatal(err)
	}
}

func (n fakeNode) logged() []string { return strings.Split(strings.TrimSpace(n.read("log")), "\n") }

func (n fakeNode) program(name, script string) { n.write("bin/"+name, "#!/bin/sh\n"+script+"\n") }

func (n fakeNode) write(path, content string) {
	n.t.Helper()
	path = filepath.Join(n.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func (n fakeNode) read(path string) string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.dir, path))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

// crictl answers as recorded of a node with one pod of one container.
const crictl = `case "$*" in
"pods --state=ready --label=io.kubernetes.pod.uid=u1 --quiet") echo 1f0e;;
"pods "*) ;;
"ps --state=running --pod=1f0e --name=^app$ --quiet") echo 9a8b;;
"inspectp --output=json 1f0e") echo '{"status":{"id":"1f0e","state":"SANDBOX_READY"},"info":{"pid":711,"processStatus":"running"}}';;
"inspect --output=json 9a8b") echo '{"status":{"id":"9a8b"},"info":{"sandboxID":"1f0e","pid":802,"removing":false}}';;
*) echo "not played: $*" >&2; exit 1;;
esac`

func testPod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid}, Spec: corev1.PodSpec{NodeName: "dev-control-plane"}}
}

func TestCgroup(t *testing.T) {
	const slice = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podu1.slice"
	c, n := newFake(t, cluster.Config{Kubernetes: "1.29"})
	n.program("crictl", crictl)
	n.write("proc/711/cgroup", "0::"+slice+"/cri-containerd-1f0e.scope\n")
	n.write("proc/802/cgroup", "0::"+slice+"/cri-containerd-9a8b.scope\n")
	v2 := "sys/fs/cgroup" + slice
	n.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
	n.write(v2+"/cpu.weight", "8\n")
	n.write(v2+"/cpu.max", "max 100000\n")
	n.write(v2+"/memory.max", "max\n")
	n.write(v2+"/cri-containerd-9a8b.scope/cpu.weight", "8\n")
	n.write(v2+"/cri-containerd-9a8b.scope/cpu.max", "20000 100000\n")
	n.write(v2+"/cri-containerd-9a8b.scope/memory.max", "134217728\n")
	for container, want := range map[string]cluster.Cgroup{
		"":    {Path: slice, CPUWeight: 8, CPUQuota: -1, CPUPeriod: 100000, MemoryLimit: -1},
		"app": {Path: slice + "/cri-containerd-9a8b.scope", CPUWeight: 8, CPUQuota: 20000, CPUPeriod: 100000, MemoryLimit: 128 << 20},
	} {
		got, err := c.Cgroup(t.Context(), testPod("u1"), container)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", container, err, diff)
		}
	}
	if got, err := c.Cgroup(t.Context(), testPod("another"), "app"); err == nil {
		t.Errorf("a pod that is not there has %+v", got)
	}
}

func TestCgroupV1(t *testing.T) {
	c, n := newFake(t, cluster.Config{Kubernetes: "1.29"})
	n.write("sys/fs/cgroup/cpu/a/b/cpu.shares", "102\n")
	n.write("sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n")
	n.write("sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n")
	n.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n")
	got, err := c.ReadCgroup(t.Context(), "n1", "/a/b")
	want := cluster.Cgroup{Path: "/a/b", CPUShares: 102, CPUQuota: -1, CPUPeriod: 100000, MemoryLimit: -1}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	n.write("sys/fs/cgroup/cpu/a/b/cpu.stat", "nr_periods 7\nnr_throttled 2\nthrottled_time 5\n")
	n.write("sys/fs/cgroup/cpuacct/a/b/cpuacct.usage", "123456789\n")
	use, err := c.CPUUse(t.Context(), "n1", "/a/b")
	if want := (cluster.CPUUse{Used: 123456 * time.Microsecond, Periods: 7, Throttled: 2}); err != nil || use != want {
		t.Errorf("%+v, %v", use, err)
	}
	if got, err := c.ReadCgroup(t.Context(), "n1", "/gone"); err == nil {
		t.Errorf("a cgroup that is not there has %+v", got)
	}
	for text, want := range map[string]string{
		"12:cpu,cpuacct:/c\n5:cpuset,memory:/m\n0::/u\n": "/m", "1:name=systemd:/s\n0::/u\n": "/u", "1:name=systemd:/s\n": "", "junk": "",
	} {
		if got, err := parseProcCgroup(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestLocated: Docker is told of the audit policy by an absolute path.
func TestLocated(t *testing.T) {
	c, err := located(t.Context(), cluster.Config{Kubernetes: "1.29"})
	if err != nil {
		t.Fatal(err)
	}
	path := c.Nodes[0].ExtraMounts[0].HostPath
	if _, err := os.Stat(path); err != nil || !filepath.IsAbs(path) || filepath.Base(path) != policyFile {
		t.Errorf("%q: %v", path, err)
	}
}

// TestNames are those that kind gives, by what is asked for.
func TestNames(t *testing.T) {
	c, n := newFake(t, cluster.Config{Name: "m", Kubernetes: "1.33", Nodes: []cluster.Node{
		{Name: "off", Kubernetes: "1.31"}, {Name: "on", Kubernetes: "1.31"}, {Name: "new"},
	}})
	for name, want := range map[string]string{"off": "m-worker", "on": "m-worker2", "new": "m-control-plane", "m-worker2": "m-worker2", "": ""} {
		if got := c.NodeName(name); got != want {
			t.Errorf("%q is %q, not %q", name, got, want)
		}
	}
	out, err := c.Exec(t.Context(), "on", "sh", "-c", "echo a; echo b >&2")
	if err != nil || out != "a\nb\n" || !strings.HasPrefix(n.logged()[0], "m-worker2 ") {
		t.Errorf("%q, %v, on %q", out, err, n.logged())
	}
}

// TestAuditLog: what was read is not read again.
func TestAuditLog(t *testing.T) {
	c, n := newFake(t, cluster.Config{Kubernetes: "1.29"})
	p := &plane{cluster: c}
	for _, content := range []string{"one\n", "one\ntwo\n", "one\ntwo\n"} {
		n.write(auditLog, content)
		if got, err := p.AuditLog(t.Context()); err != nil || string(got) != content {
			t.Errorf("%q, %v, not %q", got, err, content)
		}
	}
	want := []string{"1", "5", "9"}
	for i, line := range n.logged() {
		if line != "dev-control-plane tail --bytes=+"+want[i]+" "+auditLog {
			t.Error(line)
		}
	}
}

// apiServer has one Node, whose kubelet reports as soon as it has been started.
func apiServer(t *testing.T, n fakeNode) *cluster.API {
	t.Helper()
	heartbeat := "2026-01-01T00:00:00Z"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz":
		case r.Method == http.MethodPatch:
			heartbeat = "2000-01-01T00:00:00Z"
		case slices.ContainsFunc(n.logged(), func(line string) bool { return strings.HasSuffix(line, " systemctl start kubelet") }):
			heartbeat = "2026-01-01T00:01:00Z"
		}
		w.Header().Set("Content-Type", "application/json")
		node := map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "dev-control-plane"},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}}},
		}
		if err := json.NewEncoder(w).Encode(node); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	api, err := cluster.NewAPI(&rest.Config{Host: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func component(t *testing.T, c *Cluster, program, node string) *Component {
	t.Helper()
	p, err := c.Component(program, node)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestKubelet gets another release and other gates, and then none.
func TestKubelet(t *testing.T) {
	c, n := newFake(t, cluster.Config{Kubernetes: "1.31", Gates: map[string]bool{"A": true}})
	c.API = apiServer(t, n)
	n.program("systemctl", `[ "$1" != is-active ]`)
	const flags = "var/lib/kubelet/kubeadm-flags.env"
	n.write("usr/bin/kubelet", "of 1.31")
	n.write(flags, `KUBELET_KUBEADM_ARGS="--feature-gates=A=true --node-ip=172.18.0.2"`+"\n")
	kubelet := component(t, c, "kubelet", "n1")
	if err := kubelet.RestartWith(t.Context(), cluster.Settings{Kubernetes: "1.33", Gates: map[string]bool{"B": false, "A": true}}); err != nil {
		t.Fatal(err)
	}
	if got := n.read(flags); got != `KUBELET_KUBEADM_ARGS=" --node-ip=172.18.0.2 --feature-gates=A=true,B=false"`+"\n" {
		t.Error(got)
	}
	if got := n.read("usr/bin/kubelet"); got != "from the image" {
		t.Errorf("the kubelet is %q", got)
	}
	if want := "run --rm --entrypoint=cat " + images()[33] + " /usr/bin/kubelet"; !slices.Contains(n.logged(), want) {
		t.Errorf("not %q: %q", want, n.logged())
	}
	if err := kubelet.RestartWith(t.Context(), cluster.Settings{Gates: map[string]bool{}}); err != nil {
		t.Fatal(err)
	}
	if got := n.read(flags); got != `KUBELET_KUBEADM_ARGS=" --node-ip=172.18.0.2"`+"\n" {
		t.Error(got)
	}
}

// TestAPIServer gets another release and other gates while its manifest is not where the kubelet looks.
func TestAPIServer(t *testing.T) {
	const manifest = "etc/kubernetes/manifests/kube-apiserver.yaml"
	text := func(gates, release string) string {
		return "spec:\n  containers:\n  - command:\n    - kube-apiserver\n" + gates + "    - --secure-port=6443\n    image: host/kube-apiserver:" + release + "\n"
	}
	c, n := newFake(t, cluster.Config{Kubernetes: "1.31"})
	c.API = apiServer(t, n)
	n.program("crictl", `! [ -e "$ROOT/`+manifest+`" ] || echo 77aa`)
	n.write(manifest, text("    - --feature-gates=A=true\n", "v1.31.14"))
	server := component(t, c, "kube-apiserver", "")
	if err := server.RestartWith(t.Context(), cluster.Settings{Kubernetes: "1.32", Gates: map[string]bool{"B": true}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text("    - --feature-gates=B=true\n", "v1.32.11"), n.read(manifest)); diff != "" {
		t.Error(diff)
	}
	if got := n.read("imported"); got != "from the image" {
		t.Errorf("imported %q", got)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.read("etc/kubernetes/kube-apiserver.yaml") == "" {
		t.Error("the manifest is gone")
	}
	if _, err := os.Stat(filepath.Join(n.dir, manifest)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stopped, the manifest is still there: %v", err)
	}
}

// TestServices are signalled and stopped through systemd, which leaves the containers of a runtime alone.
func TestServices(t *testing.T) {
	c, n := newFake(t, cluster.Config{Kubernetes: "1.31"})
	if err := component(t, c, "containerd", "n1").Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"dev-control-plane systemctl kill --kill-who=main --signal=9 containerd", "dev-control-plane systemctl stop containerd"}
	if diff := cmp.Diff(want, n.logged()); diff != "" {
		t.Error(diff)
	}
	for _, none := range [][2]string{{"kubelet", ""}, {"kubelet", "n2"}, {"etcd", "n1"}, {"cron", "n1"}} {
		if p, err := c.Component(none[0], none[1]); err == nil {
			t.Errorf("%q is %+v", none, p)
		}
	}
}
