package resize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// FuzzMinor: whatever a server calls itself, its minor version is the number after "1." or none at all, and no vendor's suffix
// changes it.
func FuzzMinor(f *testing.F) {
	for _, s := range []string{"", "v1.37.2", "1.29+", "29+", "v1.32.3+k3s1", "v1.27.9-gke.300", " v1.30.1\n", "v2.3.4", "1.99999999999999999999", "v1.-3", "v1..3", "v01.30", "v1.030.1", "containerd://2.0.4-k3s2"} {
		f.Add(s, uint16(32), uint16(3))
	}
	said := regexp.MustCompile(`^\s*v?1\.([0-9]+)`)
	f.Fuzz(func(t *testing.T, s string, number, patch uint16) {
		got, ok := minor(s)
		var want uint64
		if match := said.FindStringSubmatch(s); match != nil {
			want, _ = strconv.ParseUint(match[1], 10, 64)
		}
		if ok && uint64(got) != want || !ok && got != 0 {
			t.Errorf("minor(%q) = %d, %t", s, got, ok)
		}
		for _, suffix := range []string{"", "+", "+k3s1", "+rke2r2", "-gke.1389002", "-eks-84b4fe6", "-rc.0", "-alpha.1.23+abc", "+vmware.1-fips"} {
			version := fmt.Sprintf("v1.%d.%d%s", number, patch, suffix)
			if got, ok := minor(version); !ok || got != uint(number) {
				t.Errorf("minor(%q) = %d, %t", version, got, ok)
			}
		}
	})
}

// FuzzQuantities: whatever numbers are written, merging them twice is merging them once, nothing is left to change in a pod that
// has them, and a value does not differ from itself.
func FuzzQuantities(f *testing.F) {
	for _, seed := range [][4]string{
		{"100m", "200m", "150m", "1"},
		{"", "1Gi", "0", ""},
		{"-1", "9223372036854775807", "1e3", "0.1"},
		{"9223372036854775807m", "1n", "1E", "123456789012345678901234567890"},
		{"1.5Gi", ".5", "5e-9", "1Ki"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, request, limit, wantRequest, wantLimit string) {
		base := Requirements{Requests: quantities(request, wantLimit), Limits: quantities(limit, "")}
		asked := Requirements{Requests: quantities(wantRequest, request), Limits: quantities("", wantLimit)}
		merged := Merge(base, asked)
		if again := Merge(merged, asked); !equality.Semantic.DeepEqual(again, merged) {
			t.Errorf("Merge of %v over %v is %v, and done twice %v", asked, base, merged, again)
		}
		want := Resources{Containers: map[string]Requirements{"app": asked}}
		pod := podWith(merged)
		if left := Changes(pod, want); len(left.Containers) > 0 {
			t.Errorf("a pod with %v and %v merged lacks %v", base, asked, left)
		}
		if left := Changes(pod, Target(pod, Resources{})); len(left.Containers) > 0 {
			t.Errorf("a pod lacks what it has: %v", left)
		}
		for _, tolerance := range []func(corev1.ResourceName, resource.Quantity, resource.Quantity) bool{allocatedTolerance, requestTolerance, limitTolerance} {
			if diff := differs(merged.Requests, merged.Requests, tolerance); diff != "" {
				t.Errorf("a value differs from itself: %s", diff)
			}
			differs(merged.Limits, base.Limits, tolerance)
		}
		checkPlan(t, podWith(base), nil, Server{Resize: true}, want, PlanOptions{})
	})
}

// quantities leaves out what is no quantity.
func quantities(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, s := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q, err := resource.ParseQuantity(s); err == nil {
			list[name] = q
		}
	}
	return list
}

func podWith(r Requirements) *corev1.Pod {
	have := &corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1", ResourceVersion: "10", Generation: 1},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Resources: *have}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, AllocatedResources: r.Requests, Resources: have,
		}}},
	}
}

