package resize_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/podresize/podresize/resize"
)

// TestOneRequest is the cost of a resize: one request that changes the pod, and none while the kubelet works and when it is Done.
func TestOneRequest(t *testing.T) {
	w := watch(t, &apiServer{kubelet: "v1.37.2", resize: true, pod: newPod(observed, sidekick("cpu=10m", ""))})
	asked := want("app", "cpu=150m memory=128Mi", "memory=512Mi")
	asked.Containers["log"] = resize.Requirements{Requests: list("cpu=20m")}

	res := w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonSent)
	previous := want("app", "cpu=100m", "memory=256Mi")
	previous.Containers["log"] = resize.Requirements{Requests: list("cpu=10m"), Limits: list("")}
	if diff := cmp.Diff(&previous, res.Previous); diff != "" {
		t.Errorf("Previous: %s", diff)
	}
	for range 3 {
		w.expect(t, w.server.now(), asked, resize.StateInProgress, resize.ReasonWaitingForKubelet)
	}
	res = w.expect(t, w.server.report(actuated, observed), asked, resize.StateDone, resize.ReasonConfirmed)
	if diff := cmp.Diff(&previous, res.Previous); diff != "" {
		t.Errorf("Previous at Done: %s", diff)
	}
	w.expect(t, w.server.now(), asked, resize.StateDone, resize.ReasonConfirmed)
	if diff := cmp.Diff([]string{askDiscovery, askVersion, askNode, askResize}, w.server.requests); diff != "" {
		t.Errorf("requests: %s", diff)
	}
	// What spec has already is not sent again.
	patch := `{"metadata":{"uid":"uid-1"},"spec":{"containers":[` +
		`{"name":"app","resources":{"requests":{"cpu":"150m"},"limits":{"memory":"512Mi"}}},` +
		`{"name":"log","resources":{"requests":{"cpu":"20m"}}}]}}`
	if diff := cmp.Diff([]string{patch}, w.server.patches); diff != "" {
		t.Errorf("patches: %s", diff)
	}
}

