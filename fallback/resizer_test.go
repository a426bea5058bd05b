package fallback_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podresize/podresize/fallback"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

var start = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

// list reads "cpu=100m memory=1Gi".
func list(s string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for field := range strings.FieldsSeq(s) {
		name, quantity, _ := strings.Cut(field, "=")
		out[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return out
}

func want(requests, limits string) resize.Resources {
	return resize.Resources{Containers: map[string]resize.Requirements{"app": {Requests: list(requests), Limits: list(limits)}}}
}

func wanted(requests, limits string) v1alpha1.Requirements {
	return v1alpha1.Requirements{Requests: list(requests), Limits: list(limits)}
}

// newPod is the Burstable pod "shop/web" on node "n1" with a container "app", an init container and a sidecar.
func newPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1"},
		Spec: corev1.PodSpec{
			NodeName: "n1", Overhead: list("cpu=10m"),
			InitContainers: []corev1.Container{
				{Name: "setup", Resources: corev1.ResourceRequirements{Requests: list("cpu=1")}},
				{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
				Requests: list("cpu=100m memory=128Mi ephemeral-storage=1Gi"), Limits: list("cpu=200m memory=256Mi"),
			}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable,
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "app", ContainerID: "containerd://c1", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
}

// bed is a Resizer with the objects that it reads and writes.
type bed struct {
	resizer *fallback.Resizer
	client  client.Client
	clock   *clocktesting.FakePassiveClock
	writes  []string
	written time.Time // when the last write was
}

// newBed has a node of 4 CPUs whose agent renewed its Lease 10 s ago. funcs come before the store.
func newBed(t *testing.T, funcs interceptor.Funcs, extra ...client.Object) *bed {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := fallback.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := &bed{clock: clocktesting.NewFakePassiveClock(start)}
	create, update, get := funcs.Create, funcs.Update, funcs.Get
	if get == nil {
		get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return c.Get(ctx, key, o, opts...)
		}
	}
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := get(ctx, c, key, o, opts...)
		if _, ours := o.(*v1alpha1.CRIResize); ours && err == nil {
			o.SetManagedFields([]metav1.ManagedFieldsEntry{{Time: ptr.To(metav1.NewTime(b.written))}})
		}
		return err
	}
	funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		b.writes, b.written = append(b.writes, "create"), b.clock.Now()
		o.SetCreationTimestamp(metav1.NewTime(b.clock.Now())) // as an API server does
		o.SetGeneration(1)
		if create != nil {
			return create(ctx, c, o, opts...)
		}
		return c.Create(ctx, o, opts...)
	}
	funcs.Update = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
		if _, ours := o.(*v1alpha1.CRIResize); !ours {
			return c.Update(ctx, o, opts...)
		}
		b.writes, b.written = append(b.writes, "update"), b.clock.Now()
		o.SetGeneration(o.GetGeneration() + 1)
		if update != nil {
			return update(ctx, c, o, opts...)
		}
		return c.Update(ctx, o, opts...)
	}
	objects := slices.Concat(extra, []client.Object{
		newPod(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: list("cpu=4 memory=8Gi")}},
	})
	if !slices.ContainsFunc(extra, func(o client.Object) bool { return o.GetNamespace() == v1alpha1.AgentNamespace }) {
		objects = append(objects, lease(10*time.Second))
	}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithStatusSubresource(&v1alpha1.CRIResize{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }). //nolint:forcetypeassert // of a Pod
		WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	b.resizer = fallback.New(b.client, fallback.Options{Clock: b.clock})
	return b
}

func lease(age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: v1alpha1.AgentLeaseName("n1")},
		Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(start.Add(-age)))},
	}
}