// FuzzAnswers: whatever an API server, or something in front of it, answers to the patch, it is understood or worth another try,
// nothing is said to be Done, and nothing falls back to the CRI path.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []struct {
		code int
		body string
	}{
		{200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","uid":"uid-1"},"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`},
		{200, `{"kind":"Pod","apiVersion":"v1"}`},
		{200, `{}`},
		{400, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","message":"admission webhook \"x\" denied the request: no","code":400}`},
		{401, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`},
		{401, `{"kind":"Status","status":"Failure","code":401}`},
		{403, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"exceeded quota: q","code":403}`},
		{403, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","details":{"causes":[{"reason":"NodeCapacity"}]},"code":403}`},
		{403, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"cannot patch","details":null,"code":403}`},
		{404, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{"name":"web","kind":"pods"},"code":404}`},
		{404, `404 page not found`},
		{409, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","message":"Precondition failed: UID in precondition: a","details":{},"code":409}`},
		{415, ``},
		{422, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","message":"pod updates may not change fields other than","code":422}`},
		{429, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","details":{"retryAfterSeconds":0},"code":429}`},
		{500, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","details":{"causes":null},"code":500}`},
		{502, `<html>`},
		{503, ``},
	} {
		for _, allowed := range []bool{true, false} {
			f.Add(seed.code, []byte(seed.body), allowed, true)
			f.Add(seed.code, []byte(seed.body), allowed, false)
		}
	}
	asked := Resources{Containers: map[string]Requirements{"app": {Requests: quantities("150m", "")}}}
	f.Fuzz(func(t *testing.T, code int, body []byte, allowed, subresource bool) {
		transport := &answers{code: 200 + abs(code)%400, body: body, allowed: allowed, subresource: subresource}
		client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://localhost", QPS: -1}, &http.Client{Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		pod := podWith(Requirements{Requests: quantities("100m", "64Mi"), Limits: quantities("200m", "128Mi")})
		node := func(context.Context, string) (*corev1.Node, error) { return &corev1.Node{}, nil }
		adapter := NewAdapter(client, noFallback{t}, InPlaceOptions{Nodes: node})
		for range 2 { // what was learnt from the first answer must not break the second
			res, err := adapter.Resize(t.Context(), pod, asked)
			checkAnswer(t, res, err, allowed)
		}
		if transport.patches == 0 { // a dry run is one
			t.Error("nothing was sent")
		}
	})
}

func abs(n int) int { return max(n, -(n + 1)) }

func checkAnswer(t *testing.T, res Result, err error, allowed bool) {
	t.Helper()
	if err == nil {
		if res.State == StateDone || res.State == "" || res.Reason == "" || res.Message == "" {
			t.Errorf("got %+v", res)
		}
		return
	}
	var failed *Error
	if !errors.As(err, &failed) || failed.Message == "" {
		t.Fatalf("got %#v", err)
	}
	switch failed.Reason {
	case ReasonPodNotFound:
	case ReasonForbidden:
		if allowed && !apierrors.IsUnauthorized(err) {
			t.Errorf("%v: but an access review says that it is allowed", err)
		}
	case ReasonUnknown, ReasonUnavailable, ReasonConflict:
		if !failed.Retryable {
			t.Errorf("%s is not retryable: %v", failed.Reason, err)
		}
	default:
		t.Errorf("reason %q", failed.Reason)
	}
}

// noFallback fails the test when it is fallen back to.
type noFallback struct{ t *testing.T }

func (f noFallback) Resize(context.Context, *corev1.Pod, Resources) (Result, error) {
	f.t.Error("fell back")
	return Result{}, nil
}

// answers gives one answer to all patches.
type answers struct {
	code    int
	body    []byte
	allowed bool
	patches int
	// subresource: it serves pods/resize. Otherwise the patches are of the pod, dry runs first.
	subresource bool
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method == http.MethodPatch:
		a.patches++
		return response(r, a.code, a.body), nil
	case r.URL.Path == "/api/v1":
		name := "pods"
		if a.subresource {
			name = "pods/resize"
		}
		return response(r, http.StatusOK, fmt.Appendf(nil, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":%q,"kind":"Pod","namespaced":true}]}`, name)), nil
	case r.Method == http.MethodPost:
		return response(r, http.StatusCreated, fmt.Appendf(nil, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{},"status":{"allowed":%t}}`, a.allowed)), nil
	default:
		return response(r, http.StatusNotFound, nil), nil
	}
}

func response(r *http.Request, code int, body []byte) *http.Response {
	return &http.Response{Request: r, StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}
}

// FuzzPlan: any pod, node and want give the same findings twice and are left alone; what stops a resize says why; and nothing
// stops a want that the pod has already, unless the pod cannot be resized at all.
func FuzzPlan(f *testing.F) {
	for i := range byte(32) {
		f.Add(bytes.Repeat([]byte{i, 255 - i, 7 * i, 31 * i}, 24))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := dice{data}
		pod, node, server := d.pod(), d.node(), Server{Resize: d.coin(), Minor: uint(d.roll(40))}
		opts := PlanOptions{AllowRestart: d.coin(), AllowPreemption: d.coin()}
		checkPlan(t, pod, node, server, d.want(), opts)

		has := Resources{Containers: map[string]Requirements{}}
		for c := range containers(pod) {
			has.Containers[c.Name] = specOf(c)
		}
		if findings := Plan(pod, node, server, has, opts); len(findings) > 0 && planPod(pod, node, server) == nil {
			t.Errorf("a want that the pod has already: %+v", findings)
		}
	})
}

func checkPlan(t *testing.T, pod *corev1.Pod, node *corev1.Node, server Server, want Resources, opts PlanOptions) {
	t.Helper()
	podBefore, nodeBefore, wantBefore := pod.DeepCopy(), node.DeepCopy(), copyOf(want)
	findings := Plan(pod, node, server, want, opts)
	if again := Plan(pod, node, server, want, opts); !equality.Semantic.DeepEqual(findings, again) {
		t.Errorf("got %+v, then %+v", findings, again)
	}
	if !reflect.DeepEqual(pod, podBefore) || !reflect.DeepEqual(node, nodeBefore) || !reflect.DeepEqual(want, wantBefore) {
		t.Error("what was planned with has changed")
	}
	for _, finding := range findings {
		if finding.Reason == "" || finding.Message == "" {
			t.Errorf("got %+v", finding)
		}
	}
	Stopped(PathInPlace, pod, append(Stops(findings), Finding{State: StateRefused}))
	Replaced(pod, want)
}

func copyOf(want Resources) Resources {
	var out Resources
	if want.Containers != nil {
		out.Containers = map[string]Requirements{}
	}
	for name, r := range want.Containers {
		out.Containers[name] = Requirements{Requests: r.Requests.DeepCopy(), Limits: r.Limits.DeepCopy()}
	}
	return out
}

// dice turns bytes into objects, zero values once they are used up.
type dice struct{ data []byte }

// roll gives a number below n.
func (d *dice) roll(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % n
}

func (d *dice) coin() bool { return d.roll(2) == 1 }

func pickOne[T any](d *dice, of ...T) T { return of[d.roll(len(of))] }

func (d *dice) list(values ...string) corev1.ResourceList {
	if d.roll(4) == 0 {
		return nil
	}
	list := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if value := pickOne(d, values...); value != "" {
			list[name] = resource.MustParse(value)
		}
	}
	return list
}

func (d *dice) specResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: d.list("", "0", "1m", "100m", "1", "1Gi"), Limits: d.list("", "0", "100m", "1", "2", "1Gi", "9223372036854775807")}
}

func (d *dice) container(name string) corev1.Container {
	c := corev1.Container{Name: name, Resources: d.specResources()}
	if d.coin() {
		c.RestartPolicy = pickOne(d, nil, new(corev1.ContainerRestartPolicy), pointer(corev1.ContainerRestartPolicyAlways))
	}
	if d.coin() {
		c.ResizePolicy = []corev1.ContainerResizePolicy{{
			ResourceName: pickOne(d, corev1.ResourceCPU, corev1.ResourceMemory), RestartPolicy: pickOne(d, corev1.NotRequired, corev1.RestartContainer),
		}}
	}
	return c
}

func (d *dice) status(name string) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name, RestartCount: int32(d.roll(3)), AllocatedResources: d.list("", "1", "100m")} //nolint:gosec // G115: below 3
	s.State = pickOne(d, corev1.ContainerState{}, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	if d.coin() {
		s.Resources = pointer(d.specResources())
	}
	return s
}

func (d *dice) pod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for i := range d.roll(4) {
		name := fmt.Sprintf("app-%d", i)
		pod.Spec.Containers = append(pod.Spec.Containers, d.container(name))
		if d.roll(4) > 0 {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, d.status(name))
		}
	}
	for i := range d.roll(3) {
		name := fmt.Sprintf("setup-%d", i)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, d.container(name))
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, d.status(name))
	}
	for i := range d.roll(2) {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: fmt.Sprintf("debug-%d", i)},
		})
	}
	pod.Spec.NodeName = pickOne(d, "", "n1")
	pod.Spec.Overhead = d.list("", "10m", "1")
	pod.Status.Phase = pickOne(d, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded, "")
	switch d.roll(12) {
	case 1:
		pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	case 2:
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	case 3:
		pod.DeletionTimestamp = &metav1.Time{}
	case 4:
		pod.Spec.Resources = pointer(d.specResources())
	case 5:
		pod.Spec.Priority = pointer(int32(criticalPriority))
	}
	return pod
}

// node may be nil.
func (d *dice) node() *corev1.Node {
	if d.coin() {
		return nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: corev1.NodeStatus{
			Allocatable: d.list("", "1", "4", "8Gi"), NodeInfo: corev1.NodeSystemInfo{OperatingSystem: pickOne(d, "linux", "", "windows")},
		},
	}
}

// want names containers of any kind, whether the pod has them or not.
func (d *dice) want() Resources {
	var want Resources
	for range d.roll(4) {
		if want.Containers == nil {
			want.Containers = map[string]Requirements{}
		}
		r := Requirements{Requests: d.list("", "-1", "0", "1m", "100m", "1", "9223372036854775807"), Limits: d.list("", "-1", "0", "1", "2Gi", "1e30")}
		if d.roll(8) == 1 {
			r.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
		}
		want.Containers[pickOne(d, "app-0", "app-1", "app-2", "setup-0", "setup-1", "debug-0", "app-", "")] = r
	}
	return want
}

func pointer[T any](v T) *T { return &v }
