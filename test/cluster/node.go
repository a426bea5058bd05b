package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pauseImage is the image of every pod's sandbox.
const pauseImage = WorkloadImage

// mountsCommand is the process that keeps the mount namespace of a node. In
// it, the usual directories of a node are that node's own, and all mounts are
// shared among its processes and with nobody else.
func (s state) mountsCommand(node string) []string {
	f := s.files()
	script := `set -e; ` + s.hideUnified(node) + `mount --no-mtab --make-rshared /; while [ $# -gt 0 ]; do mount --no-mtab --bind "$1" "$2"; shift 2; done; exec sleep infinity`
	argv := []string{"unshare", "--mount", "--propagation=private", "/bin/sh", "-c", script, "sh"}
	for _, point := range mountPoints() {
		argv = append(argv, f.covering(node, point), point)
	}
	return argv
}

// hideUnified takes the hierarchy of cgroup v2 from the sight of a node with
// crun: where a machine has hierarchies of both versions, with any controller in
// v2, crun starts no container. The node gets all others, in a directory of its
// own in the place of /sys/fs/cgroup.
func (s state) hideUnified(node string) string {
	if n, _, err := s.node(node); err != nil || n.Runtime != Crun {
		return ""
	}
	const script = `if [ -d /sys/fs/cgroup/unified ]; then mkdir -p %[1]q; mount --no-mtab -t tmpfs -o mode=755 tmpfs %[1]q; cd %[1]q; ` +
		`for h in /sys/fs/cgroup/*; do n=${h##*/}; if [ -L "$h" ]; then cp --no-dereference "$h" "$n"; ` +
		`elif [ "$n" != unified ]; then mkdir "$n"; mount --no-mtab --bind "$h" "$n"; fi; done; ` +
		`cd /; mount --no-mtab --move %[1]q /sys/fs/cgroup; fi; `
	return fmt.Sprintf(script, s.files().node(node, "cgroups"))
}

// covering is the directory that a node sees at a mount point.
func (f files) covering(node, mountPoint string) string {
	if mountPoint == "/run/containerd" {
		return filepath.Dir(f.socket(node))
	}
	return f.node(node, "mounts", mountPoint)
}

// mountsHealthy: the script has mounted everything when it has become sleep.
func (s state) mountsHealthy(node string) error {
	pid := s.Components[node+"/mounts"].Process.PID
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Errorf("looking at the mount namespace of node %q: %w", node, err)
	}
	if string(comm) != "sleep\n" {
		return fmt.Errorf("node %q is still mounting", node)
	}
	return nil
}

// inNode is a command that runs another one on a node: in its mount namespace
// or in its machine.
func (s state) inNode(i int, argv ...string) []string {
	n := s.Config.Nodes[i]
	if n.VM != "" {
		return s.inMachine(i, argv)
	}
	holder := s.Components[n.Name+"/mounts"].Process.PID
	return append([]string{"nsenter", "--target=" + strconv.Itoa(holder), "--mount", "--"}, argv...)
}

func (s state) kubeletCommand(i int, bin string, version Version) []string {
	f, node := s.files(), s.Config.Nodes[i].Name
	argv := []string{
		filepath.Join(bin, "kubelet"),
		"--config=" + f.node(node, "kubelet.json"),
		"--kubeconfig=" + f.login("kubelet-"+node),
		"--hostname-override=" + node,
		"--cert-dir=" + f.node(node, "pki"),
		// Leaves the addresses of the Node object as they are: a kubelet
		// does not take a loopback address for its own.
		"--cloud-provider=external",
	}
	if version.Before(27) {
		argv = append(argv, "--container-runtime-endpoint=unix:///run/containerd/containerd.sock")
	}
	return s.inNode(i, argv...)
}

// kubeletHealthy: it says so, and its node is Ready.
func (c *Cluster) kubeletHealthy(ctx context.Context, i int) error {
	s := c.snapshot()
	if err := getHealth(ctx, "http://"+s.nodeIP(i)+":10248/healthz"); err != nil {
		return err
	}
	return c.nodeReady(ctx, s.Config.Nodes[i].Name)
}

// containerdHealthy: its CRI answers.
func (s state) containerdHealthy(ctx context.Context, node string) error {
	conn, err := s.dial(node)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := runtimeapi.NewRuntimeServiceClient(conn).Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Errorf("asking containerd of node %q: %w", node, err)
	}
	for _, c := range status.GetStatus().GetConditions() {
		// There are more, such as one about what is deprecated. A kubelet minds these two.
		if !c.GetStatus() && (c.GetType() == runtimeapi.RuntimeReady || c.GetType() == runtimeapi.NetworkReady) {
			return fmt.Errorf("containerd of node %q: not %s: %s", node, c.GetType(), c.GetMessage())
		}
	}
	return nil
}

// dial opens a connection to the node's containerd.
func (s state) dial(node string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+s.files().socket(node), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("dialling containerd of node %q: %w", node, err)
	}
	return conn, nil
}

