package resize_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/podresize/podresize/resize"
)

const (
	askDiscovery = "GET /api/v1"
	askVersion   = "GET /version"
	askNode      = "GET /api/v1/nodes/n1"
	askResize    = "PATCH /api/v1/namespaces/shop/pods/web/resize"
	askPod       = "PATCH /api/v1/namespaces/shop/pods/web"
	askTry       = "PATCH /api/v1/namespaces/shop/pods/web?dryRun=All"
	askTouch     = "PATCH /api/v1/namespaces/shop/pods/web annotations"
	askReview    = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// apiServer plays the part of an API server that resizers talk to, for one pod on one node, and of the kubelet by report.
type apiServer struct {
	mu       sync.Mutex
	pod      *corev1.Pod
	kubelet  string                      // version of the node's; empty: the node cannot be read
	version  string                      // what the server says of itself
	resize   bool                        // serves pods/resize
	allowed  bool                        // what access reviews say
	inPod    bool                        // takes resources in a patch of the pod
	refuse   http.HandlerFunc            // answers patches instead
	refuseTo map[string]http.HandlerFunc // answers these requests instead
	mutate   func(answer *corev1.Pod)    // as an admission plugin would
	requests []string
	patches  []string

	noReviews bool // access reviews are not answered
	down      bool // nothing is answered but 503
}

func serve(t *testing.T, s *apiServer) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	request := name(r)
	s.requests = append(s.requests, request)
	switch {
	case s.down:
		fail(w, http.StatusServiceUnavailable, metav1.Status{Reason: metav1.StatusReasonServiceUnavailable, Message: "starting"})
	case request == askDiscovery:
		s.discover(w)
	case request == askVersion:
		reply(w, http.StatusOK, &apiversion.Info{GitVersion: s.version})
	case request == askNode && s.kubelet != "":
		reply(w, http.StatusOK, node(s.kubelet))
	case request == askNode:
		fail(w, http.StatusForbidden, metav1.Status{Reason: metav1.StatusReasonForbidden, Message: `nodes "n1" is forbidden`})
	case request == askReview && !s.noReviews:
		reply(w, http.StatusCreated, &authorizationv1.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
			Status:   authorizationv1.SubjectAccessReviewStatus{Allowed: s.allowed},
		})
	case r.Method == http.MethodPatch:
		s.answerPatch(w, r, request)
	default:
		notServed(w)
	}
}

// name is a request as the tests call it.
func name(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	request := r.Method + " " + r.URL.Path
	switch {
	case r.URL.RawQuery != "":
		return request + "?" + r.URL.RawQuery
	case request == askPod && bytes.Contains(body, []byte("annotations")):
		return askTouch
	default:
		return request
	}
}

func (s *apiServer) answerPatch(w http.ResponseWriter, r *http.Request, request string) {
	refuse := s.refuseTo[request]
	if refuse == nil && (request == askResize || request == askPod) {
		refuse = s.refuse
	}
	switch {
	case refuse != nil:
		refuse(w, r)
	case request == askResize && s.resize, request == askTouch, request != askResize && s.inPod:
		s.patch(w, r)
	case request == askResize:
		notServed(w)
	default:
		resourcesFixed(w, r)
	}
}

// notServed is what a real one says for a path that it does not serve.
func notServed(w http.ResponseWriter) {
	fail(w, http.StatusNotFound, metav1.Status{Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{}})
}

func (s *apiServer) discover(w http.ResponseWriter) {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "v1",
		APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true}, {Name: "pods/status", Kind: "Pod", Namespaced: true}},
	}
	if s.resize {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: "pods/resize", Kind: "Pod", Namespaced: true})
	}
	reply(w, http.StatusOK, list)
}

// patch applies a strategic merge patch as the real server does, and counts generation and resourceVersion.
func (s *apiServer) patch(w http.ResponseWriter, r *http.Request) {
	patch, _ := io.ReadAll(r.Body)
	before, _ := json.Marshal(s.pod)
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	patched := &corev1.Pod{}
	if err == nil {
		err = json.Unmarshal(after, patched)
	}
	if err != nil || r.Header.Get("Content-Type") != "application/strategic-merge-patch+json" {
		fail(w, http.StatusBadRequest, metav1.Status{Reason: metav1.StatusReasonBadRequest, Message: "not a strategic merge patch"})
		return
	}
	if s.mutate != nil {
		s.mutate(patched)
	}
	if r.URL.RawQuery != "" { // a dry run
		reply(w, http.StatusOK, patched)
		return
	}
	s.patches = append(s.patches, string(patch))
	if s.resize {
		patched.Generation++
	}
	s.store(patched)
	reply(w, http.StatusOK, patched)
}

