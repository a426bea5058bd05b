package kind_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/yaml"
)

// docker answers what kind asks while it makes nodes and writes kubeadm's configuration on them, which is kept in $ROOT/NODE.
const docker = `#!/bin/sh
echo "$*" >> "$ROOT/log"
case "$*" in
"info --format {{json .}}") echo '{"CgroupVersion":"2","CgroupDriver":"systemd","MemoryLimit":true,"PidsLimit":true,"CPUShares":true}';;
"info -f {{.Driver}}") echo overlay2;;
"info "*) echo '[]';;
"ps "*) cat "$ROOT/nodes";;
"network ls "*) echo kind;;
"inspect --type=image "*) ;;
"inspect --format {{ index .Config.Labels"*"-control-plane") echo control-plane;;
"inspect --format {{ index .Config.Labels"*) echo worker;;
"inspect -f "*) echo 172.18.0.2,;;
"run --name "*) echo "$3" >> "$ROOT/nodes"; for last; do :; done; echo "$last" > "$ROOT/$3.image"; echo "$*" > "$ROOT/$3.run";;
"logs "*) echo "Reached target Multi-User System.";;
*" cat /kind/version") node=$(echo "$*" | tr ' ' '\n' | grep -e -control-plane -e -worker); sed 's/.*:\(v[0-9.]*\)@.*/\1/' "$ROOT/$node.image";;
*" mkdir -p /kind") ;;
*" cp /dev/stdin /kind/kubeadm.conf") node=$(echo "$*" | tr ' ' '\n' | grep -e -control-plane -e -worker); cat > "$ROOT/$node.conf";;
*) echo "not played: $*" >&2; exit 1;;
esac
`

// TestRendered lets kind itself make of some files what it gives to kubeadm on each node: our patches reach what they are for, in each
// version of kubeadm's configuration, and leave kind's own flags there.
func TestRendered(t *testing.T) {
	const log = "audit-log-path=/var/log/kubernetes/audit.log"
	for name, want := range map[string]map[string]rendered{
		"1.29-on":     {"": {Version: "v1beta3", Server: log + " +", Kubelet: "node-ip +"}},
		"1.32-off":    {"": {Version: "v1beta3", Server: log + " -", Kubelet: "node-ip -"}},
		"1.34":        {"": {Version: "v1beta3", Server: log, Kubelet: "node-ip"}},
		"1.35":        {"": {Version: "v1beta3", Server: log, Kubelet: "node-ip", CgroupV1: "may be"}},
		"1.37":        {"": {Version: "v1beta4", Server: log, Kubelet: "node-ip", CgroupV1: "may be"}},
		"mixed-gates": {"": {Version: "v1beta3", Server: log + " +", Kubelet: "node-ip -"}},
		"mixed-nodes": {
			"":        {Version: "v1beta3", Server: log, Kubelet: "node-ip"},
			"worker":  {Version: "v1beta3", Kubelet: "node-ip -"},
			"worker2": {Version: "v1beta3", Kubelet: "node-ip +"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := render(t, name)
			for node, want := range want {
				if node == "" {
					node = "control-plane"
				}
				base := filepath.Join(dir, "e2e-"+strings.ReplaceAll(name, ".", "-")+"-"+node)
				if diff := cmp.Diff(want, parse(t, node, read(t, base+".conf"))); diff != "" {
					t.Errorf("%s (- want, + got):\n%s", node, diff)
				}
				run := read(t, base+".run")
				if mounted := strings.Contains(run, "/kind-configs/audit-policy.yaml:/etc/kubernetes/policies/audit-policy.yaml:ro"); mounted != (node == "control-plane") {
					t.Errorf("%s has the policy: %t: %s", node, mounted, run)
				}
			}
		})
	}
}

// render gives the directory with the files of the nodes.
func render(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range map[string]string{"docker": docker, "nodes": ""} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir("../..")
	t.Setenv("ROOT", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	provider := kindcluster.NewProvider(kindcluster.ProviderWithDocker())
	err := provider.Create("", kindcluster.CreateWithConfigFile("kind-configs/"+name+".yaml"), kindcluster.CreateWithStopBeforeSettingUpKubernetes(true),
		kindcluster.CreateWithKubeconfigPath(filepath.Join(dir, "kubeconfig")), kindcluster.CreateWithRetain(true))
	if err != nil {
		t.Fatalf("%v\n%s", err, read(t, filepath.Join(dir, "log")))
	}
	return dir
}

// rendered is what a node's configuration says of our matters: the gate is + or -.
type rendered struct{ Version, Server, Kubelet, CgroupV1 string }

func parse(t *testing.T, node, text string) rendered {
	t.Helper()
	var r rendered
	for document := range strings.SplitSeq(text, "\n---\n") {
		var d struct {
			APIVersion       string
			Kind             string
			APIServer        struct{ ExtraArgs any }
			NodeRegistration struct{ KubeletExtraArgs any }
			FailCgroupV1     *bool
		}
		if err := yaml.Unmarshal([]byte(document), &d); err != nil {
			t.Fatal(err)
		}
		isPlane := node == "control-plane"
		switch {
		case d.Kind == "ClusterConfiguration" && isPlane:
			r.Version = strings.TrimPrefix(d.APIVersion, "kubeadm.k8s.io/")
			args := flags(t, d.APIServer.ExtraArgs)
			r.Server = strings.TrimSpace("audit-log-path=" + args["audit-log-path"] + " " + sign(args))
		case d.Kind == "InitConfiguration" && isPlane, d.Kind == "JoinConfiguration" && !isPlane:
			r.Version = strings.TrimPrefix(d.APIVersion, "kubeadm.k8s.io/")
			args := flags(t, d.NodeRegistration.KubeletExtraArgs)
			if args["node-ip"] != "" {
				r.Kubelet = strings.TrimSpace("node-ip " + sign(args))
			}
		case d.Kind == "KubeletConfiguration" && d.FailCgroupV1 != nil && !*d.FailCgroupV1:
			r.CgroupV1 = "may be"
		}
	}
	return r
}

// flags are a map up to v1beta3, and a list of names and values since.
func flags(t *testing.T, value any) map[string]string {
	t.Helper()
	out := map[string]string{}
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			out[name], _ = v.(string)
		}
	case []any:
		for _, item := range value {
			pair, _ := item.(map[string]any)
			name, _ := pair["name"].(string)
			out[name], _ = pair["value"].(string)
		}
	default:
		t.Errorf("flags are %v", value)
	}
	return out
}
