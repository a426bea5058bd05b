package resizewatch_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/podresize/podresize/resize/resizewatch"
	"github.com/podresize/podresize/resize/v1alpha1"
)

var _ handler.MapFunc = resizewatch.PodOf

var start = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func resources(cpu string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list(cpu), Limits: list(cpu)}
}

func list(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Mi")}
}

func pointer[T any](v T) *T { return &v }

func containerStatus(name string, started bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://1", Ready: true, Started: &started,
		State:     corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start)}},
		Resources: pointer(resources("100m")), AllocatedResources: list("100m"),
	}
}

// newPod has two containers, an init container, and every field that a change below touches.
func newPod() *corev1.Pod {
	setup := containerStatus("setup", false)
	setup.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1", ResourceVersion: "10", Generation: 2},
		Spec: corev1.PodSpec{
			NodeName: "n1", Resources: pointer(resources("1")),
			Containers:     []corev1.Container{{Name: "app", Resources: resources("100m")}, {Name: "log", Resources: resources("10m")}},
			InitContainers: []corev1.Container{{Name: "setup", Resources: resources("20m")}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSGuaranteed, ObservedGeneration: 2,
			Resources: pointer(resources("1")), AllocatedResources: list("1"),
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "full", LastTransitionTime: metav1.NewTime(start)},
			},
			ContainerStatuses:     []corev1.ContainerStatus{containerStatus("app", true), containerStatus("log", true)},
			InitContainerStatuses: []corev1.ContainerStatus{setup},
		},
	}
}

