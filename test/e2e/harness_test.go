//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/podresize/podresize/fallback"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

const (
	// namespace holds all pods of the suites.
	namespace = "e2e"
	// resizers is a group that has the roles that manifests/ has for a caller, in namespace, and nothing else.
	resizers = "resizers"
	// resizerUser is the user in that group that the Resizers of the suites are.
	resizerUser = "resizer"
	agent       = "system:serviceaccount:" + v1alpha1.AgentNamespace + ":podresize-agent"

	// patience is how long anything may take that is no matter of the test.
	patience = time.Minute
)

// env is one cluster, with what the suites need on it.
type env struct {
	*cluster.API
	provider

	minor int // of the API server
	// path is the one that the Adapter must take there.
	path resize.Path
	// objects is the admin's client, for CRIResizes.
	objects client.Client
	// pods are those of namespace as an informer has them, a little late.
	pods corev1listers.PodNamespaceLister
	// node is the one that pods are to run on; empty: any.
	node string
	// podresize is the path of the command.
	podresize string
}

// start brings a fresh cluster up, with the roles of a caller on it, and sees to its end.
func start(t *testing.T, s setting.Setting, podresize string) *env {
	t.Helper()
	vm, err := cluster.ParseVM(os.Getenv("PODRESIZE_NODE"))
	if err != nil {
		t.Fatal(err)
	}
	config := s.Config
	config.Name = clusterName(s.Config.Name)
	if vm != "" {
		config.Nodes = []cluster.Node{{Name: "n1", VM: vm, Runtime: s.Runtime()}}
	}
	e := startWith(t, config)
	e.minor, e.podresize = s.Minor, podresize
	return e.on(s.Nodes[0])
}