func (b *bed) expect(t *testing.T, pod *corev1.Pod, want resize.Resources, state resize.State, reason resize.Reason) resize.Result {
	t.Helper()
	res, err := b.resizer.Resize(t.Context(), pod, want)
	if err != nil {
		t.Fatal(err)
	}
	if res.State != state || res.Reason != reason {
		t.Fatalf("got %s/%s: %s; want %s/%s", res.State, res.Reason, res.Message, state, reason)
	}
	if ends := state == resize.StateDone || state == resize.StateInfeasible; ends != (res.RetryAfter == 0) {
		t.Errorf("%s with RetryAfter %s", state, res.RetryAfter)
	}
	return res
}

func (b *bed) object(t *testing.T) *v1alpha1.CRIResize {
	t.Helper()
	object := &v1alpha1.CRIResize{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "uid-1"}, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// answer is what the agent says of the object as it is.
func (b *bed) answer(t *testing.T, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	object := b.object(t)
	meta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionApplied, Status: status, Reason: reason, Message: message,
		ObservedGeneration: object.Generation, LastTransitionTime: metav1.NewTime(b.clock.Now()),
	})
	shares := int64(204)
	kernel := v1alpha1.Kernel{CPUShares: &shares, CPUQuotaMicroseconds: 40000, CPUPeriodMicroseconds: 100000, MemoryLimitBytes: -1}
	object.Status.Pod = &kernel
	object.Status.Containers = []v1alpha1.ContainerKernel{{Name: "app", ContainerID: "c1", RestartCount: 2, Kernel: kernel}}
	if err := b.client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// renew has the agent renew its Lease, by its own clock.
func (b *bed) renew(t *testing.T, at time.Time) {
	t.Helper()
	object := &coordinationv1.Lease{}
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(lease(0)), object); err != nil {
		t.Fatal(err)
	}
	object.Spec.RenewTime = ptr.To(metav1.NewMicroTime(at))
	if err := b.client.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) later(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

// TestObjectIsComplete: the agent reads nothing but this object.
func TestObjectIsComplete(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	res := b.expect(t, newPod(), want("cpu=200m", "cpu=400m"), resize.StateInProgress, resize.ReasonSent)
	if diff := cmp.Diff(ptr.To(want("cpu=100m", "cpu=200m")), res.Previous); diff != "" {
		t.Errorf("Previous: %s", diff)
	}
	object := b.object(t)
	if diff := cmp.Diff(v1alpha1.CRIResizeSpec{
		PodName: "web", PodUID: "uid-1", NodeName: "n1", Enforce: ptr.To(true), QOSClass: corev1.PodQOSBurstable, Overhead: list("cpu=10m"),
		InitContainers: []v1alpha1.InitContainer{
			{Name: "setup", Resources: v1alpha1.Requirements{Requests: list("cpu=1")}},
			{Name: "proxy", Sidecar: true},
		},
		Containers: []v1alpha1.Container{{
			Name: "app", Before: wanted("cpu=100m memory=128Mi", "cpu=200m memory=256Mi"), Wanted: wanted("cpu=200m memory=128Mi", "cpu=400m memory=256Mi"),
		}},
	}, object.Spec); diff != "" {
		t.Error(diff)
	}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "uid-1"}}
	if diff := cmp.Diff(owner, object.OwnerReferences); diff != "" || object.Labels[v1alpha1.LabelNode] != "n1" {
		t.Errorf("labels %v, owners: %s", object.Labels, diff)
	}
}

