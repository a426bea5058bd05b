package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const podPath = "/kubepods/burstable/poduid-1"

var name = types.NamespacedName{Namespace: "shop", Name: "uid-1"}

// bed is an agent on a node of files: a pod "web" with the running containers "app" and "log", which hold what the kubelet set.
type bed struct {
	agent   *Agent
	client  client.Client
	tree    *cgroup.Tree
	root    string
	pod     cri.Pod
	podErr  error
	fail    func(container string) error // what Update answers
	updates []string                     // containers, in the order of their updates
	seen    []cgroup.Values              // the pod's cgroup at each update
	reports []v1alpha1.CRIResizeStatus   // each status that was sent
	report  func() error                 // what the API server answers to that
	clock   *clocktesting.FakePassiveClock
}

// list reads "cpu=100m memory=1Gi".
func list(s string) map[corev1.ResourceName]resource.Quantity {
	out := map[corev1.ResourceName]resource.Quantity{}
	for field := range strings.FieldsSeq(s) {
		name, quantity, _ := strings.Cut(field, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return out
}

func requirements(requests, limits string) v1alpha1.Requirements {
	return v1alpha1.Requirements{Requests: list(requests), Limits: list(limits)}
}

// newObject asks for what the pod has already.
func newObject() *v1alpha1.CRIResize {
	app, log := requirements("cpu=100m memory=128Mi", "cpu=200m memory=256Mi"), requirements("cpu=50m memory=64Mi", "cpu=100m memory=128Mi")
	return &v1alpha1.CRIResize{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Generation: 1},
		Spec: v1alpha1.CRIResizeSpec{
			PodName: "web", PodUID: "uid-1", NodeName: "n1", QOSClass: corev1.PodQOSBurstable,
			Containers: []v1alpha1.Container{{Name: "app", Before: app, Wanted: app}, {Name: "log", Before: log, Wanted: log}},
		},
	}
}

// asking asks for limits of app and log.
func asking(app, log string) *v1alpha1.CRIResize {
	object := newObject()
	object.Spec.Containers[0].Wanted.Limits = list(app)
	object.Spec.Containers[1].Wanted.Limits = list(log)
	return object
}

func newNode(name, allocatable string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: list(allocatable)}}
}

func newBed(t *testing.T, unified bool, object *v1alpha1.CRIResize) *bed {
	t.Helper()
	b := &bed{root: t.TempDir(), clock: clocktesting.NewFakePassiveClock(time.Now()), pod: cri.Pod{Namespace: "shop", Name: "web", CgroupsPath: podPath + "/sandbox", Containers: []cri.Container{
		{ID: "c-app", Name: "app", RestartCount: 2, CgroupsPath: podPath + "/c-app"},
		{ID: "c-log", Name: "log", CgroupsPath: podPath + "/c-log"},
	}}}
	b.openTree(t, unified)
	before := figures.Before(&object.Spec)
	b.set(t, podPath, before.Cgroup)
	b.set(t, podPath+"/c-app", before.Containers["app"])
	b.set(t, podPath+"/c-log", before.Containers["log"])
	for _, path := range []string{podPath, podPath + "/c-app", podPath + "/c-log"} {
		b.uses(t, path, 1<<20)
	}
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{v1alpha1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithObjects(object, newNode("n1", "cpu=4 memory=8Gi")).WithStatusSubresource(&v1alpha1.CRIResize{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: b.patchStatus}).Build()
	b.agent = b.newAgent(t)
	return b
}

func (b *bed) openTree(t *testing.T, unified bool) {
	t.Helper()
	var err error
	if unified {
		b.put(t, "cgroup.controllers", "cpu memory")
	} else {
		b.put(t, "cpu/x", "")
		b.put(t, "memory/x", "")
	}
	if b.tree, err = cgroup.Open(b.root); err != nil {
		t.Fatal(err)
	}
}

// newAgent is also what a restart of the agent makes.
func (b *bed) newAgent(t *testing.T) *Agent {
	t.Helper()
	watcher, err := b.tree.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, end := context.WithCancel(context.Background())
		end()
		if err := watcher.Run(ended, func(string) {}); err != nil { // closes it
			t.Error(err)
		}
	})
	a := &Agent{
		opts:   Options{NodeName: "n1", Namespace: v1alpha1.AgentNamespace, Identity: "agent-1"},
		client: b.client, runtime: b, tree: b.tree, watcher: watcher, clock: b.clock, pods: newPods(), finder: newFinder(),
	}
	a.lock.held.Store(true)
	return a
}

func (b *bed) patchStatus(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if b.report != nil {
		if err := b.report(); err != nil {
			return err
		}
	}
	if object, ok := o.(*v1alpha1.CRIResize); ok {
		b.reports = append(b.reports, *object.Status.DeepCopy())
	}
	return c.SubResource(sub).Patch(ctx, o, p, opts...)
}

// Pod, Check and Update play the container runtime.
func (b *bed) Pod(context.Context, string) (cri.Pod, error) { return b.pod, b.podErr }

func (b *bed) Sandbox(context.Context, string) (cri.Pod, error) { return b.pod, b.podErr }

func (b *bed) Sandboxes(context.Context) ([]cri.Pod, error) { return []cri.Pod{b.pod}, b.podErr }

func (b *bed) Check(context.Context) error { return b.podErr }

func (b *bed) Update(_ context.Context, id string, r cri.Resources) error {
	container := strings.TrimPrefix(id, "c-")
	pod, err := b.tree.Read(podPath)
	if err != nil {
		return err
	}
	b.updates, b.seen = append(b.updates, container), append(b.seen, pod)
	if b.fail != nil {
		if err := b.fail(container); err != nil {
			return err
		}
	}
	return b.write(podPath+"/"+id, figures.Cgroup{Shares: r.CPUShares, Quota: r.CPUQuota, Period: r.CPUPeriod, Memory: r.MemoryLimit})
}

