package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// nodeFor is how long what the API server said of the agent's own node is taken for true.
	nodeFor = time.Minute
	// nodeWithin is how long one answer is waited for.
	nodeWithin = 5 * time.Second
)

// node is the agent's own, as last read.
type node struct {
	mu   sync.Mutex
	read time.Time
	node *corev1.Node
}

// ownNode is the Node object of the agent's node, at most a minute old.
func (a *Agent) ownNode(ctx context.Context) (*corev1.Node, error) {
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	if a.node.node != nil && a.clock.Since(a.node.read) < nodeFor {
		return a.node.node, nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodeWithin)
	defer cancel()
	n := &corev1.Node{}
	if err := a.client.Get(ctx, types.NamespacedName{Name: a.opts.NodeName}, n); err != nil {
		return nil, fmt.Errorf("reading node %q: %w", a.opts.NodeName, err)
	}
	a.node.node, a.node.read = n, a.clock.Now()
	return n, nil
}
