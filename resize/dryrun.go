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
	stop, err := r.try(ctx, pod, facts, delta)
	switch {
	case err != nil:
		return Result{}, err
	case stop != nil:
		return Stopped(PathInPlace, pod, []Finding{*stop}), nil
	}
	previous := Replaced(pod, delta)
	return Result{
		Path: PathInPlace, State: StateInProgress, Reason: ReasonSent, Message: "the API server takes the change",
		Previous: &previous, Warnings: warnings, Containers: evidence(pod),
	}, nil
}

// try sends a change as a dry run, once: finding out where to send it may be that already. The Finding says what stands against it.
func (r *InPlace) try(ctx context.Context, pod *corev1.Pod, facts Server, delta Resources) (*Finding, error) {
	patch, err := patchFor(pod, delta)
	if err != nil {
		return nil, &Error{Reason: ReasonUnknown, Message: fmt.Sprintf("encoding the patch of pod %q", key(pod)), Err: err}
	}
	_, known := r.server.takesInPod()
	where, stop, err := r.route(ctx, pod, facts, patch)
	if err != nil || stop != nil || where == endpointPod && !known {
		return stop, err
	}
	answer, err := r.patch(ctx, pod, where, patch, metav1.DryRunAll)
	if err != nil {
		return r.refused(ctx, pod, where, err)
	}
	if left := Changes(answer, delta); len(left.Containers) > 0 {
		return &Finding{
			State: StateInfeasible, Reason: ReasonNotTaken,
			Message: fmt.Sprintf("the API server answers OK but does not take the values of container %q", sortedKeys(left.Containers)[0]),
		}, nil
	}
	return nil, nil
}
