package resize

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	// haveResizeFor is how long pods/resize is believed to be there: control planes are upgraded under running libraries.
	haveResizeFor = 5 * time.Minute
	// lackResizeFor is shorter: of a control plane that is being upgraded, old and new servers answer in turn.
	lackResizeFor = 30 * time.Second
)

// server knows what the API server can do: it registers pods/resize only with the gate on (1.32 and later).
type server struct {
	discovery discovery.DiscoveryInterface
	clock     clock.PassiveClock

	mu     sync.Mutex
	facts  Server
	err    error
	until  time.Time     // when facts are no longer believed
	asking chan struct{} // closed when the question under way is answered; nil: there is none
}

// detect gives what is believed, or asks. Many callers share one question, and each waits no longer than its ctx: the discovery
// client takes none.
func (s *server) detect(ctx context.Context) (Server, error) {
	s.mu.Lock()
	if s.clock.Now().Before(s.until) {
		defer s.mu.Unlock()
		return s.facts, nil
	}
	if s.asking == nil {
		s.asking = make(chan struct{})
		go s.ask(s.asking)
	}
	answered := s.asking
	s.mu.Unlock()
	select {
	case <-answered:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.facts, s.err
	case <-ctx.Done():
		return Server{}, Failure("discovering what the API server serves", ctx.Err())
	}
}

// ask asks discovery. The version is a hint, so that not getting one is no failure.
func (s *server) ask(answered chan struct{}) {
	var facts Server
	var failure error
	list, err := s.discovery.ServerResourcesForGroupVersion("v1")
	if err != nil {
		failure = Failure("discovering what the API server serves", err)
	} else {
		facts.Resize = slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods/resize" })
		if info, err := s.discovery.ServerVersion(); err == nil {
			facts.Minor, _ = minor(info.GitVersion)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts, s.err, s.asking = facts, failure, nil
	switch {
	case failure != nil:
	case facts.Resize:
		s.until = s.clock.Now().Add(haveResizeFor)
	default:
		s.until = s.clock.Now().Add(lackResizeFor)
	}
	close(answered)
}

// forget drops what was detected, after an answer that contradicts it.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Time{}
}

// nodeSupport is what is known of a pod's kubelet.
type nodeSupport int

const (
	nodeUnknown nodeSupport = iota
	nodeYes
	nodeNo
)

// supportOf looks for the one proof there is: a kubelet sets status.resources of a running container if and only if its gate is
// on. It is never cached, a kubelet may be restarted with its gate off.
func supportOf(pod *corev1.Pod) nodeSupport {
	support := nodeUnknown
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
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

// resizeRule is what RBAC must allow for the in-place path. The built-in roles edit and admin do not have it.
const resizeRule = `apiGroups: [""], resources: ["pods/resize"], verbs: ["patch"]`

// mayResize asks the API server whether the caller may patch pods/resize of that pod.
func mayResize(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (bool, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: pod.Namespace, Verb: "patch", Resource: "pods", Subresource: "resize", Name: pod.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, Failure(fmt.Sprintf("asking whether pod %q may be resized", key(pod)), err)
	}
	return review.Status.Allowed, nil
}