// writeNode makes the directories and the configuration of a node.
func (s state) writeNode(i int) error {
	n, f := s.Config.Nodes[i], s.files()
	dirs := []string{f.node(n.Name, "cni"), f.node(n.Name, "plugins"), f.node(n.Name, "containerd")}
	for _, point := range mountPoints() {
		dirs = append(dirs, f.covering(n.Name, point))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a directory of node %q: %w", n.Name, err)
		}
	}
	if err := writeJSON(f.node(n.Name, "cni", "10-podresize.conflist"), s.cniConfig(i)); err != nil {
		return err
	}
	config := f.node(n.Name, "containerd.toml")
	if err := os.WriteFile(config, []byte(s.containerdConfig(n)), 0o644); err != nil {
		return fmt.Errorf("writing %q: %w", config, err)
	}
	return nil
}

// containerdConfig: the settings about oom scores are for machines that do not
// grant CAP_SYS_RESOURCE. It is of the version that Debian's containerd reads;
// one of version 2 migrates it.
func (s state) containerdConfig(n Node) string {
	f, node := s.files(), n.Name
	return fmt.Sprintf(`version = 2
root = %q
state = "/run/containerd"
oom_score = 0

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = %q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %q
  conf_dir = %q

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = %q
  SystemdCgroup = %t
  Root = "/run/containerd/runc"
`, f.node(node, "containerd"), f.node(node, "opt"), pauseImage, cniPlugins, f.node(node, "cni"), n.Runtime.oci(), n.VM == VMSystemd)
}

// cniConfig is a bridge without an address: a node is not Ready without a pod
// network, but no test needs it to lead anywhere.
func (s state) cniConfig(i int) map[string]any {
	node := s.Config.Nodes[i].Name
	return map[string]any{
		"cniVersion": "0.4.0",
		"name":       "podresize",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": bridge(s.Config.Name, node), "isGateway": false, "ipMasq": false,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": "/var/lib/cni/networks",
				"ranges": []any{[]any{map[string]any{"subnet": s.podSubnet(i)}}},
			},
		}},
	}
}

// writeKubelet writes the configuration that a kubelet of this release with
// these gates starts from.
func (s state) writeKubelet(node string, version Version, gates map[string]bool) error {
	n, i, err := s.node(node)
	if err != nil {
		return err
	}
	config := s.kubeletConfig(i, version)
	if len(gates) > 0 {
		config["featureGates"] = gates
	}
	maps.Copy(config, n.Kubelet)
	return writeJSON(s.files().node(node, "kubelet.json"), config)
}

func (s state) kubeletConfig(i int, version Version) map[string]any {
	f, n := s.files(), s.Config.Nodes[i]
	node := n.Name
	config := map[string]any{
		"apiVersion":         "kubelet.config.k8s.io/v1beta1",
		"kind":               "KubeletConfiguration",
		"address":            s.nodeIP(i),
		"healthzBindAddress": s.nodeIP(i),
		"tlsCertFile":        f.cert("kubelet-" + node),
		"tlsPrivateKeyFile":  f.key("kubelet-" + node),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"x509":      map[string]any{"clientCAFile": f.cert("ca")},
		},
		"cgroupDriver":           cmp.Or(n.VM, VMCgroupfs),
		"failSwapOn":             false,
		"oomScoreAdj":            0,
		"makeIPTablesUtilChains": false,
		"resolvConf":             "",
		"volumePluginDir":        f.node(node, "plugins"),
		// A full disk is the machine's trouble and would only look like ours.
		"evictionHard":                map[string]string{"memory.available": "100Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
		"imageGCHighThresholdPercent": 100,
	}
	if n.VM == "" {
		config["cgroupRoot"] = "/" + cgroupTop + "/" + s.Config.Name + "/" + node
	}
	if !version.Before(27) {
		config["containerRuntimeEndpoint"] = "unix:///run/containerd/containerd.sock"
	}
	if !version.Before(31) {
		config["failCgroupV1"] = false
	}
	return config
}

// verboseInfo is the part of CRI's verbose answers that tells of cgroups.
type verboseInfo struct {
	RuntimeSpec struct {
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
		} `json:"linux"`
	} `json:"runtimeSpec"`
}

func parseCgroupsPath(info map[string]string) (string, error) {
	var v verboseInfo
	if err := json.Unmarshal([]byte(info["info"]), &v); err != nil {
		return "", fmt.Errorf("reading the verbose answer of CRI: %w", err)
	}
	if v.RuntimeSpec.Linux.CgroupsPath == "" {
		return "", fmt.Errorf("the verbose answer of CRI holds no cgroupsPath")
	}
	return expandSlice(v.RuntimeSpec.Linux.CgroupsPath), nil
}

// expandSlice is the cgroup that systemd makes of "SLICE:PREFIX:NAME", which is
// how runc is told of it where systemd is the cgroup driver: a-b.slice is in
// a.slice. Other paths stay what they are.
func expandSlice(path string) string {
	slice, unit, found := strings.Cut(path, ":")
	if !found {
		return path
	}
	prefix, name, _ := strings.Cut(unit, ":")
	dir, parent := "/", ""
	for part := range strings.SplitSeq(strings.TrimSuffix(slice, ".slice"), "-") {
		parent += part
		dir = filepath.Join(dir, parent+".slice")
		parent += "-"
	}
	return filepath.Join(dir, prefix+"-"+name+".scope")
}
