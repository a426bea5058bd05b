package resize_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/podresize/podresize/resize"
)

func restartOn(res corev1.ResourceName) change {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: res, RestartPolicy: corev1.RestartContainer}}
	}
}

// initContainer adds the init container "setup" with a request of 1 CPU.
func initContainer(limits string, runs bool) change {
	return func(p *corev1.Pod) {
		r := corev1.ResourceRequirements{Requests: list("cpu=1"), Limits: list(limits)}
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "setup", Resources: r})
		s := corev1.ContainerStatus{Name: "setup", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
		if runs {
			s = corev1.ContainerStatus{Name: "setup", State: running(), Resources: &r, AllocatedResources: r.Requests}
		}
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
	}
}

// sidecar makes the first init container one.
func sidecar(p *corev1.Pod) {
	p.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
}

func priority(n int32) change { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

func podLevel(p *corev1.Pod) {
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("cpu=1"), Limits: list("cpu=2")}
}

func TestPlan(t *testing.T) {
	ended := func(phase corev1.PodPhase) change { return func(p *corev1.Pod) { p.Status.Phase = phase } }
	guaranteed := spec("cpu=1 memory=1Gi", "cpu=1 memory=1Gi")
	more := want("app", "cpu=150m", "")
	for _, tc := range []struct {
		name   string
		pod    *corev1.Pod
		node   *corev1.Node
		minor  uint // of the API server; zero: unknown
		cri    bool // the API server has no pods/resize
		want   resize.Resources
		opts   resize.PlanOptions
		state  resize.State // empty: advice, or nothing, is found
		reason resize.Reason
		say    []string
	}{
		{name: "nothing against it", pod: newPod(), node: node("v1.37.2"), want: more},
		{name: "nothing asked", pod: newPod(), node: node("v1.37.2")},
		{name: "up to the limit", pod: newPod(), want: want("app", "cpu=200m memory=128Mi", "")},

		{name: "being deleted", pod: newPod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), want: more, state: resize.StateInfeasible, reason: resize.ReasonPodEnded, say: []string{"shop/web", "deleted"}},
		{name: "succeeded", pod: newPod(ended(corev1.PodSucceeded)), want: more, state: resize.StateInfeasible, reason: resize.ReasonPodEnded, say: []string{"Succeeded"}},
		{name: "failed", pod: newPod(ended(corev1.PodFailed)), want: more, state: resize.StateInfeasible, reason: resize.ReasonPodEnded, say: []string{"Failed"}},
		{name: "mirror pod", pod: newPod(func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }), want: more, state: resize.StateInfeasible, reason: resize.ReasonUnsupportedPod, say: []string{"static pod"}},
		{name: "windows", pod: newPod(func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }), want: more, state: resize.StateInfeasible, reason: resize.ReasonUnsupportedPod, say: []string{"Windows"}},

		{name: "unknown container", pod: newPod(), want: want("db", "cpu=1", ""), state: resize.StateInfeasible, reason: resize.ReasonUnknownContainer, say: []string{`"db"`, "it has app"}},
		{name: "container mistyped", pod: newPod(), want: want("ap", "cpu=1", ""), state: resize.StateInfeasible, reason: resize.ReasonUnknownContainer, say: []string{`did you mean "app"?`}},
		{name: "case-39", pod: newPod(initContainer("", false)), minor: 35, want: want("setup", "cpu=2", ""), state: resize.StateInfeasible, reason: resize.ReasonUnsupportedContainer, say: []string{`"setup"`, "init container", "1.35", "1.36 is the first"}},
		{name: "case-39 on 1.36 and not running", pod: newPod(initContainer("", false)), minor: 36, want: want("setup", "cpu=2", ""), state: resize.StateInfeasible, reason: resize.ReasonUnsupportedContainer, say: []string{"not running"}},
		{name: "case-39 on 1.36", pod: newPod(initContainer("", true)), minor: 36, want: want("setup", "cpu=2", "")},
		{name: "case-38", pod: newPod(initContainer("", true), sidecar), minor: 32, want: want("setup", "cpu=2", ""), state: resize.StateInfeasible, reason: resize.ReasonUnsupportedContainer, say: []string{"sidecar", "1.32", "1.33 is the first"}},
		{name: "case-38 on 1.33", pod: newPod(initContainer("", true), sidecar), minor: 33, want: want("setup", "cpu=2", "")},
		{name: "case-38 on the CRI path", pod: newPod(initContainer("", true), sidecar), cri: true, want: want("setup", "cpu=2", ""), state: resize.StateInfeasible, reason: resize.ReasonUnsupportedContainer, say: []string{"CRI path"}},
		{name: "ephemeral container", pod: newPod(func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
		}), want: want("debug", "cpu=1", ""), state: resize.StateInfeasible, reason: resize.ReasonUnsupportedContainer, say: []string{"ephemeral"}},
		{name: "another resource", pod: newPod(), want: want("app", "ephemeral-storage=1Gi", ""), state: resize.StateInfeasible, reason: resize.ReasonUnsupportedResource, say: []string{"requests.ephemeral-storage"}},
		{name: "negative request", pod: newPod(), want: want("app", "memory=-1", ""), state: resize.StateInfeasible, reason: resize.ReasonInvalidQuantity, say: []string{"requests.memory", "-1"}},
		{name: "case-34 limit removed by zero", pod: newPod(), want: want("app", "", "cpu=0"), state: resize.StateInfeasible, reason: resize.ReasonInvalidQuantity, say: []string{"limits.cpu"}},
		{name: "request of zero", pod: newPod(), want: want("app", "cpu=0", "")},

		{name: "limit below the request that stays", pod: newPod(), want: want("app", "", "memory=64Mi"), state: resize.StateInfeasible, reason: resize.ReasonLimitBelowRequest, say: []string{"limits.memory 64Mi", "requests.memory 128Mi"}},
		{name: "request above the limit that stays", pod: newPod(), want: want("app", "cpu=1", ""), state: resize.StateInfeasible, reason: resize.ReasonLimitBelowRequest, say: []string{"limits.cpu 200m", "requests.cpu 1"}},

		{name: "case-32", pod: newPod(), want: want("app", "cpu=200m memory=256Mi", "cpu=200m memory=256Mi"), state: resize.StateInfeasible, reason: resize.ReasonQOSChange, say: []string{"Burstable to Guaranteed", "below its limit"}},
		{name: "case-32 the other way", pod: newPod(guaranteed), want: want("app", "cpu=500m", ""), state: resize.StateInfeasible, reason: resize.ReasonQOSChange, say: []string{"Guaranteed to Burstable", "together"}},
		{name: "case-32 of no class", pod: newPod(spec("", "")), want: want("app", "cpu=500m", ""), state: resize.StateInfeasible, reason: resize.ReasonQOSChange, say: []string{"BestEffort to Burstable"}},
		{name: "Guaranteed stays", pod: newPod(guaranteed), want: want("app", "cpu=2", "cpu=2")},
		{name: "one of two containers equal", pod: newPod(sidekick("cpu=10m", "cpu=20m")), want: want("app", "cpu=200m memory=256Mi", "")},
		{name: "init container keeps it Burstable", pod: newPod(initContainer("cpu=2", false)), want: want("app", "cpu=200m memory=256Mi", "")},
		{name: "pod-level resources decide", pod: newPod(podLevel), want: want("app", "cpu=200m memory=256Mi", "")},
		{name: "pod-level resources on 1.34", pod: newPod(podLevel), minor: 34, want: more, state: resize.StateInfeasible, reason: resize.ReasonUnsupportedPod, say: []string{"pod-level", "1.34"}},
		{name: "pod-level resources on the CRI path", pod: newPod(podLevel), cri: true, want: more, state: resize.StateInfeasible, reason: resize.ReasonUnsupportedPod, say: []string{"pod-level", "CRI path"}},

		{name: "case-59", pod: newPod(), minor: 33, want: want("app", "", "memory=200Mi"), state: resize.StateInfeasible, reason: resize.ReasonMemoryLimit, say: []string{`"app"`, "from 256Mi to 200Mi", "1.33"}},
		{name: "case-60 a new memory limit", pod: newPod(spec("cpu=100m memory=128Mi", "cpu=200m")), minor: 33, want: want("app", "", "memory=200Mi"), state: resize.StateInfeasible, reason: resize.ReasonMemoryLimit, say: []string{"cannot be added"}},
		{name: "case-59 with a restart", pod: newPod(restartOn("memory")), minor: 33, opts: resize.PlanOptions{AllowRestart: true}, want: want("app", "", "memory=200Mi")},
		{name: "case-59 on 1.32", pod: newPod(), minor: 32, want: want("app", "", "memory=200Mi")},
		{name: "case-59 on 1.34", pod: newPod(), minor: 34, want: want("app", "", "memory=200Mi")},
		{name: "case-59 no way back", pod: newPod(), minor: 33, want: want("app", "", "memory=1Gi"), reason: resize.ReasonNoWayBack, say: []string{"lowered to 256Mi again"}},

		{name: "critical", pod: newPod(priority(2_000_000_000)), want: more, state: resize.StateRefused, reason: resize.ReasonPreemptionNotAllowed, say: []string{"requests.cpu 150m", "ends other pods"}},
		{name: "critical and allowed", pod: newPod(priority(2_000_000_000)), want: more, opts: resize.PlanOptions{AllowPreemption: true}},
		{name: "critical and smaller", pod: newPod(priority(2_000_000_000)), want: want("app", "cpu=50m", "")},
		{name: "nearly critical", pod: newPod(priority(1_999_999_999)), want: more},

		{name: "restart", pod: newPod(restartOn("cpu")), want: more, state: resize.StateRefused, reason: resize.ReasonRestartNotAllowed, say: []string{`"app"`, "cpu"}},
		{name: "restart for a limit", pod: newPod(restartOn("memory")), want: want("app", "", "memory=1Gi"), state: resize.StateRefused, reason: resize.ReasonRestartNotAllowed, say: []string{"memory"}},
		{name: "restart allowed", pod: newPod(restartOn("cpu")), want: more, opts: resize.PlanOptions{AllowRestart: true}},
		{name: "restart for the other resource", pod: newPod(restartOn("memory")), want: more},
		{name: "no change, no restart", pod: newPod(restartOn("cpu")), want: want("app", "cpu=100m", "")},

		{name: "bigger than the node", pod: newPod(), node: node("v1.37.2"), want: want("app", "cpu=5", "cpu=6"), state: resize.StateInfeasible, reason: resize.ReasonNodeTooSmall, say: []string{"request 5 cpu", `"n1" has 4`}},
		{name: "both together bigger than the node", pod: newPod(sidekick("memory=5Gi", "")), node: node("v1.37.2"), want: want("app", "memory=4Gi", "memory=6Gi"), state: resize.StateInfeasible, reason: resize.ReasonNodeTooSmall, say: []string{"request 9Gi memory"}},
		{name: "bigger than the node already", pod: newPod(spec("cpu=100m memory=9Gi", "")), node: node("v1.37.2"), want: more},
		{name: "smaller, but still bigger than the node", pod: newPod(spec("cpu=6 memory=1Gi", "")), node: node("v1.37.2"), want: want("app", "cpu=5", "")},
		{name: "windows node", pod: newPod(), node: &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "windows"}}}, want: more, state: resize.StateInfeasible, reason: resize.ReasonUnsupportedPod, say: []string{"Windows"}},
		{name: "node unknown", pod: newPod(), want: want("app", "cpu=5", "cpu=6")},
		{name: "node's size unknown", pod: newPod(), node: &corev1.Node{}, want: want("app", "cpu=5", "cpu=6")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := resize.Server{Resize: !tc.cri, Minor: tc.minor}
			findings := resize.Plan(tc.pod, tc.node, server, tc.want, tc.opts)
			if tc.reason == "" {
				if len(findings) > 0 {
					t.Fatalf("got %+v, want no finding", findings)
				}
				return
			}
			if len(findings) != 1 || findings[0].State != tc.state || findings[0].Reason != tc.reason {
				t.Fatalf("got %+v, want one finding %s/%s", findings, tc.state, tc.reason)
			}
			for _, say := range tc.say {
				if !strings.Contains(findings[0].Message, say) {
					t.Errorf("message %q does not say %q", findings[0].Message, say)
				}
			}
		})
	}
}

