package resize

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
)

// serverFactsFor is how long the answer of discovery is believed: control planes are upgraded under running libraries.
const serverFactsFor = 5 * time.Minute

// server knows whether the API server has pods/resize: it registers that only with the gate on (1.32 and later).
type server struct {
	discovery discovery.DiscoveryInterface
	clock     clock.PassiveClock

	mu     sync.Mutex
	resize bool
	until  time.Time
}

func (s *server) hasResize() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock.Now().Before(s.until) {
		return s.resize, nil
	}
	list, err := s.discovery.ServerResourcesForGroupVersion("v1")
	if err != nil {
		return false, failure("discovering what the API server serves", err)
	}
	s.resize = slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods/resize" })
	s.until = s.clock.Now().Add(serverFactsFor)
	return s.resize, nil
}

// forget drops what was detected, after an answer that contradicts it.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
}

// nodeSupport is what the pod at hand tells of its kubelet.
type nodeSupport int

const (
	nodeUnknown nodeSupport = iota // no container runs yet
	nodeYes
	nodeNo
)

// supportOf looks for the one proof there is: a kubelet sets status.resources of a running container if and only if its gate is
// on. It is never cached, a kubelet may be restarted with its gate off.
func supportOf(pod *corev1.Pod) nodeSupport {
	support := nodeUnknown
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Running == nil:
		case s.Resources != nil:
			return nodeYes
		default:
			support = nodeNo
		}
	}
	return support
}

// supportByVersion is for pods that tell nothing yet: kubelets before 1.27 do not have the gate, from 1.35 on it is locked on
// (Linux). In between it may be either.
func supportByVersion(node *corev1.Node) nodeSupport {
	m, ok := minor(node.Status.NodeInfo.KubeletVersion)
	switch {
	case ok && m < 27:
		return nodeNo
	case ok && m >= 35 && node.Status.NodeInfo.OperatingSystem == string(corev1.Linux):
		return nodeYes
	default:
		return nodeUnknown
	}
}

// choose takes the path for one pod.
func (a *Adapter) choose(ctx context.Context, pod *corev1.Pod) (Resizer, *Finding, error) {
	hasResize, err := a.server.hasResize()
	if err != nil {
		return nil, nil, err
	}
	support := supportOf(pod)
	if support == nodeUnknown {
		if support = a.supportOfNode(ctx, pod); support == nodeUnknown {
			return nil, &Finding{State: StateDeferred, Reason: ReasonNotRunning, Message: fmt.Sprintf("pod %q has no running container, so nothing tells what its node can do", key(pod))}, nil
		}
	}
	switch {
	case hasResize && support == nodeYes:
		return a.inPlace, nil, nil
	case support == nodeYes:
		return nil, &Finding{State: StateRefused, Reason: ReasonNoPath, Message: "the kubelet resizes in place but the API server has no pods/resize: resizing by a patch of the pod (Kubernetes 1.27 to 1.31) is not supported, and the kubelet would undo any other change"}, nil
	case a.fallback != nil:
		return a.fallback, nil, nil
	default:
		return nil, &Finding{State: StateRefused, Reason: ReasonNoPath, Message: "neither the API server and the node resize in place, nor is there a fallback"}, nil
	}
}

func (a *Adapter) supportOfNode(ctx context.Context, pod *corev1.Pod) nodeSupport {
	if pod.Spec.NodeName == "" {
		return nodeUnknown
	}
	node, err := a.inPlace.opts.Nodes(ctx, pod.Spec.NodeName)
	if err != nil {
		return nodeUnknown
	}
	return supportByVersion(node)
}

// contradicts says that an answer of the API server does not fit what was detected.
func contradicts(err error) bool { return errors.Is(err, errNoEndpoint) }
