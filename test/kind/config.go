package kind

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"

	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

// images are the node images by minor release, by the digests that the release notes of kind list.
func images() map[int]string {
	return map[int]string{
		26: "kindest/node:v1.26.15@sha256:c79602a44b4056d7e48dc20f7504350f1e87530fe953428b792def00bc1076dd",
		27: "kindest/node:v1.27.16@sha256:2d21a61643eafc439905e18705b8186f3296384750a835ad7a005dceb9546d20",
		28: "kindest/node:v1.28.15@sha256:a7c05c7ae043a0b8c818f5a06188bc2c4098f6cb59ca7d1856df00375d839251",
		29: "kindest/node:v1.29.14@sha256:8703bd94ee24e51b778d5556ae310c6c0fa67d761fae6379c8e0bb480e6fea29",
		30: "kindest/node:v1.30.13@sha256:397209b3d947d154f6641f2d0ce8d473732bd91c87d9575ade99049aa33cd648",
		31: "kindest/node:v1.31.14@sha256:6f86cf509dbb42767b6e79debc3f2c32e4ee01386f0489b3b2be24b0a55aac2b",
		32: "kindest/node:v1.32.11@sha256:5fc52d52a7b9574015299724bd68f183702956aa4a2116ae75a63cb574b35af8",
		33: "kindest/node:v1.33.12@sha256:3f5c8443c620245e4d355cfe09e96a91ead32ceaa569d3f1ca9edf0cb2fe2ff4",
		34: "kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d",
		35: "kindest/node:v1.35.8@sha256:07b2536e30b803ed61d1677a79df6115f798ce64c80f9e22f6ed45afd09323c0",
		36: "kindest/node:v1.36.4@sha256:099e049362a1526b2db71494e1947aae99bd16290d7c895f2b7ea312e3cbfaed",
		37: "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5",
	}
}

// imageOf is the node image of the minor release that a release is of. Its patch is another one than that of package cluster.
func imageOf(release string) (string, error) {
	version, err := cluster.ParseVersion(release)
	if err != nil {
		return "", err
	}
	image, found := images()[version.Minor]
	if !found {
		return "", fmt.Errorf("no node image of Kubernetes %s here", release)
	}
	return image, nil
}

const (
	// Dir is where the files of Files are kept, below the root of the repository.
	Dir = "kind-configs"

	policyFile = "audit-policy.yaml"
	// The places of the policy and of the log, the same on the node and in the API server's container.
	policyDir = "/etc/kubernetes/policies"
	logDir    = "/var/log/kubernetes"
	auditLog  = logDir + "/audit.log"

	// refusesCgroupV1 is the first minor release whose kubelet does not start on cgroup v1 unless it is told to.
	refusesCgroupV1 = 35
)

// place is a node and the container that is to be it.
type place struct {
	cluster.Node
	container string
}

// places are all nodes, the control plane's first: that one is the first node of its release too, since kind runs a kubelet there. The
// names are those that kind gives.
func places(config cluster.Config) []place {
	nodes := slices.Clone(config.Nodes)
	plane := cluster.Node{Kubernetes: config.Kubernetes, Gates: config.Gates}
	if i := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.Kubernetes == config.Kubernetes }); i >= 0 {
		plane = nodes[i]
		nodes = slices.Delete(nodes, i, i+1)
	}
	all := []place{{plane, config.Name + "-control-plane"}}
	for i, n := range nodes {
		name := config.Name + "-worker"
		if i > 0 {
			name += strconv.Itoa(i + 1)
		}
		all = append(all, place{n, name})
	}
	return all
}

