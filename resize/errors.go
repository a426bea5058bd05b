package resize

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Error is a failure to ask: the cluster was not reached, did not allow the request or gave an answer that is not understood.
type Error struct {
	Reason Reason
	// Message is one line for people, without the words of Err.
	Message string
	// Retryable says that the same call may succeed later without anybody changing anything.
	Retryable bool
	// RetryAfter is when the API server asked to be called again; zero: it did not say.
	RetryAfter time.Duration
	// Err is what the client returned.
	Err error
}

// Error gives the message and the cause in one line.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// errContradiction: the answer does not fit what was detected of the API server: detect again.
var errContradiction = errors.New("the API server has changed since it was asked what it serves")

// Failure turns an error of a Kubernetes client into an *Error: what is not understood is retryable. doing is a gerund, such as
// reading pod "ns/name".
func Failure(doing string, err error) *Error {
	e := &Error{Reason: ReasonUnknown, Message: doing, Retryable: true, Err: err}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	switch {
	case apierrors.IsUnauthorized(err):
		e.Reason, e.Retryable = ReasonForbidden, false
	case apierrors.IsConflict(err):
		e.Reason = ReasonConflict
	case isUnavailable(err):
		e.Reason = ReasonUnavailable
	}
	return e
}

// forbidden is the error for a right that is missing; rule is the one to add.
func forbidden(doing, rule string, err error) *Error {
	return &Error{Reason: ReasonForbidden, Message: doing + ": add this rule to a role of yours: " + rule, Err: err}
}

// isUnavailable: 429, any 5xx, and whatever never became an answer. A request that was lost on the way back may have been
// applied; the next call finds that out.
func isUnavailable(err error) bool {
	s := statusOf(err)
	return s == nil || s.Code == http.StatusTooManyRequests || s.Code >= http.StatusInternalServerError
}

// podGone recognises the answers for a pod that is not there, or no longer the same.
func podGone(pod *corev1.Pod, err error) *Error {
	s := statusOf(err)
	if s == nil || s.Details == nil {
		return nil
	}
	gone := func(format string, args ...any) *Error {
		return &Error{Reason: ReasonPodNotFound, Message: fmt.Sprintf(format, args...), Err: err}
	}
	switch {
	case s.Reason == metav1.StatusReasonNotFound && s.Details.Kind == "namespaces":
		return gone("namespace %q of pod %q does not exist", s.Details.Name, key(pod))
	case s.Reason == metav1.StatusReasonNotFound && s.Details.Name == pod.Name && !apierrors.IsUnexpectedServerError(err):
		return gone("pod %q does not exist", key(pod))
	case s.Reason == metav1.StatusReasonInvalid && slices.ContainsFunc(s.Details.Causes, isUID): // as pods/resize says it
		return gone("pod %q is not the pod it was: another has its name", key(pod))
	}
	return nil
}

func isUID(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" }

// contradicted recognises the answers of an API server that takes no change of resources there: the endpoint is not there, or
// such a change is not among those that may be made.
func contradicted(err error) bool {
	s := statusOf(err)
	return s != nil && s.Reason == metav1.StatusReasonNotFound || resourcesFixed(err)
}

// resourcesFixed recognises an API server that takes no resources in a patch of a pod: its gate is off, or it takes them by
// pods/resize alone (k/website#41365, kubeblocks#8999). One that takes them lists them among the fields that may change
// (updatablePodSpecFields in pkg/apis/core/validation).
func resourcesFixed(err error) bool {
	s := statusOf(err)
	return s != nil && s.Reason == metav1.StatusReasonInvalid &&
		strings.Contains(s.Message, "pod updates may not change fields") && !strings.Contains(s.Message, "`spec.containers[*].resources`")
}

// verdict is what a 403 or 422 that speaks of the values means.
type verdict struct {
	state  State
	reason Reason
}

// rejection reads a refusal of the values: status reason, causes and details first, the text last. ok is false for an answer that
// is not understood, or that is about the caller.
func rejection(err error) (v verdict, ok bool) {
	s := statusOf(err)
	if s == nil {
		return verdict{}, false
	}
	if v, ok := fromCauses(s); ok {
		return v, true
	}
	var rules []textRule
	switch s.Reason {
	case metav1.StatusReasonInvalid:
		rules = invalidRules()
	case metav1.StatusReasonForbidden, metav1.StatusReasonBadRequest, metav1.StatusReasonUnknown:
		rules = forbiddenRules()
	default:
		return verdict{}, false
	}
	for _, rule := range rules {
		if rule.text.MatchString(s.Message) {
			return rule.verdict, true
		}
	}
	return verdict{}, false
}

// fromCauses reads what API servers of 1.36 and later put into a 403 (plugin/pkg/admission/podresize).
func fromCauses(s *metav1.Status) (verdict, bool) {
	if s.Details == nil {
		return verdict{}, false
	}
	for _, cause := range s.Details.Causes {
		switch cause.Type {
		case "NodeCapacity":
			return verdict{StateInfeasible, ReasonNodeTooSmall}, true
		case "UnsupportedPlatform":
			return verdict{StateInfeasible, ReasonUnsupportedPod}, true
		case corev1.NamespaceTerminatingCause:
			return verdict{StateInfeasible, ReasonPodEnded}, true
		}
	}
	return verdict{}, false
}

// textRule is for what API servers say in words only.
type textRule struct {
	text *regexp.Regexp
	verdict
}

// invalidRules are for a 422 (ValidatePodResize in pkg/apis/core/validation). The last one takes any: a validation that does not
// know the caller's time will say the same again.
func invalidRules() []textRule {
	return []textRule{
		{regexp.MustCompile(`without support for resize`), verdict{StateRefused, ReasonNoPath}},
		{regexp.MustCompile(`(?i)QOS (class|is immutable)`), verdict{StateInfeasible, ReasonQOSChange}},
		{regexp.MustCompile(`memory limits cannot be (de|in)creased|memory limits cannot be added`), verdict{StateInfeasible, ReasonMemoryLimit}},
		{regexp.MustCompile(`static pods cannot|windows pods cannot|pod-level resources`), verdict{StateInfeasible, ReasonUnsupportedPod}},
		{regexp.MustCompile(`init containers .*(immutable|cannot be resized)`), verdict{StateInfeasible, ReasonUnsupportedContainer}},
		{regexp.MustCompile(``), verdict{StateInfeasible, ReasonRejected}},
	}
}

// forbiddenRules are for admission plugins, policies and webhooks.
func forbiddenRules() []textRule {
	return []textRule{
		{regexp.MustCompile(`exceeded quota`), verdict{StateDeferred, ReasonQuotaExceeded}},
		{regexp.MustCompile(`(minimum|maximum) \S+ usage per|max limit to request ratio`), verdict{StateInfeasible, ReasonLimitRange}},
		{regexp.MustCompile(`requires features .* not available on node`), verdict{StateInfeasible, ReasonUnsupportedPod}},
		{regexp.MustCompile(`admission webhook .* denied the request|ValidatingAdmissionPolicy .* denied request`), verdict{StateInfeasible, ReasonAdmissionDenied}},
	}
}

func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	s := status.Status()
	return &s
}
