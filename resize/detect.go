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
	// haveFor is how long an API server is believed to take a change: control planes are upgraded under running libraries.
	haveFor = 5 * time.Minute
	// lackFor is shorter: of a control plane that is being upgraded, old and new servers answer in turn.
	lackFor = 30 * time.Second
)

// endpoint is where an API server takes a change of a pod's resources: the name of the subresource; empty: in the pod itself.
type endpoint string

const (
	endpointResize endpoint = "resize" // 1.32 and later
	endpointPod    endpoint = ""       // 1.27 to 1.31
)

// rule is what RBAC must allow. The built-in roles edit and admin do not have pods/resize.
func (e endpoint) rule() string {
	resource := "pods"
	if e != "" {
		resource += "/" + string(e)
	}
	return fmt.Sprintf(`apiGroups: [""], resources: [%q], verbs: ["patch"]`, resource)
}

// server knows what the API server can do. It registers pods/resize only with the gate on (1.32 and later); whether it takes
// resources in a patch of the pod (1.27 to 1.31) nothing tells but the answer to one.
type server struct {
	discovery discovery.DiscoveryInterface
	clock     clock.PassiveClock

	mu     sync.Mutex
	facts  Server
	err    error
	until  time.Time     // when facts are no longer believed
	inPod  bool          // it takes resources in a patch of the pod
	since  time.Time     // when inPod was found out; zero: it is not known
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
		s.until = s.clock.Now().Add(haveFor)
	default:
		s.until = s.clock.Now().Add(lackFor)
	}
	close(answered)
}

// takesInPod tells whether the API server takes resources in a patch of the pod, as far as that was found out.
func (s *server) takesInPod() (takes, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	believed := lackFor
	if s.inPod {
		believed = haveFor
	}
	return s.inPod, !s.since.IsZero() && s.clock.Now().Before(s.since.Add(believed))
}

func (s *server) learnInPod(takes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inPod, s.since = takes, s.clock.Now()
}

// forget drops what was detected, after an answer that contradicts it.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until, s.since = time.Time{}, time.Time{}
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

// route finds out where the API server takes this change of this pod: at pods/resize if that is served, otherwise in a patch of
// the pod, if it is known or a dry run of the change tells that it does. The Finding says what stands against that.
func (r *InPlace) route(ctx context.Context, pod *corev1.Pod, facts Server, patch []byte) (endpoint, *Finding, error) {
	if facts.Resize {
		return endpointResize, nil, nil
	}
	if f := unproved(pod); f != nil {
		return endpointPod, f, nil
	}
	takes, known := r.server.takesInPod()
	switch {
	case !known:
		return r.rehearse(ctx, pod, patch)
	case !takes:
		return endpointPod, takesNone(), nil
	default:
		return endpointPod, nil, nil
	}
}

// takes says whether the API server is known to take resizes, by whichever endpoint.
func (r *InPlace) takes(ctx context.Context) bool {
	facts, err := r.server.detect(ctx)
	takes, known := r.server.takesInPod()
	return err == nil && (facts.Resize || known && takes)
}

// unproved finds what keeps a pod from being patched where no API server looks at its node: a kubelet whose gate is off restarts
// the containers (before 1.31), or does nothing (k/k#117767, enhancements#2474).
func unproved(pod *corev1.Pod) *Finding {
	switch supportOf(pod) {
	case nodeYes:
		return nil
	case nodeNo:
		return noPath(fmt.Sprintf("node %q does not resize in place: a patch of the pod could restart its containers", pod.Spec.NodeName))
	default:
		return untold(pod)
	}
}

func takesNone() *Finding {
	return noPath("the kubelet resizes in place and would undo any other change, but the API server takes none: it has no pods/resize (1.32 and later), " +
		"and no resources in a patch of the pod (1.27 to 1.31, with the gate InPlacePodVerticalScaling)")
}

// rehearse finds out by a dry run whether the API server takes resources in a patch of the pod. Only an answer that is understood
// counts: a webhook that does not know dry runs proves nothing.
func (r *InPlace) rehearse(ctx context.Context, pod *corev1.Pod, patch []byte) (endpoint, *Finding, error) {
	answer, err := r.patch(ctx, pod, endpointPod, patch, metav1.DryRunAll)
	if err == nil {
		r.server.learnInPod(true)
		return endpointPod, unproved(answer), nil // it is newer than the caller's copy
	}
	if !resourcesFixed(err) {
		stop, err := r.refused(ctx, pod, endpointPod, err)
		if stop != nil && stop.Reason == ReasonAdmissionDenied {
			return endpointPod, nil, &Error{Reason: ReasonUnknown, Retryable: true, Message: fmt.Sprintf("trying to resize pod %q: %s", key(pod), stop.Message)}
		}
		return endpointPod, stop, err
	}
	r.server.forget() // it may have come to serve pods/resize since it was asked
	facts, err := r.server.detect(ctx)
	if err != nil {
		return endpointPod, nil, err
	}
	if facts.Resize {
		return endpointResize, nil, nil
	}
	r.server.learnInPod(false)
	return endpointPod, takesNone(), nil
}

// mayPatch asks the API server whether the caller may patch that pod there.
func mayPatch(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, where endpoint) (bool, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: pod.Namespace, Verb: "patch", Resource: "pods", Subresource: string(where), Name: pod.Name,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, Failure(fmt.Sprintf("asking whether pod %q may be patched", key(pod)), err)
	}
	return review.Status.Allowed, nil
}
