package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// etcdCommand: --unsafe-no-fsync because the data does not outlive the tests.
func (s state) etcdCommand() []string {
	client := "http://" + s.etcdIP() + ":2379"
	peer := "http://" + s.etcdIP() + ":2380"
	return []string{
		"etcd", "--name=default", "--data-dir=" + s.files().etcd(), "--unsafe-no-fsync",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
	}
}

func (s state) apiServerCommand(bin string, gates map[string]bool) []string {
	f := s.files()
	return append([]string{
		filepath.Join(bin, "kube-apiserver"),
		"--bind-address=" + s.apiServerIP(), "--advertise-address=" + s.apiServerIP(), "--secure-port=443",
		"--service-cluster-ip-range=" + s.serviceCIDR(),
		// An Endpoints object may not hold loopback addresses, and nobody
		// reads it here.
		"--endpoint-reconciler-type=none",
		"--etcd-servers=http://" + s.etcdIP() + ":2379",
		"--allow-privileged=true",
		"--anonymous-auth=false",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + f.cert("ca"),
		"--tls-cert-file=" + f.cert("apiserver"), "--tls-private-key-file=" + f.key("apiserver"),
		"--kubelet-certificate-authority=" + f.cert("ca"),
		"--kubelet-client-certificate=" + f.cert("apiserver-kubelet-client"),
		"--kubelet-client-key=" + f.key("apiserver-kubelet-client"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + f.cert("service-accounts"),
		"--service-account-signing-key-file=" + f.key("service-accounts"),
		"--audit-policy-file=" + f.auditPolicy(), "--audit-log-path=" + f.auditLog(),
		"--audit-log-format=json", "--audit-log-mode=blocking", "--audit-log-version=audit.k8s.io/v1",
	}, gateFlag(gates)...)
}

func (s state) controllerManagerCommand(bin string, gates map[string]bool) []string {
	f := s.files()
	return append([]string{
		filepath.Join(bin, "kube-controller-manager"),
		"--bind-address=" + s.controllerManagerIP(),
		"--kubeconfig=" + f.login("controller-manager"),
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		// The controllers fetch their credentials one after the other, and the
		// default of 20 a second makes that a matter of seconds.
		"--kube-api-qps=500", "--kube-api-burst=500",
		// At the default, 5 s, a new node keeps its taint for that long.
		"--node-monitor-period=500ms",
		// Or it makes the default directory on this machine.
		"--flex-volume-plugin-dir=" + filepath.Join(f.dir, "flexvolume"),
		"--root-ca-file=" + f.cert("ca"),
		"--service-account-private-key-file=" + f.key("service-accounts"),
	}, gateFlag(gates)...)
}

func (s state) schedulerCommand(bin string, gates map[string]bool) []string {
	return append([]string{
		filepath.Join(bin, "kube-scheduler"),
		"--bind-address=" + s.schedulerIP(),
		"--kubeconfig=" + s.files().login("scheduler"),
		"--leader-elect=false",
	}, gateFlag(gates)...)
}

// apiServerHealthy asks as the admin, since nobody else may.
func (s state) apiServerHealthy(ctx context.Context) error {
	config, err := s.restConfig()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	defer client.CloseIdleConnections()
	return get(ctx, client, s.apiServerURL()+"/readyz")
}

func (s state) etcdHealthy(ctx context.Context) error {
	return getHealth(ctx, "http://"+s.etcdIP()+":2379/health")
}

func (s state) controllerManagerHealthy(ctx context.Context) error {
	return getHealth(ctx, "https://"+s.controllerManagerIP()+":10257/healthz")
}

func (s state) schedulerHealthy(ctx context.Context) error {
	return getHealth(ctx, "https://"+s.schedulerIP()+":10259/healthz")
}

// getHealth does not check the server's certificate: controller manager and
// scheduler make one up for themselves at each start.
func getHealth(ctx context.Context, url string) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	defer transport.CloseIdleConnections()
	return get(ctx, &http.Client{Transport: transport}, url)
}

func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 2048))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s: %s%s", url, resp.Status, lastLines(string(body), 5))
	}
	return nil
}
