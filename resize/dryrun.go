package resize

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DryRun implements DryRunner: the very patch that Resize would send, with dryRun=All.
func (r *InPlace) DryRun(ctx context.Context, pod *corev1.Pod, want Resources) (Result, error) {
	pod = r.memory.newest(pod)
	findings, warnings := r.plan(ctx, pod, want)
	if stops := Stops(findings); len(stops) > 0 {
		res := Stopped(PathInPlace, pod, stops)
		res.Warnings = warnings
		return res, nil
	}
	delta := Changes(pod, want)
	patch, err := patchFor(pod, delta)
	if err != nil {
		return Result{}, &Error{Reason: ReasonUnknown, Message: fmt.Sprintf("encoding the patch of pod %q", key(pod)), Err: err}
	}
	answer, err := r.patch(ctx, pod, patch, metav1.DryRunAll)
	if err != nil {
		return r.refused(ctx, pod, err)
	}
	return tookDryRun(pod, answer, delta, warnings), nil
}

func tookDryRun(pod, answer *corev1.Pod, delta Resources, warnings []string) Result {
	previous := Replaced(pod, delta)
	res := Result{
		Path: PathInPlace, State: StateInProgress, Reason: ReasonSent, Message: "the API server takes the change",
		Previous: &previous, Warnings: warnings, Containers: evidence(pod),
	}
	if left := Changes(answer, delta); len(left.Containers) > 0 {
		res.State, res.Reason = StateInfeasible, ReasonNotTaken
		res.Message = fmt.Sprintf("the API server answers OK but does not take the values of container %q", sortedKeys(left.Containers)[0])
	}
	return res
}
