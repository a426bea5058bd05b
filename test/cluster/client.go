package cluster

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func (s state) restConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.files().kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of cluster %q: %w", s.Config.Name, err)
	}
	return config, nil
}

// connect makes the admin's client, once the kubeconfig is there.
func (c *Cluster) connect() error {
	config, err := c.snapshot().restConfig()
	if err != nil {
		return err
	}
	api, err := NewAPI(config, c.snapshot().files())
	if err != nil {
		return err
	}
	c.API = api
	return nil
}

// createNode makes the Node object before its kubelet does, for two things that
// a kubelet would not do: any label at all, and an address on loopback, so
// that logs, exec and probes stay there.
func (c *Cluster) createNode(ctx context.Context, i int) error {
	s := c.snapshot()
	n := s.Config.Nodes[i]
	labels := map[string]string{"kubernetes.io/hostname": n.Name}
	maps.Copy(labels, n.Labels)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: s.nodeIP(i)},
			{Type: corev1.NodeHostName, Address: n.Name},
		}},
	}
	_, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating node %q: %w", n.Name, err)
	}
	return nil
}

// forgetHeartbeat lets the Ready condition of a node look old, so that a new
// kubelet's cannot be taken for that of the one before. Nothing else changes:
// the control plane goes by the node's Lease.
func (a *API) forgetHeartbeat(ctx context.Context, node string) error {
	const patch = `{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"2000-01-01T00:00:00Z"}]}}`
	current, err := a.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("getting node %q: %w", node, err)
	}
	if len(current.Status.Conditions) == 0 {
		return nil // its first kubelet
	}
	_, err = a.client.CoreV1().Nodes().PatchStatus(ctx, node, []byte(patch))
	if err != nil {
		return fmt.Errorf("patching the status of node %q: %w", node, err)
	}
	return nil
}

// nodeReady is nil for a node that takes pods.
func (a *API) nodeReady(ctx context.Context, name string) error {
	node, err := a.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("getting node %q: %w", name, err)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return fmt.Errorf("node %q has taint %s", name, taint.Key)
		}
	}
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
		case condition.Status != corev1.ConditionTrue:
			return fmt.Errorf("node %q is not Ready: %s", name, condition.Message)
		case condition.LastHeartbeatTime.Year() == 2000:
			return fmt.Errorf("the kubelet of node %q has not reported since its start", name)
		default:
			return nil
		}
	}
	return fmt.Errorf("node %q has no Ready condition yet", name)
}
