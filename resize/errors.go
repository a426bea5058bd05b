package resize

import (
	"errors"
	"fmt"
	"net/http"
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

// errNoEndpoint: the API server has no pods/resize after all, so what was detected is out of date.
var errNoEndpoint = errors.New("the API server does not serve pods/resize")

// Causes that API servers of 1.36 and later put into a 403 (pkg/apis/core/validation, noderestriction of resizes).
const (
	causeNodeCapacity        metav1.CauseType = "NodeCapacity"
	causeUnsupportedPlatform metav1.CauseType = "UnsupportedPlatform"
)

// failure turns a client's error into an *Error.
func failure(doing string, err error) *Error {
	e := &Error{Reason: ReasonUnknown, Message: doing, Retryable: true, Err: err}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		e.Reason, e.Retryable = ReasonForbidden, false
	case apierrors.IsConflict(err):
		e.Reason = ReasonConflict
	case isUnavailable(err):
		e.Reason = ReasonUnavailable
	}
	return e
}

// isUnavailable: 429, any 5xx, and whatever never became an answer.
func isUnavailable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := int(status.Status().Code)
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// podGone recognises the answers for a pod that is not there, or no longer the same.
func podGone(pod *corev1.Pod, err error) *Error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	s := status.Status()
	named := s.Details != nil && s.Details.Name == pod.Name
	switch {
	case s.Reason == metav1.StatusReasonNotFound && named:
		return &Error{Reason: ReasonPodNotFound, Message: fmt.Sprintf("pod %q does not exist", key(pod)), Err: err}
	case s.Reason == metav1.StatusReasonConflict && named && strings.Contains(s.Message, "UID"):
		return &Error{Reason: ReasonPodNotFound, Message: fmt.Sprintf("pod %q is not the pod it was: another has its name", key(pod)), Err: err}
	}
	return nil
}

// rejection reads a 403 or 422 that speaks of the values, not of the caller's rights. ok is false for anything else.
func rejection(err error) (state State, reason Reason, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", "", false
	}
	s := status.Status()
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			switch cause.Type {
			case causeNodeCapacity:
				return StateInfeasible, ReasonNodeTooSmall, true
			case causeUnsupportedPlatform:
				return StateInfeasible, ReasonUnsupportedPod, true
			}
		}
	}
	switch {
	case s.Reason == metav1.StatusReasonInvalid && strings.Contains(s.Message, "without support for resize"):
		return StateRefused, ReasonNoPath, true
	case s.Reason == metav1.StatusReasonInvalid && strings.Contains(strings.ToLower(s.Message), "qos"):
		return StateInfeasible, ReasonQOSChange, true
	case s.Reason == metav1.StatusReasonInvalid:
		return StateInfeasible, ReasonRejected, true
	case s.Reason == metav1.StatusReasonForbidden && strings.Contains(s.Message, "exceeded quota"):
		return StateDeferred, ReasonQuotaExceeded, true
	}
	return "", "", false
}
