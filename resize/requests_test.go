package resize_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/fallback"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const requestVersion = "GET /version"

// taken gives the requests since the last call of it.
func (s *apiServer) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.requests
	s.requests = nil
	return taken
}

// TestRequestsInPlace proves the first part of the table in docs/embedding.md: what each operation asks the API server for, and
// what is left of it for a caller with a cache of nodes.
func TestRequestsInPlace(t *testing.T) {
	for name, cached := range map[string]bool{"without a cache": false, "nodes from a cache": true} {
		t.Run(name, func(t *testing.T) {
			s := &apiServer{kubelet: "v1.37.2", resize: true, allowed: true, pod: newPod(observed)}
			passive := clocktesting.NewFakePassiveClock(start)
			opts := resize.InPlaceOptions{Clock: passive}
			if cached {
				opts.Nodes = func(context.Context, string) (*corev1.Node, error) { return node(s.kubelet), nil }
			}
			adapter := resize.NewAdapter(serve(t, s), nil, opts)
			step := func(what string, do func() error, requests ...string) {
				t.Helper()
				if err := do(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				var want []string
				for _, r := range requests {
					if !cached || r != askNode {
						want = append(want, r)
					}
				}
				anyOrder := cmpopts.SortSlices(strings.Compare) // some are made at the same time
				if diff := cmp.Diff(want, s.taken(), anyOrder, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
			call := func(asked resize.Resources, state resize.State) func() error {
				return func() error {
					t.Helper()
					res, err := adapter.Resize(t.Context(), s.now(), asked)
					if res.State != state {
						t.Errorf("got %s/%s: %s; want %s", res.State, res.Reason, res.Message, state)
					}
					return err
				}
			}
			plan := func() error { _, err := adapter.Plan(t.Context(), s.now(), want("app", "cpu=170m", "")); return err }

			first, second, third := want("app", "cpu=150m", ""), want("app", "cpu=160m", ""), want("app", "cpu=170m", "")
			step("change", call(first, resize.StateInProgress), askDiscovery, requestVersion, askNode, askResize)
			step("wait", call(first, resize.StateInProgress))
			s.report(observed, withCondition(corev1.PodResizePending, corev1.PodReasonDeferred, "full"))
			step("wait while Deferred", call(first, resize.StateDeferred))
			s.report(actuated, observed, noConditions)
			step("confirm what was seen to differ", call(first, resize.StateDone))
			step("look at a pod that is Done", call(first, resize.StateDone))
			step("look with no want", call(resize.Resources{}, resize.StateDone))

			step("another change", call(second, resize.StateInProgress), askNode, askResize)
			s.report(actuated, observed)
			step("confirm at first sight", call(second, resize.StateDone), askNode)
			step("plan", plan, askNode, askReview)
			step("say no beforehand", call(want("app", "cpu=200m memory=256Mi", ""), resize.StateInfeasible), askNode)
			step("say no to a name", call(want("ap", "cpu=1", ""), resize.StateInfeasible))

			passive.SetTime(start.Add(5 * time.Minute))
			step("change after the facts have expired", call(third, resize.StateInProgress), askDiscovery, requestVersion, askNode, askResize)

			s.refuse = func(w http.ResponseWriter, _ *http.Request) {
				fail(w, http.StatusForbidden, metav1.Status{Reason: metav1.StatusReasonForbidden, Message: "nobody knows why"})
			}
			refused := func() error {
				if _, err := adapter.Resize(t.Context(), s.now(), first); err == nil {
					t.Error("no error")
				}
				return nil
			}
			step("refused for an unknown reason", refused, askNode, askResize, askReview)
			s.report(notRunning)
			s.kubelet = "v1.34.0"
			step("wait for a container", call(first, resize.StateDeferred), askNode)
		})
	}
}

func noConditions(p *corev1.Pod) { p.Status.Conditions = nil }

const (
	pathNode    = "/api/v1/nodes/n1"
	pathPod     = "/api/v1/namespaces/shop/pods/web"
	pathLease   = "/apis/coordination.k8s.io/v1/namespaces/podresize-system/leases/podresize-agent-n1"
	pathObjects = "/apis/podresize.dev/v1alpha1/namespaces/shop/criresizes"
	pathObject  = pathObjects + "/uid-1"
	pathPods    = "/api/v1/pods" // of a node
	pathHeld    = "/apis/podresize.dev/v1alpha1/criresizes"
)

// objectServer plays the part of an API server that holds objects by their path.
type objectServer struct {
	mu       sync.Mutex
	objects  map[string]client.Object
	requests []string
}

func (s *objectServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	switch object, ok := s.objects[r.URL.Path]; {
	case r.URL.Path == pathPods, r.URL.Path == pathHeld:
		reply(w, http.StatusOK, json.RawMessage(`{"items":[]}`))
	case r.Method == http.MethodGet && ok:
		reply(w, http.StatusOK, object)
	case r.URL.Path == strings.TrimPrefix(askReview, "POST "):
		reply(w, http.StatusCreated, json.RawMessage(`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{},"status":{"allowed":true}}`))
	case r.Method == http.MethodPost, r.Method == http.MethodPut:
		s.write(w, r)
	default:
		fail(w, http.StatusNotFound, metav1.Status{Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{}})
	}
}

func (s *objectServer) write(w http.ResponseWriter, r *http.Request) {
	object := &v1alpha1.CRIResize{}
	if err := json.NewDecoder(r.Body).Decode(object); err != nil {
		fail(w, http.StatusBadRequest, metav1.Status{Reason: metav1.StatusReasonBadRequest})
		return
	}
	object.Generation++
	s.objects[pathObject] = object
	reply(w, http.StatusOK, object)
}

// taken gives the requests since the last call of it.
func (s *objectServer) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.requests
	s.requests = nil
	return taken
}

// apply has the agent answer that the kernel holds what is asked for.
func (s *objectServer) apply() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object, ok := s.objects[pathObject].(*v1alpha1.CRIResize); ok {
		meta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied, ObservedGeneration: object.Generation,
		})
	}
}

