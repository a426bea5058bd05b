//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

// testReports plays what users of other tools have run into, where it takes a real cluster to see it. Each case carries the number
// of its report.
func (e *env) testReports(t *testing.T) {
	t.Run("case-25", e.testWithoutEvents)
	if e.path == resize.PathCRI && e.minor >= setting.HasGateSince {
		t.Run("case-16", e.testGateOff)
	}
	if e.path != resize.PathInPlace {
		return // the others are about what an API server or a kubelet does with a resize in place
	}
	if e.minor >= setting.SubresourceSince { // no LimitRange is asked before
		t.Run("case-36", e.testLimitRange)
	} else {
		t.Run("case-34", e.testLimitsAdded)
		t.Run("case-42", e.testRounding)
		t.Run("case-46", e.testMemoryRequest)
		t.Run("case-47", e.testUntouched)
	}
	t.Run("case-37", e.testQuota)
	t.Run("case-40", e.testNothingElseIsPatched)
	if e.minor != keepsMemoryLimit {
		t.Run("case-62", e.testOneBelowItsUsage)
	}
}

// testWithoutEvents: a caller that may not write events can resize all the same: it never tries.
func (e *env) testWithoutEvents(t *testing.T) {
	p := e.run(t, pod("case-25", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	e.resizeTo(t, e.newResizer(t), p, want{"app": {"150m/300m", ""}}.resources())
	events := e.audit(t, func(a cluster.AuditEvent) bool {
		return a.User.Username == resizerUser && a.ObjectRef.Resource == "events"
	})
	equal(t, "requests for events", events, []string(nil))
}

// testLimitRange: above the most that the namespace allows is Infeasible until that changes (k/k#124855).
func (e *env) testLimitRange(t *testing.T) {
	p := e.run(t, pod("case-36", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	ranges := e.Client().CoreV1().LimitRanges(namespace)
	most := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "case-36"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400m")}},
	}}}
	if _, err := ranges.Create(t.Context(), most, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	tooMuch := pod("case-36-too-much", container("app", amounts{"100m/500m", "64Mi/128Mi"}))
	eventually(t, "the LimitRange is in force", func() error {
		_, err := e.Client().CoreV1().Pods(namespace).Create(t.Context(), tooMuch, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("creating a pod above it was not forbidden: %w", errors.Join(err, errors.New("it should be")))
		}
		return nil
	})
	r, asked := e.newResizer(t), want{"app": {"150m/500m", ""}}.resources()
	res, err := r.Resize(t.Context(), p, asked)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "state", res.State, resize.StateInfeasible)
	equal(t, "reason", res.Reason, resize.ReasonLimitRange)
	if err := ranges.Delete(t.Context(), most.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.settle(t, r, p, asked, nothingToWaitForOr(resize.StateInfeasible))
}

// testGateOff: an API server that takes no resources in a patch of the pod is no failure: the CRI path is taken, and without one
// (case-19) the answer is that there is none.
func (e *env) testGateOff(t *testing.T) {
	p := e.run(t, pod("case-16", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	asked := want{"app": {cpu: "800m/1"}}.resources()
	t.Run("case-19", func(t *testing.T) {
		r := resize.NewAdapter(newKubernetes(t, e.as(t, resizerUser, resizers)), nil, resize.InPlaceOptions{})
		res, err := r.Resize(t.Context(), p, asked)
		if err != nil || res.State != resize.StateRefused || res.Reason != resize.ReasonNoPath || res.Path != resize.PathNone {
			t.Errorf("%s (%s) by path %q, %v: %s", res.State, res.Reason, res.Path, err, res.Message)
		}
	})
	e.resizeTo(t, e.newResizer(t), p, asked)
	equal(t, "the kernel", e.read(t, p), kernel{"": {819, 100000, 128 * mi}, "app": {819, 100000, 128 * mi}})
	equal(t, "changes of the pod", e.changesOf(t, p), 0)
}

// testLimitsAdded: limits that a container did not have.
func (e *env) testLimitsAdded(t *testing.T) {
	p := e.run(t, pod("case-34", container("app", amounts{"100m/200m", "64Mi/128Mi"}), container("free", amounts{"100m/", "32Mi/"})))
	e.resizeTo(t, e.newResizer(t), p, want{"free": {"/200m", "/64Mi"}}.resources())
	equal(t, "the kernel", e.read(t, p), kernel{"": {204, 40000, 192 * mi}, "app": {102, 20000, 128 * mi}, "free": {102, 20000, 64 * mi}})
}

// testRounding: what the kernel cannot hold to the letter is Done all the same, though these kubelets say InProgress for ever
// (k/k#128769, #128680).
func (e *env) testRounding(t *testing.T) {
	p := e.run(t, pod("case-42", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	e.resizeTo(t, e.newResizer(t), p, want{"app": {cpu: "1m/5m"}}.resources())
	equal(t, "the kernel", e.read(t, p), kernel{"": {2, 1000, 128 * mi}, "app": {2, 1000, 128 * mi}})
}

// testMemoryRequest: the kernel knows no request of memory, so that what the kubelet has reserved is the proof (k/k#125559).
func (e *env) testMemoryRequest(t *testing.T) {
	p := e.run(t, pod("case-46", container("app", amounts{"100m/200m", "32Mi/128Mi"})))
	held := e.read(t, p)
	res := e.resizeTo(t, e.newResizer(t), p, want{"app": {memory: "64Mi/"}}.resources())
	if reserved := res.Containers[0].Allocated.Memory().String(); reserved != "64Mi" {
		t.Errorf("reserved %s", reserved)
	}
	equal(t, "the kernel", e.read(t, p), held)
}

// testUntouched: where the pod is not touched, its status lags more than half a minute behind the kernel, and nothing is said to be
// Done or to have failed meanwhile (k/k#112264, #123940).
func (e *env) testUntouched(t *testing.T) {
	p := e.run(t, pod("case-47", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	r := resize.NewInPlace(newKubernetes(t, e.as(t, resizerUser, resizers)), resize.InPlaceOptions{NoTouch: true})
	asked, held := want{"app": {cpu: "200m/400m"}}.resources(), kernel{"": {204, 40000, 128 * mi}, "app": {204, 40000, 128 * mi}}
	began := time.Now()
	e.settle(t, r, p, asked, func(res resize.Result) error {
		if res.State != resize.StateInProgress && res.Reason != resize.ReasonNotRunning { // the informer is late
			t.Fatalf("%s (%s) after %s: %s", res.State, res.Reason, time.Since(began), res.Message)
		}
		if diff := cmp.Diff(held, e.read(t, p)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	res, err := r.Resize(t.Context(), e.latest(t, p), asked)
	if err != nil || res.State != resize.StateInProgress {
		t.Errorf("%s (%s), %v: %s", res.State, res.Reason, err, res.Message)
	}
	for _, request := range e.onPod(t, p) {
		if strings.HasPrefix(request, "touch") {
			t.Errorf("it was touched: %s", request)
		}
	}
}

// testQuota: what one pod gives up can be taken by another only when it is given up; until then that is Deferred
// (enhancements#1883).
func (e *env) testQuota(t *testing.T) {
	giver := e.run(t, pod("case-37-giver", container("app", amounts{"300m/400m", "32Mi/64Mi"})))
	taker := e.run(t, pod("case-37-taker", container("app", amounts{"100m/400m", "32Mi/64Mi"})))
	quotas := e.Client().CoreV1().ResourceQuotas(namespace)
	used := e.requested(t, 2)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "case-37"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: used}}}
	if _, err := quotas.Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove := sync.OnceFunc(func() {
		if err := quotas.Delete(t.Context(), quota.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	defer remove()
	eventually(t, "the quota counts", func() error {
		live, err := quotas.Get(t.Context(), quota.Name, metav1.GetOptions{})
		if err == nil && len(live.Status.Used) == 0 {
			err = errors.New("nothing is used")
		}
		return err
	})
	r, more := e.newResizer(t), want{"app": {"300m/", ""}}.resources()
	res, err := r.Resize(t.Context(), taker, more)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "state while the quota is full", res.State, resize.StateDeferred)
	equal(t, "reason", res.Reason, resize.ReasonQuotaExceeded)
	e.resizeTo(t, r, giver, want{"app": {"100m/", ""}}.resources())
	if e.minor < setting.SubresourceSince { // what is given up is counted again only every five minutes
		remove()
	}
	e.settle(t, r, taker, more, nothingToWaitForOr(resize.StateDeferred))
}

// requested is the sum of the CPU requests of the namespace, once so many pods are left in it.
func (e *env) requested(t *testing.T, left int) resource.Quantity {
	t.Helper()
	var sum resource.Quantity
	eventually(t, "the other pods are gone", func() error {
		pods, err := e.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(pods.Items) != left {
			return fmt.Errorf("there are %d pods", len(pods.Items))
		}
		sum = resource.Quantity{}
		for _, p := range pods.Items {
			sum.Add(*p.Spec.Containers[0].Resources.Requests.Cpu())
		}
		return nil
	})
	return sum
}

// testNothingElseIsPatched: a change of anything else does not ride along (kruise#1180), as the body in the audit log shows.
func (e *env) testNothingElseIsPatched(t *testing.T) {
	p := e.run(t, pod("case-40", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	e.resizeTo(t, e.newResizer(t), p, want{"app": {"150m/", ""}}.resources())
	var bodies []string
	if _, err := e.Audit(t.Context(), func(a cluster.AuditEvent) bool {
		if a.User.Username == resizerUser && a.Mutating() && a.ObjectRef.Name == p.Name && !touches(a) {
			bodies = append(bodies, string(a.RequestObject))
		}
		return false
	}); err != nil {
		t.Fatal(err)
	}
	equal(t, "bodies", bodies, []string{`{"metadata":{"uid":"` + string(p.UID) + `"},"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"150m"}}}]}}`})
}

// saysErrors is the first minor release of kubelets that tell of an error while they resize.
const saysErrors = 33

// testOneBelowItsUsage: a limit below what its container uses is not forced, nobody is restarted, and a second step with room ends it
// (k/k#129152).
func (e *env) testOneBelowItsUsage(t *testing.T) {
	p := e.run(t, pod("case-62",
		container("big", amounts{"100m/200m", "64Mi/192Mi"}, "alloc", "96Mi"),
		container("small", amounts{"100m/200m", "64Mi/128Mi"})))
	eventually(t, "the memory is in use", func() error { return e.logged(t, p, "holding 100663296") })
	r := e.newResizer(t)
	res := e.settle(t, r, p, want{"big": {"", "64Mi/80Mi"}, "small": {"", "64Mi/96Mi"}}.resources(), func(res resize.Result) error {
		if res.Reason == resize.ReasonKubeletError || e.minor < saysErrors && res.Reason == resize.ReasonWaitingForKubelet {
			return nil
		}
		return errors.New("the kubelet has not said no yet")
	})
	if e.minor >= saysErrors && !strings.Contains(res.Message, "memory") {
		t.Errorf("the message does not tell why: %s", res.Message)
	}
	e.resizeTo(t, r, p, want{"big": {"", "64Mi/160Mi"}, "small": {"", "64Mi/96Mi"}}.resources())
	for _, s := range e.latest(t, p).Status.ContainerStatuses {
		if s.RestartCount != 0 {
			t.Errorf("container %q was restarted %d times", s.Name, s.RestartCount)
		}
	}
}

// nothingToWaitForOr ends at Done; the other state may come before it.
func nothingToWaitForOr(before resize.State) func(resize.Result) error {
	return func(res resize.Result) error {
		if res.State == resize.StateDone {
			return nil
		}
		return errors.New("not Done, before which it may be " + string(before))
	}
}