// TestMerge: cpu and then memory end with both, and what is asked for already is not written again.
func TestMerge(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	b.expect(t, newPod(), want("cpu=200m", "cpu=400m"), resize.StateInProgress, resize.ReasonSent)
	b.expect(t, newPod(), want("cpu=300m", ""), resize.StateInProgress, resize.ReasonSent) // above spec's limit, not above the object's
	res := b.expect(t, newPod(), want("memory=256Mi", "memory=512Mi"), resize.StateInProgress, resize.ReasonSent)
	if diff := cmp.Diff(ptr.To(want("memory=128Mi", "memory=256Mi")), res.Previous); diff != "" {
		t.Errorf("Previous: %s", diff)
	}
	if diff := cmp.Diff(wanted("cpu=300m memory=256Mi", "cpu=400m memory=512Mi"), b.object(t).Spec.Containers[0].Wanted); diff != "" {
		t.Error(diff)
	}
	for _, again := range []resize.Resources{want("cpu=0.3", ""), want("memory=256Mi", "memory=512Mi"), want("", ""), {}} {
		b.expect(t, newPod(), again, resize.StateInProgress, resize.ReasonWaitingForAgent)
	}
	if diff := cmp.Diff([]string{"create", "update", "update"}, b.writes); diff != "" {
		t.Errorf("writes: %s", diff)
	}
}

// TestReadMergeAgain: somebody else writes between our read and our write.
func TestReadMergeAgain(t *testing.T) {
	t.Run("conflict", func(t *testing.T) {
		meddled := false
		b := newBed(t, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if !meddled {
				meddled = true
				other := &v1alpha1.CRIResize{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), other); err != nil {
					return err
				}
				other.Spec.Containers[0].Wanted.Requests[corev1.ResourceMemory] = resource.MustParse("200Mi")
				if err := c.Update(ctx, other); err != nil {
					return err
				}
			}
			return c.Update(ctx, o, opts...)
		}})
		b.expect(t, newPod(), want("cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
		b.expect(t, newPod(), want("cpu=160m", ""), resize.StateInProgress, resize.ReasonSent)
		if diff := cmp.Diff(list("cpu=160m memory=200Mi"), corev1.ResourceList(b.object(t).Spec.Containers[0].Wanted.Requests)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"create", "update", "update"}, b.writes); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("already exists", func(t *testing.T) {
		b := newBed(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			other, ok := o.DeepCopyObject().(*v1alpha1.CRIResize)
			if !ok {
				return errors.New("not a CRIResize")
			}
			other.Spec.Containers[0].Wanted = wanted("cpu=100m memory=200Mi", "cpu=200m memory=256Mi")
			if err := c.Create(ctx, other); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		}})
		b.expect(t, newPod(), want("cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
		if diff := cmp.Diff(list("cpu=150m memory=200Mi"), corev1.ResourceList(b.object(t).Spec.Containers[0].Wanted.Requests)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("for ever", func(t *testing.T) {
		gr := schema.GroupResource{Group: "podresize.dev", Resource: "criresizes"}
		b := newBed(t, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewConflict(gr, "uid-1", errors.New("modified"))
		}})
		_, err := b.resizer.Resize(t.Context(), newPod(), want("cpu=150m", ""))
		checkError(t, err, resize.ReasonConflict, true)
		if len(b.writes) != 5 {
			t.Errorf("%d attempts, want 5", len(b.writes))
		}
	})
}

func checkError(t *testing.T, err error, reason resize.Reason, retryable bool) {
	t.Helper()
	var failure *resize.Error
	if !errors.As(err, &failure) || failure.Reason != reason || failure.Retryable != retryable {
		t.Errorf("got %#v, want %s, retryable %t", err, reason, retryable)
	}
}

// TestNothingWritten for what cannot be, or has nobody to do it.
func TestNothingWritten(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		lease  *coordinationv1.Lease
		want   resize.Resources
		state  resize.State
		reason resize.Reason
		say    string
	}{
		{name: "unknown container", want: resize.Resources{Containers: map[string]resize.Requirements{"db": {Requests: list("cpu=1")}}}, state: resize.StateInfeasible, reason: resize.ReasonUnknownContainer, say: `"db"`},
		{name: "QoS class", want: want("", "cpu=50m"), state: resize.StateInfeasible, reason: resize.ReasonLimitBelowRequest, say: "50m"},
		{name: "bigger than the node", want: want("cpu=5", "cpu=6"), state: resize.StateInfeasible, reason: resize.ReasonNodeTooSmall, say: `"n1"`},
		{name: "ended", change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, want: want("cpu=150m", ""), state: resize.StateInfeasible, reason: resize.ReasonPodEnded, say: "Failed"},
		{name: "pod-level resources", change: func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu=1")} }, want: want("cpu=150m", ""), state: resize.StateInfeasible, reason: resize.ReasonUnsupportedPod, say: "pod-level"},
		{name: "no node", change: func(p *corev1.Pod) { p.Spec.NodeName = "" }, want: want("cpu=150m", ""), state: resize.StateDeferred, reason: resize.ReasonNotRunning, say: "no node"},
		{name: "agent gone", lease: lease(120 * time.Second), want: want("cpu=150m", ""), state: resize.StateDeferred, reason: resize.ReasonAgentNotReady, say: "2m0s ago"},
		{name: "agent not started", lease: &coordinationv1.Lease{ObjectMeta: lease(0).ObjectMeta}, want: want("cpu=150m", ""), state: resize.StateDeferred, reason: resize.ReasonAgentNotReady, say: "has ended"},
		{name: "no agent", lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.AgentNamespace, Name: "another"}}, want: want("cpu=150m", ""), state: resize.StateDeferred, reason: resize.ReasonAgentNotReady, say: "no podresize-agent runs"},
		{name: "nothing asked", want: resize.Resources{}, state: resize.StateDone, reason: resize.ReasonNothingAsked, say: "has what its spec says"},
		{name: "nothing asked, started small", change: startSmall, want: resize.Resources{}, state: resize.StateDone, reason: resize.ReasonNothingAsked, say: "lower limits by its annotation " + v1alpha1.AnnotationStartLimits},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var extra []client.Object
			if tc.lease != nil {
				extra = append(extra, tc.lease)
			}
			b := newBed(t, interceptor.Funcs{}, extra...)
			pod := newPod()
			if tc.change != nil {
				tc.change(pod)
			}
			res := b.expect(t, pod, tc.want, tc.state, tc.reason)
			if !strings.Contains(res.Message, tc.say) || len(b.writes) > 0 {
				t.Errorf("message %q, writes %q", res.Message, b.writes)
			}
		})
	}
}

