package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	kubectlUser = "bench-kubectl"
	kubectlPoll = 100 * time.Millisecond
)

// kubectl is what people do without a library: a patch of the subresource, and then looking at the pod.
type kubectl struct {
	binary, kubeconfig, home string
}

func newKubectl(s *site, binary, dir string) (*kubectl, error) {
	kubeconfig, err := s.writeKubeconfig(kubectlUser, dir)
	return &kubectl{binary: binary, kubeconfig: kubeconfig, home: dir}, err
}

// writeKubeconfig gives a program the login of a user.
func (s *site) writeKubeconfig(user, dir string) (string, error) {
	config, err := s.RESTConfigAs(user, admins)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, s.release+"."+user+".kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"bench": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"bench": {Cluster: "bench", AuthInfo: user, Namespace: namespace}},
		CurrentContext: "bench",
	}, path)
	return path, err
}

func (k *kubectl) user() string { return kubectlUser }

func (k *kubectl) resize(ctx context.Context, pod *corev1.Pod, to amount) error {
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"resources":{"requests":{"cpu":"%dm"},"limits":{"cpu":"%dm"}}}]}}`, container, to.request, to.limit)
	if _, err := k.run(ctx, "patch", "pod", pod.Name, "--subresource", "resize", "--patch", patch); err != nil {
		return err
	}
	done := fmt.Sprintf("%dm", to.limit)
	for {
		text, err := k.run(ctx, "get", "pod", pod.Name, "-o", "jsonpath="+
			`{.status.containerStatuses[0].resources.limits.cpu}{.status.conditions[?(@.type=="PodResizePending")].type}{.status.conditions[?(@.type=="PodResizeInProgress")].type}`)
		if err != nil || text == done {
			return err
		}
		if err := pause(ctx, kubectlPoll); err != nil {
			return err
		}
	}
}

func (k *kubectl) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, k.binary, args...)
	cmd.Env = []string{"KUBECONFIG=" + k.kubeconfig, "HOME=" + k.home}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running kubectl %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