func TestPodMoved(t *testing.T) {
	app := func(p *corev1.Pod) *corev1.ContainerStatus { return &p.Status.ContainerStatuses[0] }
	setup := func(p *corev1.Pod) *corev1.ContainerStatus { return &p.Status.InitContainerStatuses[0] }
	pending := func(p *corev1.Pod) *corev1.PodCondition { return &p.Status.Conditions[1] }
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		moved  bool
	}{
		{name: "nothing", change: func(*corev1.Pod) {}},
		{name: "a readiness flap", change: func(p *corev1.Pod) {
			p.Status.Conditions[0].Status, app(p).Ready = corev1.ConditionFalse, false
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(time.Hour))
		}},
		{name: "labels, annotations, managed fields", change: func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone"}}
		}},
		{name: "an image", change: func(p *corev1.Pod) { p.Spec.Containers[0].Image, app(p).Image = "localhost/app:2", "localhost/app:2" }},
		{name: "an address", change: func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }},
		{name: "another condition", change: func(p *corev1.Pod) {
			p.Status.Conditions = append([]corev1.PodCondition{{Type: corev1.PodInitialized}}, p.Status.Conditions...)
		}},
		{name: "when a condition was looked at", change: func(p *corev1.Pod) { pending(p).LastProbeTime = metav1.NewTime(start) }},
		{name: "the same amount in other words", change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("0.1")
		}},
		{name: "devices claimed", change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{} }},

		{name: "spec request", change: func(p *corev1.Pod) { p.Spec.Containers[1].Resources.Requests = list("20m") }, moved: true},
		{name: "spec limit", change: func(p *corev1.Pod) { p.Spec.Containers[1].Resources.Limits = list("20m") }, moved: true},
		{name: "spec limit removed", change: func(p *corev1.Pod) { delete(p.Spec.Containers[1].Resources.Limits, "cpu") }, moved: true},
		{name: "spec limit of another resource", change: func(p *corev1.Pod) {
			limits := p.Spec.Containers[1].Resources.Limits
			delete(limits, "cpu")
			limits[corev1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
		}, moved: true},
		{name: "init container's spec", change: func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources = resources("30m") }, moved: true},
		{name: "pod-level spec", change: func(p *corev1.Pod) { p.Spec.Resources = pointer(resources("2")) }, moved: true},
		{name: "pod-level spec unset", change: func(p *corev1.Pod) { p.Spec.Resources = nil }, moved: true},
		{name: "a container more", change: func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "new"}) }, moved: true},
		{name: "a container's name", change: func(p *corev1.Pod) { p.Spec.Containers[0].Name = "new" }, moved: true},
		{name: "node", change: func(p *corev1.Pod) { p.Spec.NodeName = "n2" }, moved: true},
		{name: "generation", change: func(p *corev1.Pod) { p.Generation++ }, moved: true},
		{name: "deletion", change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: start} }, moved: true},
		{name: "another pod of that name", change: func(p *corev1.Pod) { p.UID = "uid-2" }, moved: true},

		{name: "phase", change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, moved: true},
		{name: "QoS class", change: func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBurstable }, moved: true},
		{name: "status.resize", change: func(p *corev1.Pod) { p.Status.Resize = corev1.PodResizeStatusInProgress }, moved: true},
		{name: "observed generation", change: func(p *corev1.Pod) { p.Status.ObservedGeneration++ }, moved: true},
		{name: "pod-level actual", change: func(p *corev1.Pod) { p.Status.Resources = pointer(resources("2")) }, moved: true},
		{name: "pod-level allocated", change: func(p *corev1.Pod) { p.Status.AllocatedResources = list("2") }, moved: true},
		{name: "condition gone", change: func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[:1] }, moved: true},
		{name: "condition new", change: func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizeInProgress})
		}, moved: true},
		{name: "condition's status", change: func(p *corev1.Pod) { pending(p).Status = corev1.ConditionFalse }, moved: true},
		{name: "condition's reason", change: func(p *corev1.Pod) { pending(p).Reason = corev1.PodReasonInfeasible }, moved: true},
		{name: "condition's message", change: func(p *corev1.Pod) { pending(p).Message = "still full" }, moved: true},
		{name: "condition's generation", change: func(p *corev1.Pod) { pending(p).ObservedGeneration = 3 }, moved: true},
		{name: "condition's age", change: func(p *corev1.Pod) { pending(p).LastTransitionTime = metav1.NewTime(start.Add(time.Second)) }, moved: true},

		{name: "actual", change: func(p *corev1.Pod) { app(p).Resources = pointer(resources("200m")) }, moved: true},
		{name: "actual gone: the kubelet's gate is off", change: func(p *corev1.Pod) { app(p).Resources = nil }, moved: true},
		{name: "allocated", change: func(p *corev1.Pod) { app(p).AllocatedResources = list("200m") }, moved: true},
		{name: "container id", change: func(p *corev1.Pod) { app(p).ContainerID = "containerd://2" }, moved: true},
		{name: "restart count", change: func(p *corev1.Pod) { app(p).RestartCount++ }, moved: true},
		{name: "no longer running", change: func(p *corev1.Pod) { app(p).State = corev1.ContainerState{} }, moved: true},
		{name: "exit code", change: func(p *corev1.Pod) { setup(p).State.Terminated.ExitCode = 1 }, moved: true},
		{name: "init container runs", change: func(p *corev1.Pod) {
			setup(p).State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}, moved: true},
		{name: "init container's actual", change: func(p *corev1.Pod) { setup(p).Resources = nil }, moved: true},
		{name: "no status yet", change: func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, moved: true},
		{name: "another container's status", change: func(p *corev1.Pod) { app(p).Name = "new" }, moved: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, after := newPod(), newPod()
			tc.change(after)
			after.ResourceVersion = "11"
			expect(t, resizewatch.PodMoved(), before, after, tc.moved)
			expect(t, resizewatch.PodMoved(), after, before, tc.moved)
		})
	}
}

// expect also checks that the objects, which belong to a cache, are left alone.
func expect(t *testing.T, p predicate.Predicate, before, after client.Object, moved bool) {
	t.Helper()
	beforeCopy, afterCopy := before.DeepCopyObject(), after.DeepCopyObject()
	if got := p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != moved {
		t.Errorf("passes: %t, want %t", got, moved)
	}
	if diff := cmp.Diff(beforeCopy, before); diff != "" {
		t.Errorf("the old object was changed: %s", diff)
	}
	if diff := cmp.Diff(afterCopy, after); diff != "" {
		t.Errorf("the new object was changed: %s", diff)
	}
}

func newCRIResize() *v1alpha1.CRIResize {
	return &v1alpha1.CRIResize{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "uid-1", UID: "uid-of-its-own", ResourceVersion: "10", Generation: 2},
		Spec:       v1alpha1.CRIResizeSpec{PodName: "web", PodUID: "uid-1", NodeName: "n1"},
		Status: v1alpha1.CRIResizeStatus{
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPending,
				Message: "soon", ObservedGeneration: 2, LastTransitionTime: metav1.NewTime(start),
			}},
			Pod: &v1alpha1.Kernel{CPUQuotaMicroseconds: 10000},
		},
	}
}