// TestClockSkew: what counts is that the Lease changes, by our own clock; only at first sight its own time must do.
func TestClockSkew(t *testing.T) {
	asked := want("cpu=150m", "")
	for _, tc := range []struct {
		name  string
		ahead time.Duration // of the agent's clock
		alive bool          // at first sight
	}{
		{name: "a little ahead", ahead: time.Minute, alive: true},
		{name: "far ahead", ahead: 10 * time.Minute},
		{name: "far behind", ahead: -10 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBed(t, interceptor.Funcs{}, lease(-tc.ahead))
			alive := func() bool {
				t.Helper()
				res, err := b.resizer.Resize(t.Context(), newPod(), asked)
				if err != nil {
					t.Fatal(err)
				}
				return res.Reason != resize.ReasonAgentNotReady
			}
			if got := alive(); got != tc.alive {
				t.Fatalf("alive %t at first sight, want %t", got, tc.alive)
			}
			if tc.alive {
				return
			}
			b.later(10 * time.Second)
			if alive() {
				t.Fatal("alive without a renewal")
			}
			b.renew(t, start.Add(tc.ahead+10*time.Second))
			if !alive() {
				t.Error("not alive after a renewal, by whatever clock")
			}
		})
	}
}

// TestFailures: what the API server does not answer, or answers for reasons of its own.
func TestFailures(t *testing.T) {
	gr := schema.GroupResource{Group: "podresize.dev", Resource: "criresizes"}
	for _, tc := range []struct {
		name      string
		err       error
		reason    resize.Reason
		retryable bool
	}{
		{name: "RBAC", err: apierrors.NewForbidden(gr, "uid-1", errors.New(`User "u" cannot get resource "criresizes"`)), reason: resize.ReasonForbidden},
		{name: "another plugin", err: apierrors.NewForbidden(gr, "uid-1", errors.New("not yet ready to handle request")), reason: resize.ReasonUnknown, retryable: true},
		{name: "429", err: apierrors.NewTooManyRequests("later", 1), reason: resize.ReasonUnavailable, retryable: true},
		{name: "500", err: apierrors.NewInternalError(errors.New("etcd")), reason: resize.ReasonUnavailable, retryable: true},
		{name: "502", err: apierrors.NewGenericServerResponse(502, "get", gr, "uid-1", "bad gateway", 0, true), reason: resize.ReasonUnavailable, retryable: true},
		{name: "timeout", err: context.DeadlineExceeded, reason: resize.ReasonUnavailable, retryable: true},
		{name: "connection refused", err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}, reason: resize.ReasonUnavailable, retryable: true},
		{name: "of the future", err: apierrors.NewGenericServerResponse(418, "get", gr, "uid-1", "teapot", 0, true), reason: resize.ReasonUnknown, retryable: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for what, fail := range map[string]client.Object{"reading the object": &v1alpha1.CRIResize{}, "reading the node": &corev1.Node{}, "reading the Lease": &coordinationv1.Lease{}} {
				b := newBed(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if kindOf(o) == kindOf(fail) {
						return tc.err
					}
					return c.Get(ctx, key, o, opts...)
				}})
				_, err := b.resizer.Resize(t.Context(), newPod(), want("cpu=150m", ""))
				checkError(t, err, tc.reason, tc.retryable)
				if !errors.Is(err, tc.err) || len(b.writes) > 0 {
					t.Errorf("%s: %v, writes %q", what, err, b.writes)
				}
			}
		})
	}
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *v1alpha1.CRIResize:
		return "CRIResize"
	case *corev1.Node:
		return "Node"
	case *coordinationv1.Lease:
		return "Lease"
	default:
		return "other"
	}
}

