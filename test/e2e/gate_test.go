//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/podresize/podresize/fallback"
	"github.com/podresize/podresize/featuregate"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

const (
	inPlaceRegion = "eu" // of node n1
	criRegion     = "us" // of node n2, whose kubelet is too old
)

// TestGate rolls resizing out over two regions, by a process that is restarted on the way. It runs with the suites on 1.37.
func TestGate(t *testing.T) {
	if !slices.ContainsFunc(settings(t), func(s setting.Setting) bool { return s.Name == "1.37" }) {
		return
	}
	if os.Geteuid() != 0 {
		t.Fatal("a cluster needs root: for cgroups, mounts and network")
	}
	region := func(name string) map[string]string { return map[string]string{corev1.LabelTopologyRegion: name} }
	e := startWith(t, cluster.Config{
		Name: clusterName(gateCluster), Kubernetes: "1.37", // with a node older than Kubernetes supports, so that no third release has to be built
		Nodes: []cluster.Node{
			{Name: "n1", Labels: region(inPlaceRegion)},
			{Name: "n2", Labels: region(criRegion), Kubernetes: "1.26"},
		},
	})
	e.deploy(t)
	e.apply(t, "e2e/manifests/rollout")
	e.bindRollout(t)
	r := &rollout{env: e, all: t, nodes: e.watchNodes(t)}
	r.start()
	t.Cleanup(func() { r.stop() })

	// In this order: each begins with what the one before has left.
	t.Run("NoPolicy", r.testNoPolicy)
	t.Run("On", r.testOn)
	t.Run("Observe", r.testObserve)
	t.Run("BrokenPolicy", r.testBrokenPolicy)
	t.Run("Halt", r.testHalt)
	t.Run("Restarted", r.testRestarted)
	t.Run("Cleared", r.testCleared)
	t.Run("KillSwitch", r.testKillSwitch)
	t.Run("LeastPrivilege", r.testRolloutPrivilege) // looks back on the others
}

const gateCluster = "e2e-gate"

// rollout is a small reconciler: the process that resizes pods as far as the gate lets it.
type rollout struct {
	*env
	all   *testing.T // the process outlives the parts of the test
	nodes corev1listers.NodeLister
	stop  func()

	mu      sync.Mutex
	gate    *featuregate.Gate
	wants   map[string]resize.Resources
	answers map[string]answered
}

type answered struct {
	res resize.Result
	err error
}

func (e *env) watchNodes(t *testing.T) corev1listers.NodeLister {
	t.Helper()
	factory := informers.NewSharedInformerFactory(e.Client(), 0)
	nodes := factory.Core().V1().Nodes().Lister()
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return nodes
}

// bindRollout gives the group of the Resizers the role of a process with a gate.
func (e *env) bindRollout(t *testing.T) {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "podresize-rollout"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: resizers}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "podresize-rollout"},
	}
	if _, err := e.Client().RbacV1().RoleBindings(v1alpha1.AgentNamespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.waitAllowed(t, resizerUser, authorizationv1.ResourceAttributes{
		Namespace: v1alpha1.AgentNamespace, Verb: "watch", Resource: "configmaps", Name: featuregate.PolicyConfigMap,
	})
}

// start starts the process; it remembers nothing of one before.
func (r *rollout) start() {
	t := r.all
	config := r.as(t, resizerUser, resizers)
	config.QPS = -1
	client := newKubernetes(t, config)
	gate, err := featuregate.NewGate(featuregate.GateOptions{
		Nodes: func(_ context.Context, name string) (*corev1.Node, error) { return r.nodes.Get(name) },
		Halts: featuregate.NewConfigMapHalts(client, v1alpha1.AgentNamespace, featuregate.HaltConfigMap),
	})
	if err != nil {
		t.Fatal(err)
	}
	resizer := resize.NewAdapter(client, fallback.New(newClient(t, config), fallback.Options{}), resize.InPlaceOptions{}).Gated(gate)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		policy := featuregate.ConfigMap(client, v1alpha1.AgentNamespace, featuregate.PolicyConfigMap, featuregate.PolicyKey)
		if err := gate.Run(ctx, policy); err != nil {
			t.Error(err)
		}
	})
	group.Go(func() { r.reconcile(ctx, gate, resizer) })
	r.mu.Lock()
	r.gate, r.answers = gate, map[string]answered{}
	r.mu.Unlock()
	r.stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
}