// Config is what kind makes such a cluster from. The path of the audit policy in it is relative to the root of the repository.
//
// A gate is a flag of the components that are to have it, so that none gets to a kubelet that does not know it: all kubelets have one
// configuration, the control plane's, which kubeadm hands to nodes that join.
func Config(config cluster.Config) (*v1alpha4.Cluster, error) {
	config, err := cluster.Complete(config)
	if err != nil {
		return nil, err
	}
	out := &v1alpha4.Cluster{TypeMeta: v1alpha4.TypeMeta{APIVersion: "kind.x-k8s.io/v1alpha4", Kind: "Cluster"}, Name: config.Name}
	for i, p := range places(config) {
		node, err := p.config(config, i == 0)
		if err != nil {
			return nil, fmt.Errorf("node %q: %w", p.Name, err)
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out, nil
}

func (p place) config(config cluster.Config, plane bool) (v1alpha4.Node, error) {
	image, err := imageOf(p.Kubernetes)
	if err != nil {
		return v1alpha4.Node{}, err
	}
	if p.Runtime != "" {
		return v1alpha4.Node{}, fmt.Errorf("kind runs no %s: its node images have the containerd and runc that they have", p.Runtime)
	}
	if p.VM != "" {
		return v1alpha4.Node{}, errors.New("kind runs no nodes in virtual machines")
	}
	node := v1alpha4.Node{Role: v1alpha4.WorkerRole, Image: image, Labels: p.Labels}
	var patches []any
	if plane {
		node.Role = v1alpha4.ControlPlaneRole
		node.ExtraMounts = []v1alpha4.Mount{{HostPath: Dir + "/" + policyFile, ContainerPath: policyDir + "/" + policyFile, Readonly: true}}
		patches = append(patches, planePatch(config.Gates))
		if kubelet := p.kubelet(); len(kubelet) > 0 {
			patches = append(patches, kubeletConfiguration{Kind: "KubeletConfiguration", Fields: kubelet})
		}
	} else if len(p.Kubelet) > 0 {
		return v1alpha4.Node{}, fmt.Errorf("fields %q of its kubelet: kind gives all kubelets the configuration of the control plane's",
			slices.Sorted(maps.Keys(p.Kubelet)))
	}
	if len(p.Gates) > 0 {
		patches = append(patches, registration(plane, p.Gates))
	}
	node.KubeadmConfigPatches, err = encodeAll(patches)
	return node, err
}

// kubelet is what a kubelet's configuration has besides what kind writes into it.
func (p place) kubelet() map[string]any {
	fields := maps.Clone(p.Kubelet)
	if version, err := cluster.ParseVersion(p.Kubernetes); err == nil && !version.Before(refusesCgroupV1) {
		if fields == nil {
			fields = map[string]any{}
		}
		fields["failCgroupV1"] = false
	}
	return fields
}

// The patches of kubeadm's configuration, as versions before v1beta4 spell flags. They name no version, so that kind fits them to the
// one that it writes; see pkg/internal/patch in kind.
type (
	clusterConfiguration struct {
		Kind              string       `yaml:"kind"`
		APIServer         planeProgram `yaml:"apiServer"`
		ControllerManager planeProgram `yaml:"controllerManager,omitempty"`
		Scheduler         planeProgram `yaml:"scheduler,omitempty"`
	}
	planeProgram struct {
		ExtraArgs    map[string]string `yaml:"extraArgs,omitempty"`
		ExtraVolumes []hostPath        `yaml:"extraVolumes,omitempty"`
	}
	hostPath struct {
		Name      string `yaml:"name"`
		HostPath  string `yaml:"hostPath"`
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly,omitempty"`
		PathType  string `yaml:"pathType"`
	}
	nodeConfiguration struct {
		Kind             string           `yaml:"kind"`
		NodeRegistration nodeRegistration `yaml:"nodeRegistration"`
	}
	nodeRegistration struct {
		KubeletExtraArgs map[string]string `yaml:"kubeletExtraArgs"`
	}
	kubeletConfiguration struct {
		Kind   string         `yaml:"kind"`
		Fields map[string]any `yaml:",inline"`
	}
)

// planePatch lets the API server log as the suites read it, and sets gates of the control plane.
func planePatch(gates map[string]bool) clusterConfiguration {
	server := gateArgs(gates)
	if server == nil {
		server = map[string]string{}
	}
	server["audit-policy-file"] = policyDir + "/" + policyFile
	server["audit-log-path"] = auditLog
	server["audit-log-mode"] = "blocking"
	return clusterConfiguration{
		Kind: "ClusterConfiguration",
		APIServer: planeProgram{ExtraArgs: server, ExtraVolumes: []hostPath{
			{Name: "audit-policy", HostPath: policyDir, MountPath: policyDir, ReadOnly: true, PathType: "Directory"},
			{Name: "audit-log", HostPath: logDir, MountPath: logDir, PathType: "DirectoryOrCreate"},
		}},
		ControllerManager: planeProgram{ExtraArgs: gateArgs(gates)},
		Scheduler:         planeProgram{ExtraArgs: gateArgs(gates)},
	}
}

// registration sets gates of a kubelet.
func registration(plane bool, gates map[string]bool) nodeConfiguration {
	kind := "JoinConfiguration"
	if plane {
		kind = "InitConfiguration"
	}
	return nodeConfiguration{Kind: kind, NodeRegistration: nodeRegistration{KubeletExtraArgs: gateArgs(gates)}}
}

func gateArgs(gates map[string]bool) map[string]string {
	if len(gates) == 0 {
		return nil
	}
	return map[string]string{"feature-gates": spell(gates)}
}

// spell is how flags have gates.
func spell(gates map[string]bool) string {
	items := make([]string, 0, len(gates))
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		items = append(items, fmt.Sprintf("%s=%t", name, gates[name]))
	}
	return strings.Join(items, ",")
}

// Settings are the names of all settings that kind can run.
func Settings() ([]string, error) {
	all, err := setting.ParseAll(strings.Join(setting.All(), " "))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		if s.Runtime() == "" {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// Files are the files of Dir by name: the audit policy and the configuration of every one of Settings.
func Files() (map[string][]byte, error) {
	policy, err := encode(cluster.AuditPolicy())
	if err != nil {
		return nil, err
	}
	const by = "# Written by make generate.\n"
	files := map[string][]byte{policyFile: []byte(by + policy)}
	names, err := Settings()
	if err != nil {
		return nil, err
	}
	settings, err := setting.ParseAll(strings.Join(names, " "))
	if err != nil {
		return nil, err
	}
	for _, s := range settings {
		config, err := Config(s.Config)
		if err != nil {
			return nil, fmt.Errorf("configuring %q: %w", s.Name, err)
		}
		text, err := encode(config)
		if err != nil {
			return nil, err
		}
		name := strings.ReplaceAll(s.Name, ":", "-") + ".yaml"
		files[name] = []byte(by + "# From the root of the repository: kind create cluster --config " + Dir + "/" + name + "\n" + text)
	}
	return files, nil
}

func encodeAll(values []any) ([]string, error) {
	texts := make([]string, 0, len(values))
	for _, v := range values {
		text, err := encode(v)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

func encode(value any) (string, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(value); err != nil {
		return "", fmt.Errorf("encoding: %w", err)
	}
	return b.String(), nil
}