// TestNothingToSend: a want that spec has already costs no request that changes anything.
func TestNothingToSend(t *testing.T) {
	for name, asked := range map[string]resize.Resources{
		"in spec":                 want("app", "cpu=0.1 memory=134217728", "cpu=200m"),
		"nothing":                 {},
		"nothing for a container": want("app", "", ""),
	} {
		t.Run(name, func(t *testing.T) {
			w := watchWith(t, &apiServer{kubelet: "v1.37.2", resize: true, pod: newPod(observed)}, resize.InPlaceOptions{LivePods: true})
			for range 2 {
				w.expect(t, w.server.now(), asked, resize.StateDone, resize.ReasonConfirmed)
			}
			if diff := cmp.Diff([]string{askNode}, w.server.requests); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPartial: what is not named stays.
func TestPartial(t *testing.T) {
	w := watch(t, &apiServer{kubelet: "v1.37.2", resize: true, pod: newPod(observed)})
	w.expect(t, w.server.now(), want("app", "cpu=150m", ""), resize.StateInProgress, resize.ReasonSent)
	res := w.expect(t, w.server.now(), want("app", "memory=192Mi", ""), resize.StateInProgress, resize.ReasonSent)
	if diff := cmp.Diff(resize.Requirements{Requests: list("cpu=150m memory=192Mi"), Limits: list("cpu=200m memory=256Mi")}, res.Containers[0].Desired); diff != "" {
		t.Error(diff)
	}
}

// TestOKIsNotTaken: an API server of 1.32 answers OK and leaves out what it does not resize.
func TestOKIsNotTaken(t *testing.T) {
	w := watch(t, &apiServer{resize: true, pod: newPod(), mutate: spec("cpu=150m memory=128Mi", "cpu=200m memory=256Mi")})
	res := w.expect(t, newPod(), want("app", "cpu=150m memory=192Mi", ""), resize.StateInfeasible, resize.ReasonNotTaken)
	if !strings.Contains(res.Message, `"app"`) {
		t.Errorf("message %q", res.Message)
	}
}

func TestPlanStopsInPlace(t *testing.T) {
	w := watch(t, &apiServer{resize: true, pod: newPod()})
	res := w.expect(t, newPod(), want("db", "cpu=1", ""), resize.StateInfeasible, resize.ReasonUnknownContainer)
	if len(w.server.requests) > 0 || len(res.Containers) != 1 {
		t.Errorf("requests %q, containers %v", w.server.requests, res.Containers)
	}
}

// refusal answers with a Status that has the code's usual reason unless it has one of its own.
func refusal(code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fail(w, code, metav1.Status{Reason: reason, Message: message, Details: details})
	}
}

func aboutPod(causes ...metav1.StatusCause) *metav1.StatusDetails {
	return &metav1.StatusDetails{Kind: "pods", Name: "web", Causes: causes}
}

// answers are bodies as API servers of 1.32 to 1.37 and proxies before them send them.
var answers = []struct {
	name    string
	answer  http.HandlerFunc
	allowed bool
	// Either a state ...
	state  resize.State
	reason resize.Reason
	// ... or an error.
	retryable  bool
	retryAfter time.Duration
	say        string
	reviews    int
}{
	{
		name: "case-24 RBAC", answer: refusal(403, metav1.StatusReasonForbidden, `pods "web" is forbidden: User "u" cannot patch resource "pods/resize" in API group "" in the namespace "shop"`, aboutPod()),
		reason: resize.ReasonForbidden, say: `resources: ["pods/resize"], verbs: ["patch"]`, reviews: 1,
	},
	{
		name: "webhook 403", answer: refusal(403, metav1.StatusReasonForbidden, `admission webhook "w.example" denied the request: no`, nil), allowed: true,
		state: resize.StateInfeasible, reason: resize.ReasonAdmissionDenied, say: `"w.example" denied the request: no`,
	},
	{
		name: "case-36 LimitRange", answer: refusal(403, metav1.StatusReasonForbidden, `pods "web" is forbidden: maximum cpu usage per Container is 1, but limit is 2`, aboutPod()), allowed: true,
		state: resize.StateInfeasible, reason: resize.ReasonLimitRange, say: "maximum cpu usage",
	},
	{
		name: "403 in unknown words", answer: refusal(403, metav1.StatusReasonForbidden, `pods "web" is forbidden: not yet ready to handle request`, aboutPod()), allowed: true,
		reason: resize.ReasonUnknown, retryable: true, say: "not yet ready", reviews: 1,
	},
	{
		name: "case-36 quota", answer: refusal(403, metav1.StatusReasonForbidden, `pods "web" is forbidden: exceeded quota: q, requested: requests.cpu=50m, used: requests.cpu=1, limited: requests.cpu=1`, aboutPod()),
		state: resize.StateDeferred, reason: resize.ReasonQuotaExceeded, say: "exceeded quota: q",
	},
	{
		name: "case-55", answer: refusal(403, metav1.StatusReasonForbidden, `pods "web" is forbidden: node n1 does not have enough capacity for cpu`, aboutPod(metav1.StatusCause{Type: "NodeCapacity", Message: "cpu"})),
		state: resize.StateInfeasible, reason: resize.ReasonNodeTooSmall, say: "enough capacity",
	},
	{
		name: "platform", answer: refusal(403, metav1.StatusReasonForbidden, `pods "web" is forbidden: resize is not supported on windows`, aboutPod(metav1.StatusCause{Type: "UnsupportedPlatform"})),
		state: resize.StateInfeasible, reason: resize.ReasonUnsupportedPod, say: "windows",
	},
	{name: "401", answer: refusal(401, metav1.StatusReasonUnauthorized, "Unauthorized", nil), reason: resize.ReasonForbidden, say: "Unauthorized"},
	{name: "404 of the pod", answer: refusal(404, metav1.StatusReasonNotFound, `pods "web" not found`, aboutPod()), reason: resize.ReasonPodNotFound, say: `pod "shop/web" does not exist`},
	{
		name: "404 of the subresource", answer: refusal(404, metav1.StatusReasonNotFound, "the server could not find the requested resource", &metav1.StatusDetails{}),
		reason: resize.ReasonUnknown, retryable: true, say: "has changed since",
	},
	{
		name: "404 of a proxy", answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) },
		reason: resize.ReasonUnknown, retryable: true, say: "has changed since",
	},
	{
		name: "404 of the namespace", answer: refusal(404, metav1.StatusReasonNotFound, `namespaces "shop" not found`, &metav1.StatusDetails{Kind: "namespaces", Name: "shop"}),
		reason: resize.ReasonPodNotFound, say: `namespace "shop" of pod "shop/web" does not exist`,
	},
	{
		name: "another pod of that name", answer: refusal(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: metadata.uid: Invalid value: "uid-1": field is immutable`, aboutPod(metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid"})),
		reason: resize.ReasonPodNotFound, say: "another has its name",
	},
	{
		name: "case-30", answer: refusal(409, metav1.StatusReasonConflict, `Operation cannot be fulfilled on pods "web": the object has been modified; please apply your changes to the latest version and try again`, aboutPod()),
		reason: resize.ReasonConflict, retryable: true, say: `resizing pod "shop/web"`,
	},
	{
		name: "422 of a QoS change", answer: refusal(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing`, aboutPod()),
		state: resize.StateInfeasible, reason: resize.ReasonQOSChange, say: "may not change",
	},
	{
		name: "case-59", answer: refusal(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: spec.containers[0].resources.limits: Forbidden: memory limits cannot be decreased unless resizePolicy is RestartContainer`, aboutPod()),
		state: resize.StateInfeasible, reason: resize.ReasonMemoryLimit, say: "cannot be decreased",
	},
	{
		name: "422 of the future", answer: refusal(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: spec: Forbidden: no`, aboutPod()),
		state: resize.StateInfeasible, reason: resize.ReasonRejected, say: "no",
	},
	{
		name: "case-17", answer: refusal(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: spec: Forbidden: pod updates may not change fields other than ...`, aboutPod()),
		reason: resize.ReasonUnknown, retryable: true, say: "has changed since",
	},
	{
		name: "case-20", answer: refusal(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: spec: Forbidden: Pod running on node without support for resize`, aboutPod()),
		state: resize.StateRefused, reason: resize.ReasonNoPath, say: "without support for resize",
	},
	{
		name: "429", answer: refusal(429, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later.", &metav1.StatusDetails{RetryAfterSeconds: 7}),
		reason: resize.ReasonUnavailable, retryable: true, retryAfter: 7 * time.Second,
	},
	{
		name: "webhook 500", answer: refusal(500, metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "w.example": connection refused`, nil),
		reason: resize.ReasonUnavailable, retryable: true, say: "failed calling webhook",
	},
	{name: "503 of a proxy", answer: func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no backend", http.StatusServiceUnavailable)
	}, reason: resize.ReasonUnavailable, retryable: true},
	{name: "504", answer: refusal(504, metav1.StatusReasonTimeout, "Timeout: request did not complete within the allotted time", nil), reason: resize.ReasonUnavailable, retryable: true},
	{name: "connection reset", answer: reset, reason: resize.ReasonUnavailable, retryable: true},
	{name: "of the future", answer: refusal(418, "Teapot", "short and stout", nil), reason: resize.ReasonUnknown, retryable: true, say: "short and stout"},
}

func reset(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // RST instead of FIN
	}
	_ = connection.Close()
}

func TestAnswers(t *testing.T) {
	for _, tc := range answers {
		t.Run(tc.name, func(t *testing.T) {
			s := &apiServer{resize: true, pod: newPod(), refuse: tc.answer, allowed: tc.allowed}
			res, err := resize.NewInPlace(serve(t, s), resize.InPlaceOptions{}).Resize(t.Context(), newPod(), want("app", "cpu=150m", ""))
			if tc.state == "" {
				checkError(t, err, tc.reason, tc.retryable, tc.retryAfter, tc.say)
			} else {
				checkRefusal(t, res, err, tc.state, tc.reason, tc.say)
			}
			if patches, reviews := s.count(askResize), s.count(askReview); patches != 1 || reviews != tc.reviews {
				t.Errorf("%d patches and %d access reviews, want 1 and %d", patches, reviews, tc.reviews)
			}
		})
	}
}

func checkError(t *testing.T, err error, reason resize.Reason, retryable bool, retryAfter time.Duration, say string) {
	t.Helper()
	var failure *resize.Error
	if !errors.As(err, &failure) {
		t.Fatalf("got %v, want a *resize.Error", err)
	}
	if failure.Reason != reason || failure.Retryable != retryable || failure.RetryAfter != retryAfter {
		t.Errorf("got %s, retryable %t after %s; want %s, %t, %s", failure.Reason, failure.Retryable, failure.RetryAfter, reason, retryable, retryAfter)
	}
	if !strings.Contains(err.Error(), say) {
		t.Errorf("error %q does not say %q", err, say)
	}
}

func checkRefusal(t *testing.T, res resize.Result, err error, state resize.State, reason resize.Reason, say string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if res.State != state || res.Reason != reason || !strings.Contains(res.Message, say) || len(res.Containers) != 1 {
		t.Errorf("got %s/%s: %q with %d containers; want %s/%s saying %q", res.State, res.Reason, res.Message, len(res.Containers), state, reason, say)
	}
	if (state == resize.StateInfeasible) != (res.RetryAfter == 0) {
		t.Errorf("%s with RetryAfter %s", state, res.RetryAfter)
	}
}

// TestNoAnswer: a server that does not answer ends with the caller's context, and with nothing known.
func TestNoAnswer(t *testing.T) {
	s := &apiServer{resize: true, pod: newPod(), refuse: func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then a server notices that its client is gone
		<-r.Context().Done()
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := resize.NewInPlace(serve(t, s), resize.InPlaceOptions{}).Resize(ctx, newPod(), want("app", "cpu=150m", ""))
	checkError(t, err, resize.ReasonUnavailable, true, 0, `"shop/web"`)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v is not context.DeadlineExceeded", err)
	}
}

// TestReviewUnanswered: who may not even ask about rights gets the server's first answer.
func TestReviewUnanswered(t *testing.T) {
	s := &apiServer{resize: true, pod: newPod(), refuse: answers[0].answer, noReviews: true}
	_, err := resize.NewInPlace(serve(t, s), resize.InPlaceOptions{}).Resize(t.Context(), newPod(), want("app", "cpu=150m", ""))
	checkError(t, err, resize.ReasonForbidden, false, 0, "cannot patch resource")
}

// TestOwnNodes: with a lister of the caller's the node costs no request.
func TestOwnNodes(t *testing.T) {
	s := &apiServer{resize: true, pod: newPod(observed)}
	resizer := resize.NewInPlace(serve(t, s), resize.InPlaceOptions{
		LivePods: true,
		Nodes:    func(context.Context, string) (*corev1.Node, error) { return node("v1.37.2"), nil },
	})
	res, err := resizer.Resize(t.Context(), s.now(), resize.Resources{})
	if err != nil || res.State != resize.StateDone || len(s.requests) > 0 {
		t.Errorf("got %s, %v after %q", res.State, err, s.requests)
	}
}

// TestRefusalsAreNotRepeated at each event of the pod, but they are after a while, and at once for another wish.
func TestRefusalsAreNotRepeated(t *testing.T) {
	s := &apiServer{resize: true, kubelet: "v1.37.2", pod: newPod(observed), refuse: refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "exceeded quota: q", nil)}
	clock := clocktesting.NewFakePassiveClock(start)
	r := resize.NewInPlace(serve(t, s), resize.InPlaceOptions{Clock: clock})
	for _, step := range []struct {
		cpu     string
		later   time.Duration
		patches int
	}{
		{cpu: "150m", patches: 1},
		{cpu: "150m", later: 9 * time.Second, patches: 1},
		{cpu: "160m", patches: 2},
		{cpu: "160m", later: 10 * time.Second, patches: 3},
	} {
		clock.SetTime(clock.Now().Add(step.later))
		res, err := r.Resize(t.Context(), s.now(), want("app", "cpu="+step.cpu, ""))
		if err != nil || res.State != resize.StateDeferred || res.Reason != resize.ReasonQuotaExceeded || s.count(askResize) != step.patches {
			t.Errorf("%s after %s: %s/%s, %v and %d patches, want Deferred and %d", step.cpu, step.later, res.State, res.Reason, err, s.count(askResize), step.patches)
		}
	}
}