// reconcile asks for all wants again and again, far more often than RetryAfter says.
func (r *rollout) reconcile(ctx context.Context, gate *featuregate.Gate, resizer resize.Resizer) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.mu.Lock()
		wants := maps.Clone(r.wants)
		r.mu.Unlock()
		for name, w := range wants {
			pod, err := r.pods.Get(name)
			if err != nil {
				continue // not seen yet
			}
			res, err := resizer.Resize(ctx, pod, w)
			if ctx.Err() != nil {
				return
			}
			if err := gate.Report(ctx, pod, res, err); err != nil && ctx.Err() == nil {
				r.all.Errorf("reporting: %v", err)
			}
			r.mu.Lock()
			if fmt.Sprint(r.wants[name]) == fmt.Sprint(w) {
				r.answers[name] = answered{res, err}
			}
			r.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// want asks for so much CPU for a pod from now on.
func (r *rollout) want(name, cpu string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wants == nil {
		r.wants = map[string]resize.Resources{}
	}
	r.wants[name] = want{"app": {cpu: cpu}}.resources()
	delete(r.answers, name)
}

func (r *rollout) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.wants, name)
}

// expect waits for an answer.
func (r *rollout) expect(t *testing.T, name string, path resize.Path, state resize.State, reason resize.Reason) resize.Result {
	t.Helper()
	var got answered
	eventually(t, fmt.Sprintf("%s is %s (%s)", name, state, reason), func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		got = r.answers[name]
		if got.err != nil {
			return got.err
		}
		if got.res.State != state || got.res.Reason != reason || got.res.Path != path {
			return fmt.Errorf("%s %s (%s): %s", got.res.Path, got.res.State, got.res.Reason, got.res.Message)
		}
		return nil
	})
	return got.res
}

func (r *rollout) done(t *testing.T, name string, path resize.Path) {
	t.Helper()
	r.expect(t, name, path, resize.StateDone, resize.ReasonConfirmed)
}

