package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
)

// decision is what one call of Resize costs that needs no request, for a pod from the informer: one that is done and was looked
// at before, one that is done and has changed otherwise since, and one that is not done.
type decision struct{ again, changed, waiting cost }

type cost struct {
	time          time.Duration
	allocs, bytes int64
}

// decide takes the pod of the way "podresize", as the last resize left it.
func decide(ctx context.Context, s *site) (decision, error) {
	pod, err := s.controller.pods.Pods(namespace).Get("podresize")
	if err != nil {
		return decision{}, err
	}
	has := amount{pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(), pod.Spec.Containers[0].Resources.Limits.Cpu().MilliValue()}
	waiting := pod.DeepCopy() // as if its kubelet had not seen it yet
	waiting.UID, waiting.Generation = "waiting", pod.Generation+1
	var d decision
	if d.again, err = s.costOf(ctx, has, resize.StateDone, pod); err != nil {
		return d, err
	}
	changed := pod.DeepCopy()
	changed.ResourceVersion += "0"
	if d.changed, err = s.costOf(ctx, has, resize.StateDone, pod, changed); err != nil {
		return d, err
	}
	d.waiting, err = s.costOf(ctx, has, resize.StateInProgress, waiting)
	return d, err
}

// costOf takes turns between the pods.
func (s *site) costOf(ctx context.Context, has amount, state resize.State, pods ...*corev1.Pod) (cost, error) {
	asked, calls := has.want(), 0
	call := func() error {
		pod := pods[calls%len(pods)]
		calls++
		res, err := s.controller.resizer.Resize(ctx, pod, asked)
		if err == nil && res.State != state {
			err = fmt.Errorf("the pod is %s (%s), not %s: %s", res.State, res.Reason, state, res.Message)
		}
		return err
	}
	var errs error
	result := testing.Benchmark(func(b *testing.B) { //nolint:thelper // no test: the benchmark itself
		for b.Loop() {
			errs = errors.Join(errs, call())
		}
	})
	if errs != nil {
		return cost{}, fmt.Errorf("deciding for a cached pod: %w", errs)
	}
	return cost{time: time.Duration(result.NsPerOp()), allocs: result.AllocsPerOp(), bytes: result.AllocedBytesPerOp()}, nil
}
