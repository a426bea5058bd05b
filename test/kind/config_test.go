package kind_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/yaml"

	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/kind"
	"github.com/podresize/podresize/test/setting"
)

// configs is where the files are.
const configs = "../../" + kind.Dir

// want is what a file must say: minor releases with "+" where the gate is switched on, "-" where it is switched off; of the control
// plane, then of each kubelet.
func want() map[string]string {
	files := map[string]string{
		"mixed-nodes.yaml":     "33: 33 31- 31+",
		"mixed-gates.yaml":     "28+: 28-",
		"mixed-upgrade.yaml":   "31+: 31+",
		"mixed-hand-over.yaml": "32+: 32-",
	}
	for minor := 26; minor <= 37; minor++ {
		if minor < 27 || minor > 32 {
			files[fmt.Sprintf("1.%d.yaml", minor)] = fmt.Sprintf("%d: %d", minor, minor)
			continue
		}
		files[fmt.Sprintf("1.%d-on.yaml", minor)] = fmt.Sprintf("%d+: %d+", minor, minor)
		files[fmt.Sprintf("1.%d-off.yaml", minor)] = fmt.Sprintf("%d-: %d-", minor, minor)
	}
	return files
}

// TestConfigs reads every file as kind does.
func TestConfigs(t *testing.T) {
	said := map[string]string{}
	paths, err := filepath.Glob(configs + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if name == "audit-policy.yaml" {
			continue
		}
		var c v1alpha4.Cluster
		decode(t, name, read(t, path), &c)
		if c.Kind != "Cluster" || c.APIVersion != "kind.x-k8s.io/v1alpha4" || c.Name != "e2e-"+strings.NewReplacer(".yaml", "", ".", "-").Replace(name) {
			t.Errorf("%s is %s %s %q", name, c.APIVersion, c.Kind, c.Name)
		}
		said[name] = summary(t, name, c)
	}
	if diff := cmp.Diff(want(), said); diff != "" {
		t.Errorf("what the files say (- want, + got):\n%s", diff)
	}
}

// TestConfigsAreFresh: the files are what the table says now.
func TestConfigsAreFresh(t *testing.T) {
	files, err := kind.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if diff := cmp.Diff(string(content), read(t, filepath.Join(configs, name))); diff != "" {
			t.Errorf("%s is stale: run make generate\n%s", name, diff)
		}
	}
	if entries, err := os.ReadDir(configs); err != nil || len(entries) != len(files) {
		t.Errorf("%d files, %v; want %d", len(entries), err, len(files))
	}
}

// TestWorkersKubelet: what kind cannot do is an error.
func TestWorkersKubelet(t *testing.T) {
	fields := map[string]any{"maxPods": 5}
	config := cluster.Config{Kubernetes: "1.33", Nodes: []cluster.Node{{Name: "a", Kubelet: fields}}}
	if c, err := kind.Config(config); err != nil || !strings.Contains(strings.Join(c.Nodes[0].KubeadmConfigPatches, ""), "maxPods: 5") {
		t.Errorf("control plane: %v", err)
	}
	config.Nodes = append(config.Nodes, cluster.Node{Name: "b", Kubelet: fields})
	if _, err := kind.Config(config); err == nil || !strings.Contains(err.Error(), "maxPods") {
		t.Errorf("worker: %v", err)
	}
}

// TestRuntime: nor has kind another runtime.
func TestRuntime(t *testing.T) {
	s, err := setting.Parse("1.26+crun")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kind.Config(s.Config); err == nil || !strings.Contains(err.Error(), `node "n1": kind runs no crun`) {
		t.Errorf("%v", err)
	}
}

func summary(t *testing.T, name string, c v1alpha4.Cluster) string {
	t.Helper()
	var kubelets []string
	var plane string
	for i, n := range c.Nodes {
		minor := imageMinor(t, name, n.Image)
		p := decodePatches(t, name, n.KubeadmConfigPatches)
		if isPlane := n.Role == v1alpha4.ControlPlaneRole; isPlane != (i == 0) || !isPlane && n.Role != v1alpha4.WorkerRole {
			t.Errorf("%s: node %d has role %q", name, i, n.Role)
		}
		if i == 0 {
			plane = strconv.Itoa(minor) + sign(p.cluster.APIServer.ExtraArgs)
			checkPlane(t, name, n, p.cluster)
			checkKubelet(t, name, minor, p.kubelet)
		} else if p.cluster != nil || p.kubelet != nil {
			t.Errorf("%s: node %d joins, and its patches of the cluster's configuration have no effect", name, i)
		}
		kubelets = append(kubelets, strconv.Itoa(minor)+sign(p.registrations[[]string{"InitConfiguration", "JoinConfiguration"}[min(i, 1)]]))
	}
	return plane + ": " + strings.Join(kubelets, " ")
}

