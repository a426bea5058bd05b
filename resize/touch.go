package resize

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TouchedAnnotation is set on a pod, to the time of day, to make a kubelet of 1.27 to 1.31 look at it. Nothing reads it but other
// processes that would do the same.
const TouchedAnnotation = "podresize.dev/touched"

// firstTouch is how long after a change a pod is touched first: by then its kubelet has begun the sync that sets the cgroups (after 33 to
// 105 ms they were seen to be set), so that the touch makes another one, which finds something to report.
const firstTouch = 100 * time.Millisecond

// touchPauses are the times between one touch and the next. A sync waits for the first look at the containers after the one before
// (podCache.GetNewerThan in pkg/kubelet/pod_workers.go), which kubelets take each second: a shorter pause would be wasted. After the last
// one the kubelet is left to itself.
func touchPauses() [4]time.Duration {
	return [...]time.Duration{1100 * time.Millisecond, 2 * time.Second, 4 * time.Second, 8 * time.Second}
}

// touch has the pod's kubelet report if it is one that would do so only at its next sync, and it is time.
func (r *InPlace) touch(ctx context.Context, pod *corev1.Pod, n note, res *Result) {
	if r.opts.NoTouch {
		return
	}
	now := r.opts.Clock.Now()
	due, next := r.memory.claimTouch(pod, n, now)
	if due {
		if err := r.sendTouch(ctx, pod, now); err != nil {
			res.Warnings = append(res.Warnings, err.Error())
			if apierrors.IsForbidden(err) {
				next = 0
				r.memory.stopTouching(pod.UID)
			}
		}
	}
	if next > 0 && next < res.RetryAfter {
		res.RetryAfter = next
	}
}

func (r *InPlace) sendTouch(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{TouchedAnnotation: touchValue(now)},
	}})
	if err == nil {
		_, err = r.patch(ctx, pod, endpointPod, patch)
	}
	switch {
	case apierrors.IsForbidden(err):
		return forbidden(untouchable(pod), endpointPod.rule(), err)
	case err != nil:
		return fmt.Errorf("%s: %w", untouchable(pod), err)
	}
	return nil
}

func untouchable(pod *corev1.Pod) string {
	return fmt.Sprintf("pod %q cannot be touched, so that its kubelet may report a change only after 60 to 90 s", key(pod))
}

func touchValue(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// touchedAt is when somebody touched the pod last; zero: nobody has.
func touchedAt(pod *corev1.Pod) time.Time {
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[TouchedAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}