// cache holds what a caller has informers for.
type cache struct{}

func (cache) Get(_ context.Context, _ client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	switch out := out.(type) {
	case *corev1.Node:
		*out = *node("v1.26.15")
	case *coordinationv1.Lease:
		*out = *lease()
	}
	return nil
}

func (cache) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func lease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		Spec:     coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: start}},
	}
}

// TestRequestsCRI proves the second part of the table.
func TestRequestsCRI(t *testing.T) {
	for name, cached := range map[string]bool{"without a cache": false, "nodes and Leases from a cache": true} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(gateOff, func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBurstable })
			s := &objectServer{objects: map[string]client.Object{pathNode: node("v1.26.15"), pathLease: lease(), pathPod: pod}}
			adapter := withFallback(t, s, cached)
			step := func(what string, do func() error, requests ...string) {
				t.Helper()
				if err := do(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				var want []string
				for _, r := range requests {
					if !cached || r != "GET "+pathNode && r != "GET "+pathLease && r != "GET "+pathPods {
						want = append(want, r)
					}
				}
				anyOrder := cmpopts.SortSlices(strings.Compare) // some are made at the same time
				if diff := cmp.Diff(want, s.taken(), anyOrder, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
			call := func(asked resize.Resources, state resize.State) func() error {
				return func() error {
					t.Helper()
					res, err := adapter.Resize(t.Context(), pod, asked)
					if res.State != state {
						t.Errorf("got %s/%s: %s; want %s", res.State, res.Reason, res.Message, state)
					}
					return err
				}
			}
			plan := func() error { _, err := adapter.Plan(t.Context(), pod, want("app", "cpu=170m", "")); return err }

			first, second := want("app", "cpu=150m", ""), want("app", "cpu=160m", "")
			step("look at a pod that was never resized", call(resize.Resources{}, resize.StateDone), "GET "+pathObject)
			step("change", call(first, resize.StateInProgress), "GET "+pathObject, "GET "+pathNode, "GET "+pathLease, "GET "+pathPod, "GET "+pathPods, "GET "+pathHeld, "POST "+pathObjects)
			step("wait for the agent", call(first, resize.StateInProgress), "GET "+pathObject, "GET "+pathLease)
			s.apply()
			step("confirm", call(first, resize.StateDone), "GET "+pathObject)
			step("look at a pod that is Done", call(first, resize.StateDone), "GET "+pathObject)
			step("another change", call(second, resize.StateInProgress), "GET "+pathObject, "GET "+pathNode, "GET "+pathLease, "GET "+pathPod, "GET "+pathPods, "GET "+pathHeld, "PUT "+pathObject)
			step("change that requests no more", call(want("app", "", "cpu=190m"), resize.StateInProgress), "GET "+pathObject, "GET "+pathNode, "GET "+pathLease, "GET "+pathPod, "PUT "+pathObject)
			step("plan", plan, "GET "+pathObject, "GET "+pathNode, "GET "+pathLease, "GET "+pathPods, "GET "+pathHeld, askReview, askReview)
		})
	}
}

// mapper spares the client its discovery, which it asks for once in its life.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	m.Add(v1alpha1.GroupVersion.WithKind("CRIResize"), meta.RESTScopeNamespace)
	m.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	return m
}

// withFallback builds an Adapter as docs/embedding.md shows it.
func withFallback(t *testing.T, s *objectServer, cached bool) *resize.Adapter {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	cfg := &rest.Config{Host: server.URL, QPS: -1}
	scheme := runtime.NewScheme()
	if err := fallback.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	opts := client.Options{Scheme: scheme, Mapper: mapper()}
	if cached {
		opts.Cache = &client.CacheOptions{Reader: cache{}, DisableFor: []client.Object{&v1alpha1.CRIResize{}, &corev1.Pod{}}}
	}
	generic, err := client.New(cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	passive := clocktesting.NewFakePassiveClock(start)
	fallbackOpts := fallback.Options{Clock: passive}
	if cached {
		fallbackOpts.Pods = func(context.Context, string) ([]corev1.Pod, error) { return nil, nil }
	}
	return resize.NewAdapter(typed, fallback.New(generic, fallbackOpts), resize.InPlaceOptions{Clock: passive})
}