// TestPlanFindsAll: whoever corrects what was found must not meet the next finding then.
func TestPlanFindsAll(t *testing.T) {
	asked := want("app", "cpu=5 memory=9Gi", "")
	asked.Containers["log"] = resize.Requirements{Limits: list("cpu=1m")}
	findings := resize.Plan(newPod(restartOn("cpu"), sidekick("cpu=10m", "cpu=20m")), node("v1.37.2"), resize.Server{Resize: true}, asked, resize.PlanOptions{})
	var got []string
	for _, f := range findings {
		got = append(got, strings.Join([]string{string(f.Reason), f.Container, string(f.Resource)}, " "))
	}
	if diff := cmp.Diff([]string{
		"LimitBelowRequest app cpu", "LimitBelowRequest app memory", "LimitBelowRequest log cpu",
		"RestartNotAllowed app cpu", "NodeTooSmall  cpu", "NodeTooSmall  memory",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTarget(t *testing.T) {
	pod := newPod(sidekick("cpu=10m ephemeral-storage=1Gi", ""))
	for _, tc := range []struct {
		name string
		want resize.Resources
		app  resize.Requirements
		log  resize.Requirements
	}{
		{
			name: "nothing",
			app:  resize.Requirements{Requests: list("cpu=100m memory=128Mi"), Limits: list("cpu=200m memory=256Mi")},
			log:  resize.Requirements{Requests: list("cpu=10m"), Limits: list("")},
		},
		{
			name: "part",
			want: want("app", "cpu=150m", "memory=1Gi"),
			app:  resize.Requirements{Requests: list("cpu=150m memory=128Mi"), Limits: list("cpu=200m memory=1Gi")},
			log:  resize.Requirements{Requests: list("cpu=10m"), Limits: list("")},
		},
		{
			name: "limit without a request",
			want: want("log", "", "cpu=20m memory=64Mi"),
			app:  resize.Requirements{Requests: list("cpu=100m memory=128Mi"), Limits: list("cpu=200m memory=256Mi")},
			log:  resize.Requirements{Requests: list("cpu=10m memory=64Mi"), Limits: list("cpu=20m memory=64Mi")},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(map[string]resize.Requirements{"app": tc.app, "log": tc.log}, resize.Target(pod, tc.want).Containers); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMergeLeavesItsArgumentsAlone(t *testing.T) {
	base := resize.Requirements{Requests: list("cpu=1"), Limits: list("memory=1Gi")}
	asked := resize.Requirements{Requests: list("cpu=2")}
	got := resize.Merge(base, asked)
	if diff := cmp.Diff(resize.Requirements{Requests: list("cpu=2 memory=1Gi"), Limits: list("memory=1Gi")}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(resize.Requirements{Requests: list("cpu=1"), Limits: list("memory=1Gi")}, base); diff != "" {
		t.Errorf("base was changed: %s", diff)
	}
}
