package resize

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/lru"
)

// Planner is what a Resizer has that can also tell beforehand: InPlace, fallback.Resizer and Adapter have it.
type Planner interface {
	// Plan tells what Resize would do and what stands against it. It changes nothing, and unlike Resize it asks the API server
	// whether the caller is allowed to.
	Plan(ctx context.Context, pod *corev1.Pod, want Resources) (Forecast, error)
}

// Forecast is what a Planner says.
type Forecast struct {
	// Path is the one that Resize would take.
	Path Path `json:"path,omitempty"`
	// Changes is the part of want that the pod does not have yet.
	Changes Resources `json:"changes"`
	// Previous is what would be asked for to take the changes back.
	Previous Resources `json:"previous"`
	// Findings are what stands against it, and advice.
	Findings []Finding `json:"findings,omitempty"`
	// Warnings say what could not be checked.
	Warnings []string `json:"warnings,omitempty"`
}

// HandsOver is what a fallback has that lets go of a pod whose node has come to resize in place: fallback.Resizer has it.
type HandsOver interface {
	// HandOver has the fallback let go of the pod; the pod keeps what it has. held is what it was given beyond its spec, nil if the
	// fallback had no hold on it. ended says whether it has let go.
	HandOver(ctx context.Context, pod *corev1.Pod) (held *Resources, ended bool, err error)
	// HandedOver removes what the fallback has kept of the pod, once its spec has all that it held.
	HandedOver(ctx context.Context, pod *corev1.Pod) error
}

// Adapter is the Resizer for clusters of any version: for each pod it takes InPlace if both API server and node can do that,
// otherwise the fallback. It never falls back from a refusal.
type Adapter struct {
	inPlace  *InPlace
	fallback Resizer
	// free are the UIDs of pods that the fallback has no hold on.
	free *lru.Cache
}

var (
	_ Resizer = (*Adapter)(nil)
	_ Planner = (*Adapter)(nil)
)

// NewAdapter makes an Adapter. fallback, usually a fallback.Resizer, may be nil: then pods that cannot be resized in place are
// Refused.
func NewAdapter(client kubernetes.Interface, fallback Resizer, opts InPlaceOptions) *Adapter {
	inPlace := NewInPlace(client, opts)
	return &Adapter{inPlace: inPlace, fallback: fallback, free: lru.New(inPlace.opts.Remember)}
}

// Resize implements Resizer.
func (a *Adapter) Resize(ctx context.Context, pod *corev1.Pod, want Resources) (Result, error) {
	if res, ok := a.inPlace.settled(pod, want); ok {
		return res, nil
	}
	if stops := a.onAnyPath(pod, want); len(stops) > 0 {
		return Stopped(PathNone, pod, stops), nil
	}
	path, finding := a.choose(ctx, pod)
	if finding != nil {
		return Stopped(PathNone, pod, []Finding{*finding}), nil
	}
	if path == a.inPlace {
		return a.takeOver(ctx, pod, want)
	}
	return path.Resize(ctx, pod, want)
}

// takeOver resizes in place, after the fallback has let go of the pod. What the fallback gave the pod is asked for in place too, and
// only when that is Done the fallback forgets it. A pod is asked about once: the fallback takes no pod that can be resized in place.
// While it is not known that the API server takes a resize nobody has to let go.
func (a *Adapter) takeOver(ctx context.Context, pod *corev1.Pod, want Resources) (Result, error) {
	fallback, ok := a.fallback.(HandsOver)
	if _, free := a.free.Get(pod.UID); free || !ok || !a.inPlace.takes(ctx) {
		return a.inPlace.Resize(ctx, pod, want)
	}
	held, ended, err := fallback.HandOver(ctx, pod)
	switch {
	case err != nil:
		return Result{}, err
	case held == nil:
		a.free.Add(pod.UID, nil)
		return a.inPlace.Resize(ctx, pod, want)
	case !ended:
		return Result{
			Path: PathInPlace, State: StateInProgress, Reason: ReasonHandingOver, RetryAfter: pollSoon, Containers: evidence(pod),
			Message: fmt.Sprintf("node %q resizes in place now: the agent is to let go of the pod first", pod.Spec.NodeName),
		}, nil
	}
	res, err := a.inPlace.Resize(ctx, pod, overlay(*held, want))
	if err != nil {
		return res, err
	}
	if res.Previous != nil {
		previous := overlay(*res.Previous, *held)
		res.Previous = &previous
	}
	if res.State == StateDone {
		if err := fallback.HandedOver(ctx, pod); err != nil {
			return Result{}, err
		}
		a.free.Add(pod.UID, nil)
	}
	return res, nil
}

// overlay is base with what top names.
func overlay(base, top Resources) Resources {
	out := Resources{Containers: map[string]Requirements{}}
	for _, r := range []Resources{base, top} {
		for name, c := range r.Containers {
			out.Containers[name] = Merge(out.Containers[name], c)
		}
	}
	return out
}

// Plan implements Planner.
func (a *Adapter) Plan(ctx context.Context, pod *corev1.Pod, want Resources) (Forecast, error) {
	if stops := a.onAnyPath(pod, want); len(stops) > 0 {
		return Forecast{Findings: stops}, nil
	}
	path, finding := a.choose(ctx, pod)
	if finding != nil {
		return Forecast{Findings: []Finding{*finding}}, nil
	}
	planner, ok := path.(Planner)
	if !ok {
		return Forecast{Warnings: []string{"the fallback cannot plan"}}, nil
	}
	return planner.Plan(ctx, pod, want)
}

// onAnyPath finds what no path could do: that needs no cluster, and no running container.
func (a *Adapter) onAnyPath(pod *corev1.Pod, want Resources) []Finding {
	if f := planPod(pod, nil, Server{Resize: true}); f != nil {
		return []Finding{*f}
	}
	return planNames(pod, Server{Resize: true}, want, Changes(pod, want))
}

// choose takes the path for one pod: by its node alone. A kubelet that resizes in place would undo any other change, so that there
// is no other path even where the API server takes none, which InPlace says.
func (a *Adapter) choose(ctx context.Context, pod *corev1.Pod) (Resizer, *Finding) {
	switch a.support(ctx, pod) {
	case nodeYes:
		return a.inPlace, nil
	case nodeNo:
		if a.fallback != nil {
			return a.fallback, nil
		}
		return nil, noPath(fmt.Sprintf("node %q does not resize in place, and there is no fallback", pod.Spec.NodeName))
	default:
		return nil, untold(pod)
	}
}

func untold(pod *corev1.Pod) *Finding {
	return &Finding{
		State: StateDeferred, Reason: ReasonNotRunning,
		Message: fmt.Sprintf("pod %q has no running container, so nothing tells what its node can do", key(pod)),
	}
}

func noPath(message string) *Finding {
	return &Finding{State: StateRefused, Reason: ReasonNoPath, Message: message}
}

// support asks the pod, and while that tells nothing, its node.
func (a *Adapter) support(ctx context.Context, pod *corev1.Pod) nodeSupport {
	if s := supportOf(pod); s != nodeUnknown || pod.Spec.NodeName == "" {
		return s
	}
	node, err := a.inPlace.opts.Nodes(ctx, pod.Spec.NodeName)
	if err != nil {
		return nodeUnknown
	}
	return supportByVersion(node)
}
