package cluster

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
)

const (
	maxClusters = 200
	maxNodes    = 100
)

// Addresses, all of them on loopback. The service network of cluster k is
// 127.20.k.0/24 and its API server listens on the first address, which is the
// one that Kubernetes gives the service "kubernetes". So pods with hostNetwork
// reach the API server with their in-cluster configuration and there is no
// kube-proxy. All other components listen in 127.21.k.0/24.

func (s state) apiServerIP() string  { return fmt.Sprintf("127.20.%d.1", s.Index) }
func (s state) serviceCIDR() string  { return fmt.Sprintf("127.20.%d.0/24", s.Index) }
func (s state) apiServerURL() string { return "https://" + s.apiServerIP() + ":443" }

func (s state) etcdIP() string              { return fmt.Sprintf("127.21.%d.2", s.Index) }
func (s state) controllerManagerIP() string { return fmt.Sprintf("127.21.%d.3", s.Index) }
func (s state) schedulerIP() string         { return fmt.Sprintf("127.21.%d.4", s.Index) }
func (s state) nodeIP(i int) string         { return fmt.Sprintf("127.21.%d.%d", s.Index, 10+i) }

// podSubnet is what pods without hostNetwork get addresses from. The bridge
// they hang on has no address itself: nothing is routed there.
func (s state) podSubnet(i int) string { return fmt.Sprintf("10.%d.%d.0/24", s.Index, i) }

// bridge is the name of a node's pod bridge. It follows from the names alone,
// so that it can be found without the state.
func bridge(cluster, node string) string {
	sum := sha256.Sum256([]byte(cluster + "/" + node))
	return fmt.Sprintf("podr%x", sum[:5])
}

// files are the paths of one cluster.
type files struct{ dir string }

func (s state) files() files { return files{clusterDir(s.Config.Name)} }

func (f files) kubeconfig() string       { return filepath.Join(f.dir, "kubeconfig") }
func (f files) auditLog() string         { return filepath.Join(f.dir, "audit.log") }
func (f files) auditPolicy() string      { return filepath.Join(f.dir, "audit-policy.json") }
func (f files) etcd() string             { return filepath.Join(f.dir, "etcd") }
func (f files) pki(name string) string   { return filepath.Join(f.dir, "pki", name) }
func (f files) cert(name string) string  { return f.pki(name + ".crt") }
func (f files) key(name string) string   { return f.pki(name + ".key") }
func (f files) login(name string) string { return f.pki(name + ".kubeconfig") }

// log is where a component ("kubelet/n1") writes its output.
func (f files) log(component string) string {
	return filepath.Join(f.dir, "logs", filepath.FromSlash(component)+".log")
}

// node is a path below the directory of one node.
func (f files) node(node string, elem ...string) string {
	return filepath.Join(append([]string{f.dir, "nodes", node}, elem...)...)
}

// socket is the node's containerd socket as this machine sees it; inside the
// node's mount namespace it is /run/containerd/containerd.sock.
func (f files) socket(node string) string { return f.node(node, "run", "containerd.sock") }
