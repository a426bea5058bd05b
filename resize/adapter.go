package resize

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// Adapter is the Resizer for clusters of any version: for each pod it takes InPlace if both API server and node can do that,
// otherwise the fallback. It never falls back from a refusal.
type Adapter struct {
	server   *server
	inPlace  *InPlace
	fallback Resizer
}

var _ Resizer = (*Adapter)(nil)

// NewAdapter makes an Adapter. fallback, usually a fallback.Resizer, may be nil: then pods that cannot be resized in place are
// Refused.
func NewAdapter(client kubernetes.Interface, fallback Resizer, opts InPlaceOptions) *Adapter {
	inPlace := NewInPlace(client, opts)
	return &Adapter{
		server:   &server{discovery: client.Discovery(), clock: inPlace.opts.Clock},
		inPlace:  inPlace,
		fallback: fallback,
	}
}

// Resize implements Resizer.
func (a *Adapter) Resize(ctx context.Context, pod *corev1.Pod, want Resources) (Result, error) {
	// What no path could do is found first: it needs no cluster to say so.
	if findings := Plan(pod, nil, want, a.inPlace.opts.Plan); len(findings) > 0 {
		return Stopped(PathNone, pod, findings), nil
	}
	path, finding, err := a.choose(ctx, pod)
	if err != nil {
		return Result{}, err
	}
	if finding != nil {
		res := Stopped(PathNone, pod, []Finding{*finding})
		if res.State == StateDeferred {
			res.RetryAfter = pollSoon
		}
		return res, nil
	}
	res, err := path.Resize(ctx, pod, want)
	if contradicts(err) {
		a.server.forget()
	}
	return res, err
}