// policy puts a policy into its ConfigMap.
func (r *rollout) policy(t *testing.T, text string) {
	t.Helper()
	configMaps := r.Client().CoreV1().ConfigMaps(v1alpha1.AgentNamespace)
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: featuregate.PolicyConfigMap},
		Data:       map[string]string{featuregate.PolicyKey: "apiVersion: podresize.dev/v1alpha1\nkind: RolloutPolicy\n" + text},
	}
	_, err := configMaps.Create(t.Context(), object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = configMaps.Update(t.Context(), object, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// writes are the requests of the process that might have changed something, dry runs too, since there were so many.
func (r *rollout) writes(t *testing.T, since int) []string {
	t.Helper()
	events, err := r.Audit(t.Context(), func(a cluster.AuditEvent) bool {
		return a.User.Username == resizerUser && (a.Mutating() || a.DryRun()) && (a.ObjectRef.Resource == "pods" || a.ObjectRef.Resource == "criresizes")
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range events[since:] {
		what := fmt.Sprintf("%s %s/%s", a.Verb, a.ObjectRef.Resource, a.ObjectRef.Subresource)
		if a.DryRun() {
			what = "dry run: " + what
		}
		out = append(out, what)
	}
	slices.Sort(out)
	return out
}

// onNode runs a pod of 100m CPU on a node.
func (r *rollout) onNode(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	p := pod(name, container("app", amounts{"100m/200m", "64Mi/128Mi"}))
	p.Namespace, p.Spec.NodeName = namespace, node
	running, err := r.RunPod(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return running
}

const (
	eu, us    = "gate-eu", "gate-us"
	twoPaths  = "regions:\n  - {name: eu, inPlace: On}\n  - {name: us, cri: On}\n"
	haltOfTwo = "halt: {window: 10m, ratio: 70%, minimum: 3, failures: [NodeFull]}\n"
)

// figuresAt are what the kernel has for so many milli-CPU, with twice as much as the limit.
func figuresAt(milli int64) kernel {
	f := figures{Shares: milli * 1024 / 1000, Quota: milli * 2 * 100, Memory: 128 * mi}
	return kernel{"": f, "app": f}
}

func (r *rollout) testNoPolicy(t *testing.T) {
	r.onNode(t, eu, "n1")
	r.onNode(t, us, "n2")
	r.want(eu, "150m/300m")
	r.want(us, "150m/300m")
	for name, path := range map[string]resize.Path{eu: resize.PathInPlace, us: resize.PathCRI} {
		res := r.expect(t, name, path, resize.StateRefused, resize.ReasonGateOff)
		equal(t, "message", res.Message, "no policy has been read yet")
	}
	equal(t, "writes", r.writes(t, 0), []string(nil))
}

// testOn: a region goes in place and the other by CRI, each by the policy and by what its node can do.
func (r *rollout) testOn(t *testing.T) {
	r.policy(t, "regions:\n  - {name: eu, cri: On}\n  - {name: us, inPlace: On}\n") // the wrong way round
	for name, path := range map[string]resize.Path{eu: resize.PathInPlace, us: resize.PathCRI} {
		eventually(t, "the policy is in force", func() error {
			res := r.expect(t, name, path, resize.StateRefused, resize.ReasonGateOff)
			if !strings.Contains(res.Message, "the policy does not name this path") {
				return errors.New(res.Message)
			}
			return nil
		})
	}
	equal(t, "writes", r.writes(t, 0), []string(nil))
	r.policy(t, twoPaths)
	r.done(t, eu, resize.PathInPlace)
	r.done(t, us, resize.PathCRI)
	for _, name := range []string{eu, us} {
		equal(t, "the kernel of "+name, r.read(t, r.live(t, name)), figuresAt(150))
	}
	equal(t, "writes", r.writes(t, 0), []string{"create criresizes/", "patch pods/resize"})
}

func (r *rollout) live(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return r.latest(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// testObserve: one dry run for each pod and want, however often it is asked for, and nothing changes.
func (r *rollout) testObserve(t *testing.T) {
	before := len(r.writes(t, 0))
	generations := map[string]int64{eu: r.live(t, eu).Generation, us: r.live(t, us).Generation}
	r.policy(t, "default: {inPlace: Observe, cri: Observe}\n")
	r.want(eu, "200m/400m")
	r.want(us, "200m/400m")
	for name, path := range map[string]resize.Path{eu: resize.PathInPlace, us: resize.PathCRI} {
		res := r.expect(t, name, path, resize.StateRefused, resize.ReasonObserved)
		if res.WouldBe == nil || res.WouldBe.State != resize.StateInProgress || res.WouldBe.Reason != resize.ReasonSent {
			t.Errorf("%s would be %+v", name, res.WouldBe)
		}
	}
	r.rounds(t, 10)
	equal(t, "writes", r.writes(t, before), []string{"dry run: patch pods/resize", "dry run: update criresizes/"})
	r.want(eu, "100000m/100000m") // what would be refused is told as well
	if res := r.expect(t, eu, resize.PathInPlace, resize.StateRefused, resize.ReasonObserved); res.WouldBe.Reason != resize.ReasonNodeTooSmall && res.WouldBe.Reason != resize.ReasonQOSChange {
		t.Errorf("would be %+v", res.WouldBe)
	}
	for _, name := range []string{eu, us} {
		p := r.live(t, name)
		equal(t, "the kernel of "+name, r.read(t, p), figuresAt(150))
		equal(t, "generation of "+name, p.Generation, generations[name])
	}
	for _, request := range r.writes(t, before) {
		if !strings.HasPrefix(request, "dry run: ") {
			t.Errorf("%s", request)
		}
	}
}

// rounds waits until the reconciler has asked for everything so many times more.
func (r *rollout) rounds(t *testing.T, n int) {
	t.Helper()
	for range n {
		r.mu.Lock()
		r.answers = map[string]answered{}
		r.mu.Unlock()
		eventually(t, "another round", func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.answers) < len(r.wants) {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

func (r *rollout) testBrokenPolicy(t *testing.T) {
	before := len(r.writes(t, 0))
	r.want(eu, "210m/420m")
	r.policy(t, "default: {inPlace: Sometimes}\n")
	eventually(t, "the broken policy is reported", func() error {
		if err := r.gate.Broken(); err == nil || err.Error() != `default.inPlace: "Sometimes" is none of Off, Observe, On and a percentage such as 25%` {
			return fmt.Errorf("reported is %w", errors.Join(err))
		}
		return nil
	})
	r.rounds(t, 3)
	r.expect(t, eu, resize.PathInPlace, resize.StateRefused, resize.ReasonObserved)
	equal(t, "writes", r.writes(t, before), []string{"dry run: patch pods/resize"})
}

// testHalt: kubelets that have no room for what is asked for fail resizes until the region is halted. The others go on.
func (r *rollout) testHalt(t *testing.T) {
	node, err := r.nodes.Get("n1")
	if err != nil {
		t.Fatal(err)
	}
	tooMuch := node.Status.Allocatable.Cpu().DeepCopy()
	tooMuch.Sub(resource.MustParse("100m"))
	asked := tooMuch.String() + "/" + node.Status.Allocatable.Cpu().String()
	r.policy(t, twoPaths+haltOfTwo)
	r.done(t, eu, resize.PathInPlace)
	r.done(t, us, resize.PathCRI)
	names := []string{"gate-eu-0", "gate-eu-1", "gate-eu-2"}
	for _, name := range names {
		r.onNode(t, name, "n1")
	}
	for _, name := range names {
		r.want(name, asked)
		eventually(t, name+" does not fit", func() error { return r.deferred(t, name) })
	}
	const why = "3 of 4 resizes within 10m0s failed, more than 70%: 3 NodeFull"
	r.expectHalted(t, why)
	halts, err := r.Client().CoreV1().ConfigMaps(v1alpha1.AgentNamespace).Get(t.Context(), featuregate.HaltConfigMap, metav1.GetOptions{})
	if err != nil || len(halts.Data) != 1 || !strings.Contains(halts.Data[inPlaceRegion], why) {
		t.Errorf("the ConfigMap has %v, %v", halts.Data, err)
	}
	events, err := r.Client().CoreV1().Events(v1alpha1.AgentNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + featuregate.ReasonRegionHalted})
	if err != nil || len(events.Items) != 1 || events.Items[0].Message != `region "eu" is halted: `+why {
		t.Errorf("events: %v, %v", events.Items, err)
	}
	// What was sent may be taken back.
	for _, name := range names {
		r.want(name, "100m/200m")
		r.done(t, name, resize.PathInPlace)
		equal(t, "the kernel of "+name, r.read(t, r.live(t, name)), figuresAt(100))
		r.forget(name)
	}
	r.want(us, "250m/500m")
	r.done(t, us, resize.PathCRI)
}

// deferred says that what the pod was asked for is waiting for room, whether the region is halted by now or not.
func (r *rollout) deferred(t *testing.T, name string) error {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.answers[name]
	if got.err != nil {
		return got.err
	}
	if got.res.State != resize.StateDeferred || got.res.Reason != resize.ReasonNodeFull {
		return fmt.Errorf("%s (%s): %s", got.res.State, got.res.Reason, got.res.Message)
	}
	return nil
}

// expectHalted asks for something new in the region that is halted.
func (r *rollout) expectHalted(t *testing.T, why string) {
	t.Helper()
	r.want(eu, "300m/600m")
	res := r.expect(t, eu, resize.PathInPlace, resize.StateRefused, resize.ReasonGateOff)
	equal(t, "message", res.Message, `region "eu" was halted: a person has to clear that: `+why)
}

func (r *rollout) testRestarted(t *testing.T) {
	before := len(r.writes(t, 0))
	r.stop()
	r.start()
	r.rounds(t, 3)
	res := r.expect(t, eu, resize.PathInPlace, resize.StateRefused, resize.ReasonGateOff)
	if !strings.HasPrefix(res.Message, `region "eu" was halted`) {
		t.Error(res.Message)
	}
	r.done(t, us, resize.PathCRI)
	equal(t, "writes", r.writes(t, before), []string(nil))
	equal(t, "the kernel", r.read(t, r.live(t, eu)), figuresAt(210))
}

// testCleared: a person removes the region from the ConfigMap, as docs/rollout.md says.
func (r *rollout) testCleared(t *testing.T) {
	patch := []byte(`{"data":{"eu":null}}`)
	_, err := r.Client().CoreV1().ConfigMaps(v1alpha1.AgentNamespace).Patch(t.Context(), featuregate.HaltConfigMap, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.done(t, eu, resize.PathInPlace)
	equal(t, "the kernel", r.read(t, r.live(t, eu)), figuresAt(300))
}

// testKillSwitch: nothing is sent any more, and the agents let go of what they hold; the pods keep it.
func (r *rollout) testKillSwitch(t *testing.T) {
	r.policy(t, twoPaths+"killSwitch: {active: true, enforcement: Stop, message: see INC-1}\n")
	r.expect(t, us, resize.PathCRI, resize.StateRefused, resize.ReasonNotEnforced)
	before := len(r.writes(t, 0))
	if object := r.criResize(t, r.live(t, us)); object.Spec.Enforce == nil || *object.Spec.Enforce {
		t.Error("the CRIResize is still enforced")
	}
	for _, name := range []string{eu, us} {
		r.want(name, "110m/220m")
	}
	for name, path := range map[string]resize.Path{eu: resize.PathInPlace, us: resize.PathCRI} {
		res := r.expect(t, name, path, resize.StateRefused, resize.ReasonGateOff)
		equal(t, "message", res.Message, "the roll-out's kill switch is active: see INC-1")
	}
	equal(t, "the kernel of "+us, r.read(t, r.live(t, us)), figuresAt(250))
	equal(t, "writes", r.writes(t, before), []string(nil))
	r.policy(t, twoPaths)
	r.done(t, eu, resize.PathInPlace)
	r.done(t, us, resize.PathCRI)
	for _, name := range []string{eu, us} {
		equal(t, "the kernel of "+name, r.read(t, r.live(t, name)), figuresAt(110))
	}
}

// testRolloutPrivilege: the roles of manifests/ were enough.
func (r *rollout) testRolloutPrivilege(t *testing.T) {
	for _, request := range r.audit(t, func(a cluster.AuditEvent) bool { return a.User.Username == resizerUser }) {
		if strings.HasSuffix(request, " 403") && !strings.HasPrefix(request, "list ") { // it may not list all pods: that is only warned of
			t.Errorf("forbidden: %s", request)
		}
	}
}