// resourcesFixed answers as API servers do that take no resources in a patch of a pod.
func resourcesFixed(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusUnprocessableEntity, metav1.Status{
		Reason: metav1.StatusReasonInvalid, Details: aboutPod(metav1.StatusCause{Type: metav1.CauseTypeForbidden, Field: "spec"}),
		Message: `Pod "web" is invalid: spec: Forbidden: pod updates may not change fields other than ` + "`spec.containers[*].image`,`spec.initContainers[*].image`",
	})
}

func (s *apiServer) store(pod *corev1.Pod) {
	version, _ := strconv.Atoi(s.pod.ResourceVersion)
	pod.ResourceVersion = strconv.Itoa(version + 1)
	s.pod = pod
}

// set changes the server while it runs.
func (s *apiServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// now is the pod as a fresh GET would have it.
func (s *apiServer) now() *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pod.DeepCopy()
}

// report changes the pod's status as its kubelet would.
func (s *apiServer) report(changes ...change) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pod.DeepCopy()
	for _, c := range changes {
		c(pod)
	}
	s.store(pod)
	return pod.DeepCopy()
}

// count tells how often a request was made.
func (s *apiServer) count(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(s.requests), func(r string) bool { return r != request }))
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, code int, s metav1.Status) {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	s.Status, s.Code = metav1.StatusFailure, int32(code) //nolint:gosec // G115: an HTTP status
	reply(w, code, s)
}

func node(kubelet string) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: corev1.NodeStatus{
			NodeInfo:    corev1.NodeSystemInfo{KubeletVersion: kubelet, OperatingSystem: "linux"},
			Allocatable: list("cpu=4 memory=8Gi"),
		},
	}
}

// list reads "cpu=100m memory=1Gi".
func list(s string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for field := range strings.FieldsSeq(s) {
		name, quantity, _ := strings.Cut(field, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return out
}

// want asks for requests and limits of one container.
func want(container, requests, limits string) resize.Resources {
	return resize.Resources{Containers: map[string]resize.Requirements{container: {Requests: list(requests), Limits: list(limits)}}}
}

type change func(*corev1.Pod)

// newPod is a running Burstable pod "shop/web" with a container "app" whose kubelet reports what spec says.
func newPod(changes ...change) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1", ResourceVersion: "10", Generation: 1},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: "localhost/app:dev"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: running()}}},
	}
	spec("cpu=100m memory=128Mi", "cpu=200m memory=256Mi")(pod)
	actuated(pod)
	for _, c := range changes {
		c(pod)
	}
	return pod
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

// spec sets the resources of the first container.
func spec(requests, limits string) change {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
	}
}

// sidekick adds a second running container.
func sidekick(requests, limits string) change {
	return func(p *corev1.Pod) {
		r := corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "log", Resources: r})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "log", State: running(), Resources: &r, AllocatedResources: r.Requests})
	}
}

// actuated has the kubelet report what spec says.
func actuated(p *corev1.Pod) {
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].AllocatedResources = p.Spec.Containers[i].Resources.Requests.DeepCopy()
		p.Status.ContainerStatuses[i].Resources = p.Spec.Containers[i].Resources.DeepCopy()
	}
}

// allocated and actual set what the status says of the first container.
func allocated(requests string) change {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].AllocatedResources = list(requests) }
}

func actual(requests, limits string) change {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
	}
}

// observed has the kubelet say that its status speaks of the current spec (1.34 and later).
func observed(p *corev1.Pod) { p.Status.ObservedGeneration = p.Generation }

func restarted(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }

func version(v string) change { return func(p *corev1.Pod) { p.ResourceVersion = v } }

func notRunning(p *corev1.Pod) { p.Status.ContainerStatuses = nil }

func gateOff(p *corev1.Pod) {
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].AllocatedResources, p.Status.ContainerStatuses[i].Resources = nil, nil
	}
}

func resizeField(s corev1.PodResizeStatus) change { //nolint:staticcheck // SA1019: kubelets before 1.33 say it
	return func(p *corev1.Pod) { p.Status.Resize = s }
}

func withCondition(t corev1.PodConditionType, reason, message string) change {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(conditionTime),
		})
	}
}