// sign is how want spells the gate in flags.
func sign(flags map[string]string) string {
	switch gates, given := flags["feature-gates"]; {
	case !given:
		return ""
	case gates == "InPlacePodVerticalScaling=true":
		return "+"
	case gates == "InPlacePodVerticalScaling=false":
		return "-"
	default:
		return gates
	}
}

func imageMinor(t *testing.T, name, image string) int {
	t.Helper()
	match := regexp.MustCompile(`^kindest/node:v1\.(\d+)\.\d+@sha256:[0-9a-f]{64}$`).FindStringSubmatch(image)
	if match == nil {
		t.Fatalf("%s: image %q", name, image)
	}
	minor, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return minor
}

// checkPlane: the log that the suites read is written, and its policy is a file that is there.
func checkPlane(t *testing.T, name string, n v1alpha4.Node, c *clusterConfiguration) {
	t.Helper()
	const policy, log = "/etc/kubernetes/policies/audit-policy.yaml", "/var/log/kubernetes/audit.log"
	args := c.APIServer.ExtraArgs
	if args["audit-policy-file"] != policy || args["audit-log-path"] != log || args["audit-log-mode"] != "blocking" {
		t.Errorf("%s: arguments %v", name, args)
	}
	mounted := map[string]bool{}
	for _, v := range c.APIServer.ExtraVolumes {
		mounted[v.MountPath] = v.MountPath == v.HostPath
	}
	if !mounted[filepath.Dir(policy)] || !mounted[filepath.Dir(log)] {
		t.Errorf("%s: volumes %+v", name, c.APIServer.ExtraVolumes)
	}
	if len(n.ExtraMounts) != 1 || n.ExtraMounts[0].ContainerPath != policy {
		t.Fatalf("%s: mounts %+v", name, n.ExtraMounts)
	}
	read(t, "../../"+n.ExtraMounts[0].HostPath)
	if server := sign(args); sign(c.ControllerManager.ExtraArgs) != server || sign(c.Scheduler.ExtraArgs) != server {
		t.Errorf("%s: the gate is not the same in the whole control plane", name)
	}
}

// checkKubelet: kubelets that refuse cgroup v1 are told not to, and no other gets a field that it might not know.
func checkKubelet(t *testing.T, name string, minor int, c *kubeletv1beta1.KubeletConfiguration) {
	t.Helper()
	if told := c != nil && c.FailCgroupV1 != nil && !*c.FailCgroupV1; told != (minor >= 35) {
		t.Errorf("%s: failCgroupV1 is false: %t", name, told)
	}
}

// The types of kubeadm are in no module of their own. These have the fields of its v1beta3 that the files may use, by the same names.
type (
	clusterConfiguration struct {
		Kind              string       `json:"kind"`
		APIServer         planeProgram `json:"apiServer"`
		ControllerManager planeProgram `json:"controllerManager"`
		Scheduler         planeProgram `json:"scheduler"`
	}
	planeProgram struct {
		ExtraArgs    map[string]string `json:"extraArgs"`
		ExtraVolumes []struct {
			Name      string `json:"name"`
			HostPath  string `json:"hostPath"`
			MountPath string `json:"mountPath"`
			ReadOnly  bool   `json:"readOnly"`
			PathType  string `json:"pathType"`
		} `json:"extraVolumes"`
	}
	nodeConfiguration struct {
		Kind             string `json:"kind"`
		NodeRegistration struct {
			KubeletExtraArgs map[string]string `json:"kubeletExtraArgs"`
		} `json:"nodeRegistration"`
	}
)

type patches struct {
	cluster *clusterConfiguration
	kubelet *kubeletv1beta1.KubeletConfiguration
	// registrations are flags of kubelets, by the kind of the patch.
	registrations map[string]map[string]string
}

func decodePatches(t *testing.T, name string, texts []string) patches {
	t.Helper()
	p := patches{registrations: map[string]map[string]string{}}
	for _, text := range texts {
		var of struct{ Kind string }
		if err := yaml.Unmarshal([]byte(text), &of); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch of.Kind {
		case "ClusterConfiguration":
			p.cluster = &clusterConfiguration{}
			decode(t, name, text, p.cluster)
		case "KubeletConfiguration":
			p.kubelet = &kubeletv1beta1.KubeletConfiguration{}
			decode(t, name, text, p.kubelet)
		case "InitConfiguration", "JoinConfiguration":
			var c nodeConfiguration
			decode(t, name, text, &c)
			p.registrations[of.Kind] = c.NodeRegistration.KubeletExtraArgs
		default:
			t.Errorf("%s: a patch of %q", name, of.Kind)
		}
	}
	return p
}

// decode refuses fields that do not exist.
func decode(t *testing.T, name, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