func (b *bed) write(path string, f figures.Cgroup) error {
	text := func(v int64) string {
		if v == figures.Unlimited && b.tree.Unified() {
			return "max"
		}
		return strconv.FormatInt(v, 10)
	}
	files := map[string]string{
		"cpu" + path + "/cpu.shares": text(f.Shares), "cpu" + path + "/cpu.cfs_quota_us": text(f.Quota), "cpu" + path + "/cpu.cfs_period_us": text(f.Period),
		"memory" + path + "/memory.limit_in_bytes": text(f.Memory),
	}
	if b.tree.Unified() {
		files = map[string]string{
			path + "/cpu.weight": strconv.FormatUint(cgroup.Weight(uint64(f.Shares)), 10), path + "/cpu.max": text(f.Quota) + " " + text(f.Period), //nolint:gosec // G115: 2 to 262144
			path + "/memory.max": text(f.Memory),
		}
	}
	for file, content := range files {
		full := filepath.Join(b.root, file)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) set(t *testing.T, path string, f figures.Cgroup) {
	t.Helper()
	if err := b.write(path, f); err != nil {
		t.Fatal(err)
	}
}

// uses says how much memory a cgroup uses.
func (b *bed) uses(t *testing.T, path string, bytes int64) {
	t.Helper()
	if b.tree.Unified() {
		b.put(t, path+"/memory.current", strconv.FormatInt(bytes, 10))
		b.put(t, path+"/memory.stat", "inactive_file 0")
		b.put(t, path+"/cgroup.events", "populated 1")
		return
	}
	b.put(t, "memory"+path+"/memory.usage_in_bytes", strconv.FormatInt(bytes, 10))
	b.put(t, "memory"+path+"/memory.stat", "total_inactive_file 0")
}

func (b *bed) put(t *testing.T, file, content string) {
	t.Helper()
	full := filepath.Join(b.root, file)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// kernel tells what the three cgroups hold.
func (b *bed) kernel(t *testing.T) map[string]cgroup.Values {
	t.Helper()
	out := map[string]cgroup.Values{}
	for _, path := range []string{podPath, podPath + "/c-app", podPath + "/c-log"} {
		values, err := b.tree.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(strings.TrimPrefix(path, podPath), "/c-")] = values
	}
	return out
}

// holds checks that pod and containers have the figures.
func (b *bed) holds(t *testing.T, want figures.Pod) {
	t.Helper()
	kernel := b.kernel(t)
	for what, f := range map[string]figures.Cgroup{"": want.Cgroup, "app": want.Containers["app"], "log": want.Containers["log"]} {
		if d := differs(kernel[what], []figures.Cgroup{f}); d != "" {
			t.Errorf("cgroup %q: %s", what, d)
		}
	}
}

// look has the agent look at the pod once.
func (b *bed) look(t *testing.T) (ctrl.Result, error) {
	t.Helper()
	return b.agent.Reconcile(t.Context(), ctrl.Request{NamespacedName: name})
}

// says checks the agent's verdict in the object's status.
func (b *bed) says(t *testing.T, reason string, say ...string) *v1alpha1.CRIResize {
	t.Helper()
	object := &v1alpha1.CRIResize{}
	if err := b.client.Get(t.Context(), name, object); err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionApplied)
	if c == nil {
		t.Fatal("no condition Applied")
	}
	if (c.Status == metav1.ConditionTrue) != (reason == v1alpha1.ReasonApplied) || c.Reason != reason || c.ObservedGeneration != object.Generation {
		t.Errorf("got Applied %s/%s of generation %d: %s; want %s of %d", c.Status, c.Reason, c.ObservedGeneration, c.Message, reason, object.Generation)
	}
	for _, s := range say {
		if !strings.Contains(c.Message, s) || strings.Contains(c.Message, "\n") {
			t.Errorf("message %q does not say %q on one line", c.Message, s)
		}
	}
	return object
}

// reason is that of the agent's verdict.
func (b *bed) reason(t *testing.T) string {
	t.Helper()
	object := &v1alpha1.CRIResize{}
	if err := b.client.Get(t.Context(), name, object); err != nil {
		t.Fatal(err)
	}
	return meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionApplied).Reason
}

// change changes what is asked for.
func (b *bed) change(t *testing.T, f func(*v1alpha1.CRIResizeSpec)) {
	t.Helper()
	object := &v1alpha1.CRIResize{}
	if err := b.client.Get(t.Context(), name, object); err != nil {
		t.Fatal(err)
	}
	f(&object.Spec)
	object.Generation++
	if err := b.client.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// passes lets time pass.
func (b *bed) passes(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

// restarts gives the container app another run, as the kubelet does: from spec.
func (b *bed) restarts(t *testing.T, id string) {
	t.Helper()
	b.stops("app")
	b.pod.Containers = append(b.pod.Containers, cri.Container{ID: id, Name: "app", RestartCount: 1, CgroupsPath: podPath + "/" + id})
	b.set(t, podPath+"/"+id, figures.Before(&newObject().Spec).Containers["app"])
	b.uses(t, podPath+"/"+id, 1<<20)
}

// stops ends a container.
func (b *bed) stops(container string) {
	b.pod.Containers = slices.DeleteFunc(b.pod.Containers, func(c cri.Container) bool { return c.Name == container })
}

// versions are the cgroup versions to test on, and whether they are the unified one.
func versions() map[string]bool { return map[string]bool{"v1": false, "v2": true} }