// startWith does so with any configuration.
func startWith(t *testing.T, config cluster.Config) *env {
	t.Helper()
	config.Progress = t.Output()
	api, c := startCluster(t, config)
	t.Cleanup(func() {
		if keep() {
			t.Logf("cluster %q is kept: export KUBECONFIG=%s", config.Name, c.Kubeconfig())
		} else if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	e := &env{API: api, provider: c, objects: newClient(t, api.RESTConfig())}
	e.apply(t, "e2e/manifests/roles")
	e.bindResizer(t)
	e.watchPods(t)
	return e
}

// on is the cluster as pods of that node see it.
func (e *env) on(node setting.Node) *env {
	here := *e
	here.node, here.path = e.NodeName(node.Name), node.Path
	return &here
}

// patched is a successful patch that resizes a pod in place here, as audit tells it.
func (e *env) patched() string { return "patch " + e.resource() + " 200" }

// resource is what is patched for that.
func (e *env) resource() string {
	if e.minor < setting.SubresourceSince {
		return "pods"
	}
	return "pods/resize"
}

func (e *env) watchPods(t *testing.T) {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(e.Client(), 0, informers.WithNamespace(namespace))
	e.pods = factory.Core().V1().Pods().Lister().Pods(namespace)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
}

func (e *env) apply(t *testing.T, dir string) {
	t.Helper()
	if err := e.Apply(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
}

// deploy brings what manifests/base has, with an agent built from source.
func (e *env) deploy(t *testing.T) {
	t.Helper()
	if err := e.LoadImage(t.Context(), "localhost/podresize-agent:dev", "../cmd/podresize-agent"); err != nil {
		t.Fatal(err)
	}
	e.apply(t, "e2e/manifests")
	if err := e.WaitDaemonSet(t.Context(), v1alpha1.AgentNamespace, "podresize-agent"); err != nil {
		t.Fatal(err)
	}
	nodes, err := e.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		eventually(t, "the agent renews its Lease", func() error {
			_, err := e.Client().CoordinationV1().Leases(v1alpha1.AgentNamespace).Get(t.Context(), v1alpha1.AgentLeaseName(node.Name), metav1.GetOptions{})
			return err
		})
	}
}

// bindResizer gives the group the roles of a caller, as their manifest says that they are to be bound.
func (e *env) bindResizer(t *testing.T) {
	t.Helper()
	subjects := []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: resizers}}
	ref := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	_, err := e.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"podresize-resizer", "podresize-resizer-old"} {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, Subjects: subjects, RoleRef: ref(role)}
		if _, err := e.Client().RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	agents := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: resizers}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "podresize-resizer-agents"},
	}
	if _, err := e.Client().RbacV1().RoleBindings(v1alpha1.AgentNamespace).Create(t.Context(), agents, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"podresize-resizer-nodes", "podresize-resizer-room"} {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role}, Subjects: subjects, RoleRef: ref(role)}
		if _, err := e.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	e.waitAllowed(t, resizerUser, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "pods"})
	e.waitAllowed(t, resizerUser, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Resource: "pods"})
	e.waitAllowed(t, resizerUser, authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes"})
	e.waitAllowed(t, resizerUser, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"})
	e.waitAllowed(t, resizerUser, authorizationv1.ResourceAttributes{Namespace: v1alpha1.AgentNamespace, Verb: "get", Group: "coordination.k8s.io", Resource: "leases"})
}

// waitAllowed waits until a new binding holds, for a user or for resizers in general.
func (e *env) waitAllowed(t *testing.T, user string, what authorizationv1.ResourceAttributes) {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
	if user == resizerUser {
		review.Spec.Groups = []string{resizers}
	}
	eventually(t, "the rights of "+user+" hold", func() error {
		answer, err := e.Client().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("not allowed")
		}
		return err
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// as logs in as a user without other rights than those bound to that name or to these groups.
func (e *env) as(t *testing.T, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := e.RESTConfigAs(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := fallback.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newKubernetes(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newResizer makes the Resizer that callers are told to use. It remembers nothing.
func (e *env) newResizer(t *testing.T) resize.Resizer {
	t.Helper()
	config := e.as(t, resizerUser, resizers)
	return resize.NewAdapter(newKubernetes(t, config), fallback.New(newClient(t, config), fallback.Options{}), resize.InPlaceOptions{})
}

// run runs a pod until the test ends. If the test has failed by then, it tells what is known of the pod.
func (e *env) run(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod.Namespace = namespace
	if e.node != "" {
		pod.Spec.NodeName = e.node
	}
	running, err := e.RunPod(t.Context(), pod)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := e.end(ctx, t, pod.Name); ignoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return running
}

// end deletes a pod and does not wait for it to go.
func (e *env) end(ctx context.Context, t *testing.T, name string) error {
	t.Helper()
	pods := e.Client().CoreV1().Pods(namespace)
	if t.Failed() {
		latest, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		t.Log(e.describe(ctx, latest))
	}
	grace := int64(1)
	return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
}

// latest is the pod as it is now.
func (e *env) latest(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	latest, err := e.Client().CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return latest
}

// settle calls Resize with ever newer pods, as a controller with an informer would, until ended says nil.
func (e *env) settle(t *testing.T, r resize.Resizer, pod *corev1.Pod, want resize.Resources, ended func(resize.Result) error) resize.Result {
	t.Helper()
	var res resize.Result
	eventually(t, "the resize is settled", func() error {
		known, err := e.pods.Get(pod.Name)
		if err != nil {
			return err
		}
		if known.UID != pod.UID {
			return errors.New("the informer has not seen the pod")
		}
		var failure *resize.Error
		if res, err = r.Resize(t.Context(), known, want); errors.As(err, &failure) && failure.Retryable {
			return err
		} else if err != nil {
			t.Fatal(err)
		}
		if err := ended(res); err != nil {
			return fmt.Errorf("%s (%s, %w): %s", res.State, res.Reason, err, res.Message)
		}
		return nil
	})
	return res
}

// nothingToWaitFor is the end of most resizes.
func nothingToWaitFor(res resize.Result) error {
	if res.RetryAfter > 0 {
		return fmt.Errorf("to be retried after %s", res.RetryAfter)
	}
	return nil
}

// resizeTo settles, and insists on Done and on the path. It returns right after the first Done.
func (e *env) resizeTo(t *testing.T, r resize.Resizer, pod *corev1.Pod, want resize.Resources) resize.Result {
	t.Helper()
	res := e.settle(t, r, pod, want, nothingToWaitFor)
	if res.State != resize.StateDone || res.Path != e.path {
		t.Fatalf("the resize ended as %s (%s) by path %q: %s", res.State, res.Reason, res.Path, res.Message)
	}
	return res
}

// criResize is the CRIResize of a pod; nil: there is none.
func (e *env) criResize(t *testing.T, pod *corev1.Pod) *v1alpha1.CRIResize {
	t.Helper()
	object := &v1alpha1.CRIResize{}
	err := e.objects.Get(t.Context(), types.NamespacedName{Namespace: pod.Namespace, Name: string(pod.UID)}, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) { // or no such API type yet
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// audit are the requests that keep wants, as "verb resource/subresource code", in their order; of patches that only touch a pod the
// verb is "touch", of dry runs it is "try".
func (e *env) audit(t *testing.T, keep func(cluster.AuditEvent) bool) []string {
	t.Helper()
	events, err := e.Audit(t.Context(), keep)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range events {
		what := a.ObjectRef.Resource
		if a.ObjectRef.Subresource != "" {
			what += "/" + a.ObjectRef.Subresource
		}
		verb := a.Verb
		switch {
		case touches(a):
			verb = "touch"
		case a.DryRun():
			verb = "try"
		}
		out = append(out, fmt.Sprintf("%s %s %d", verb, what, a.ResponseStatus.Code))
	}
	return out
}

// touches says that a request does nothing but set the annotation that makes a kubelet look at its pod.
func touches(a cluster.AuditEvent) bool {
	return a.Verb == "patch" && bytes.Contains(a.RequestObject, []byte(resize.TouchedAnnotation)) && !bytes.Contains(a.RequestObject, []byte("spec"))
}

// onPod are all requests of the Resizers on a pod, reads too.
func (e *env) onPod(t *testing.T, pod *corev1.Pod) []string {
	t.Helper()
	return e.audit(t, func(a cluster.AuditEvent) bool {
		ref := a.ObjectRef
		return a.User.Username == resizerUser && ref.Resource == "pods" && ref.Namespace == pod.Namespace && ref.Name == pod.Name
	})
}

// changes are the requests of a user that might have changed a pod or a CRIResize, whatever came of them.
func (e *env) changes(t *testing.T, user string) []string {
	t.Helper()
	return e.audit(t, func(a cluster.AuditEvent) bool {
		return a.User.Username == user && a.Mutating() && (a.ObjectRef.Resource == "pods" || a.ObjectRef.Resource == "criresizes")
	})
}

// changesOf are the requests of everybody but the cluster that might have changed the pod since it was created.
func (e *env) changesOf(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	events, err := e.PodRequests(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(events, func(a cluster.AuditEvent) bool {
		return a.Verb == "create" && a.ObjectRef.Subresource == "" || touches(a)
	}))
}

// equal compares with a diff.
func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (- want, + got):\n%s", what, diff)
	}
}

// eventually asks every 20 ms until there is no error, and fails with the last one.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}

// describe tells all that is known of a pod, for a test that has failed.
func (e *env) describe(ctx context.Context, pod *corev1.Pod) string {
	var b strings.Builder
	section := func(title string, content any) {
		text, err := yaml.Marshal(content)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "--- %s\n%s", title, text)
	}
	section("status of pod "+pod.Name, pod.Status)
	names := []string{""}
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
		section("spec.resources of "+c.Name, c.Resources)
	}
	for _, name := range names {
		held, err := e.Cgroup(ctx, pod, name)
		section(fmt.Sprintf("cgroup of %q (error: %v)", name, err), held)
	}
	object := &v1alpha1.CRIResize{}
	if err := e.objects.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: string(pod.UID)}, object); err == nil {
		object.ManagedFields = nil
		section("CRIResize", object)
	}
	section("events", e.events(ctx, pod))
	fmt.Fprintf(&b, "--- end of the agent's log\n%s", e.agentLog(ctx))
	return b.String()
}

func (e *env) events(ctx context.Context, pod *corev1.Pod) []string {
	list, err := e.Client().CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, event := range list.Items {
		out = append(out, fmt.Sprintf("%s %s %dx: %s", event.Type, event.Reason, max(event.Count, 1), event.Message))
	}
	return out
}

func (e *env) agentLog(ctx context.Context) string {
	pods, err := e.Client().CoreV1().Pods(v1alpha1.AgentNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	tail := int64(30)
	for _, pod := range pods.Items {
		log, err := e.Client().CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &tail}).DoRaw(ctx)
		fmt.Fprintf(&b, "%s (error: %v)\n%s\n", pod.Name, err, log)
	}
	return b.String()
}
