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
	facts, err := r.server.detect(ctx)
	if err != nil {
		return Result{}, err
	}
	node, warnings := r.node(ctx, pod)
	if stops := Stops(planInPlace(pod, node, facts, want, r.opts.Plan)); len(stops) > 0 {
		res := Stopped(PathInPlace, pod, stops)
		res.Warnings = warnings
		return res, nil
	}
	delta := Changes(pod, want)
	answer, stop, err := r.try(ctx, pod, facts, delta)
	switch {
	case err != nil:
		return Result{}, err
	case stop != nil && stop.Reason == ReasonNoPath:
		return Stopped(PathNone, pod, []Finding{*stop}), nil
	case stop != nil:
		return Stopped(PathInPlace, pod, []Finding{*stop}), nil
	}
	return tookDryRun(pod, answer, delta, warnings), nil
}

// try sends the change as a dry run, and gives the pod as it would be, or what stands against it.
func (r *InPlace) try(ctx context.Context, pod *corev1.Pod, facts Server, delta Resources) (*corev1.Pod, *Finding, error) {
	patch, err := patchFor(pod, delta)
	if err != nil {
		return nil, nil, &Error{Reason: ReasonUnknown, Message: fmt.Sprintf("encoding the patch of pod %q", key(pod)), Err: err}
	}
	where, stop, err := r.route(ctx, pod, facts, patch)
	if err != nil || stop != nil {
		return nil, stop, err
	}
	answer, err := r.patch(ctx, pod, where, patch, metav1.DryRunAll)
	if err != nil {
		stop, err = r.refused(ctx, pod, where, err)
	}
	return answer, stop, err
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