// TestNotInstalled: a cluster without the CRD offers no path.
func TestNotInstalled(t *testing.T) {
	b := newBed(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if kindOf(o) == "CRIResize" {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "podresize.dev", Kind: "CRIResize"}}
		}
		return c.Get(ctx, key, o, opts...)
	}})
	for _, asked := range []resize.Resources{want("cpu=150m", ""), {}} {
		res := b.expect(t, newPod(), asked, resize.StateRefused, resize.ReasonNoPath)
		if res.Path != resize.PathNone || !strings.Contains(res.Message, "manifests/base") {
			t.Errorf("path %q, message %q", res.Path, res.Message)
		}
	}
}

// TestPodReplaced: a CRIResize for a pod that is gone would be collected, or worse, stay.
func TestPodReplaced(t *testing.T) {
	b := newBed(t, interceptor.Funcs{})
	old := newPod()
	old.UID = "uid-0"
	_, err := b.resizer.Resize(t.Context(), old, want("cpu=150m", ""))
	checkError(t, err, resize.ReasonPodNotFound, false)
	if len(b.writes) > 0 {
		t.Errorf("writes %q", b.writes)
	}
}

func startSmall(p *corev1.Pod) {
	p.Annotations = map[string]string{v1alpha1.AnnotationStartLimits: `{"app":{"cpu":"100m"}}`}
}

// TestRaiseToSpec: a pod that was started small is raised to spec by asking for that, with a CRIResize.
func TestRaiseToSpec(t *testing.T) {
	b, pod := newBed(t, interceptor.Funcs{}), newPod()
	startSmall(pod)
	res, err := b.resizer.Resize(t.Context(), pod, want("", "cpu=200m"))
	if err != nil || res.State != resize.StateInProgress {
		t.Fatalf("%+v, %v", res, err)
	}
	if diff := cmp.Diff([]string{"create"}, b.writes); diff != "" {
		t.Error(diff)
	}
}