func TestCRIResizeMoved(t *testing.T) {
	applied := func(r *v1alpha1.CRIResize) *metav1.Condition { return &r.Status.Conditions[0] }
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.CRIResize)
		moved  bool
	}{
		{name: "nothing", change: func(*v1alpha1.CRIResize) {}},
		{name: "labels", change: func(r *v1alpha1.CRIResize) { r.Labels = map[string]string{"a": "b"} }},
		{name: "figures read again", change: func(r *v1alpha1.CRIResize) { r.Status.Pod.CPUQuotaMicroseconds = 20000 }},
		{name: "heartbeat", change: func(r *v1alpha1.CRIResize) { r.Status.Heartbeat = &metav1.MicroTime{Time: start} }},
		{name: "asked for something else", change: func(r *v1alpha1.CRIResize) { r.Generation++ }, moved: true},
		{name: "made anew", change: func(r *v1alpha1.CRIResize) { r.UID = "another" }, moved: true},
		{name: "no answer yet", change: func(r *v1alpha1.CRIResize) { r.Status.Conditions = nil }, moved: true},
		{name: "status", change: func(r *v1alpha1.CRIResize) { applied(r).Status = metav1.ConditionTrue }, moved: true},
		{name: "reason", change: func(r *v1alpha1.CRIResize) { applied(r).Reason = v1alpha1.ReasonMemoryInUse }, moved: true},
		{name: "message", change: func(r *v1alpha1.CRIResize) { applied(r).Message = "later" }, moved: true},
		{name: "observed generation", change: func(r *v1alpha1.CRIResize) { applied(r).ObservedGeneration = 3 }, moved: true},
		{name: "age", change: func(r *v1alpha1.CRIResize) {
			applied(r).LastTransitionTime = metav1.NewTime(start.Add(time.Second))
		}, moved: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, after := newCRIResize(), newCRIResize()
			tc.change(after)
			after.ResourceVersion = "11"
			expect(t, resizewatch.CRIResizeMoved(), before, after, tc.moved)
			expect(t, resizewatch.CRIResizeMoved(), after, before, tc.moved)
		})
	}
}

// TestOthersPass: creations and deletions are always news, and objects of another type are for other predicates.
func TestOthersPass(t *testing.T) {
	other := &corev1.Node{}
	for name, tc := range map[string]struct {
		predicate predicate.Predicate
		own       client.Object
	}{
		"PodMoved":       {resizewatch.PodMoved(), newPod()},
		"CRIResizeMoved": {resizewatch.CRIResizeMoved(), newCRIResize()},
	} {
		t.Run(name, func(t *testing.T) {
			for event, passes := range map[string]bool{
				"create":                   tc.predicate.Create(event.CreateEvent{Object: tc.own}),
				"delete":                   tc.predicate.Delete(event.DeleteEvent{Object: tc.own}),
				"generic":                  tc.predicate.Generic(event.GenericEvent{Object: tc.own}),
				"update of another type":   tc.predicate.Update(event.UpdateEvent{ObjectOld: other, ObjectNew: other}),
				"update to another type":   tc.predicate.Update(event.UpdateEvent{ObjectOld: tc.own, ObjectNew: other}),
				"update from another type": tc.predicate.Update(event.UpdateEvent{ObjectOld: other, ObjectNew: tc.own}),
			} {
				if !passes {
					t.Errorf("%s does not pass", event)
				}
			}
		})
	}
}

func TestPodOf(t *testing.T) {
	want := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}}
	if diff := cmp.Diff(want, resizewatch.PodOf(t.Context(), newCRIResize())); diff != "" {
		t.Error(diff)
	}
	if got := resizewatch.PodOf(t.Context(), newPod()); got != nil {
		t.Errorf("a pod maps to %v", got)
	}
}

// TestPodMovedAllocates holds what the benchmark shows: a busy cluster sends thousands of such events a second.
func TestPodMovedAllocates(t *testing.T) {
	p, e := resizewatch.PodMoved(), event.UpdateEvent{ObjectOld: newPod(), ObjectNew: newPod()}
	if n := testing.AllocsPerRun(100, func() { p.Update(e) }); n > 0 {
		t.Errorf("%.0f allocations for an update that does not pass, want none", n)
	}
}

func BenchmarkPodMovedNothing(b *testing.B) {
	p, e := resizewatch.PodMoved(), event.UpdateEvent{ObjectOld: newPod(), ObjectNew: newPod()}
	b.ReportAllocs()
	for b.Loop() {
		if p.Update(e) {
			b.Fatal("passes")
		}
	}
}
