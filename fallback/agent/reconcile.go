package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	// lookAgain is how often the kernel is read when nothing tells of a change: the net below the watch.
	lookAgain = 30 * time.Second
	// lookSoon is for what is expected to change by itself: a container that is to start, memory that is to be freed.
	lookSoon = 2 * time.Second
)

// lookRarely is for a pod of which the CRIResize is gone: only its end is waited for.
const lookRarely = 5 * time.Minute

// Reconcile brings the kernel to what one CRIResize asks for and writes down what it then holds.
func (a *Agent) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !a.lock.held.Load() {
		return ctrl.Result{}, nil // all are looked at when it is
	}
	k := a.pods.look(req.NamespacedName, a.clock.Now())
	defer a.pods.looked(req.NamespacedName)
	object := &v1alpha1.CRIResize{}
	if err := a.client.Get(ctx, req.NamespacedName, object); err != nil {
		if apierrors.IsNotFound(err) {
			return a.withoutObject(ctx, req.NamespacedName, k)
		}
		return ctrl.Result{}, fmt.Errorf("reading CRIResize %q: %w", req.NamespacedName, err)
	}
	if !a.opts.holds(object) || !object.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	k.see(object)
	said := object.DeepCopy()
	v := a.apply(ctx, said, k)
	setCondition(said, v)
	said.Status.Repairs += k.repairs
	a.pulse(&said.Status)
	if err := a.report(ctx, object, said); apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: lookSoon}, nil // at the latest: the watch will tell of the newer version
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of CRIResize %q: %w", req.NamespacedName, err)
	}
	k.repairs = 0
	logr.FromContextOrDiscard(ctx).V(1).Info("Looked at pod", "pod", object.Namespace+"/"+object.Spec.PodName, "reason", v.reason, "message", v.message)
	if v.err != nil {
		return ctrl.Result{}, v.err
	}
	return ctrl.Result{RequeueAfter: v.again}, nil
}

// withoutObject is for a pod that no CRIResize speaks of, any more or yet.
func (a *Agent) withoutObject(ctx context.Context, name types.NamespacedName, k *known) (ctrl.Result, error) {
	letGo := k.object != nil && !k.deleted
	result, err := a.letGo(ctx, name, k)
	s := a.pods.starting(name)
	if err != nil || s == nil {
		return result, err
	}
	s.letGo = s.letGo || letGo
	return a.startSmall(ctx, name, s)
}

// verdict is what a look at one pod came to.
type verdict struct {
	reason  string
	message string
	again   time.Duration
	err     error // worth another try with a growing delay
}

// failed keeps the message on one line: runtimes send newlines.
func failed(reason string, err error) verdict {
	return verdict{reason: reason, message: strings.Join(strings.Fields(err.Error()), " "), err: err}
}

// apply brings the kernel to object.Spec and fills in object.Status but for the condition.
func (a *Agent) apply(ctx context.Context, object *v1alpha1.CRIResize, k *known) verdict {
	v, wait := k.holdsOff(a.clock.Now())
	if wait && !k.peek(a.clock.Now()) {
		return v
	}
	o, seen := a.glance(ctx, k.rest)
	if !seen {
		var err error
		o, err = a.observe(ctx, object)
		if errors.Is(err, errNotOptedIn) && object.Spec.Enforce != nil && !*object.Spec.Enforce {
			return verdict{reason: v1alpha1.ReasonNotEnforced, message: "enforcement is off, and " + err.Error(), again: lookAgain}
		}
		if err != nil {
			return unobserved(err)
		}
	}
	if !wait || !o.sameRuns(k.runs) { // another writer can wait, a container that is to be started cannot
		k.until = time.Time{}
		v, o = a.enforce(ctx, object, o, k)
	}
	record(object, o)
	return v
}

// enforce does so for a pod that was looked at just now, and gives what was seen last.
func (a *Agent) enforce(ctx context.Context, object *v1alpha1.CRIResize, o *observed, k *known) (verdict, *observed) {
	before, want := figures.Before(&object.Spec), figures.Wanted(&object.Spec)
	if object.Spec.Enforce != nil && !*object.Spec.Enforce {
		return a.stop(ctx, object, o, before, k), o
	}
	if v, ok := a.suits(object, o, want, k); !ok {
		return v, o
	}
	if v, ok := a.fits(ctx, object, k); !ok {
		return v, o
	}
	if v, ok := a.adopt(ctx, object, o, append([]figures.Pod{before, want, started(&object.Spec, o.startLimits)}, k.left...)); !ok {
		return v, o
	}
	a.follow(ctx, client.ObjectKeyFromObject(object), o)
	k.look(o, want, a.clock.Now())
	if v, wait := a.pause(object, k); wait {
		return v, o
	}
	return a.bring(ctx, object, o, before, want, k)
}

// bring has the kernel hold what is wanted, and reads back what it holds then. Where all was in force before and still is there is
// nothing to write.
func (a *Agent) bring(ctx context.Context, object *v1alpha1.CRIResize, o *observed, before, want figures.Pod, k *known) (verdict, *observed) {
	applied, held := wasApplied(object), o.difference(want) == ""
	if _, down := o.missing(want); applied && held && !down {
		return a.judge(object, o, o, want, k), o
	}
	writeErr := a.hold(ctx, o, before, want, figures.Applied(&object.Spec, object.Status.Applied))
	// It may be half applied: what holds now is read, not assumed.
	now, err := a.observe(ctx, object)
	switch {
	case writeErr != nil && err != nil:
		return a.refused(object, o, o, want, writeErr, k), o
	case writeErr != nil:
		return a.refused(object, o, now, want, writeErr, k), now
	case err != nil:
		return unobserved(err), o
	}
	v := a.judge(object, o, now, want, k)
	if v.reason == v1alpha1.ReasonApplied && applied && !held {
		k.repairs++
	}
	return v, now
}

// wasApplied says whether all that is wanted now was in force before.
func wasApplied(object *v1alpha1.CRIResize) bool {
	if len(object.Status.Applied) != len(object.Spec.Containers) {
		return false
	}
	for _, c := range object.Spec.Containers {
		noted := slices.ContainsFunc(object.Status.Applied, func(n v1alpha1.AppliedContainer) bool {
			return n.Name == c.Name && sameRequirements(n.Resources, c.Wanted)
		})
		if !noted {
			return false
		}
	}
	return true
}

func sameRequirements(a, b v1alpha1.Requirements) bool { return equality.Semantic.DeepEqual(a, b) }

// adopt checks, once, that the kernel holds what the kubelet would have set, or this agent, and notes that before anything is written:
// from then on a difference is somebody else's doing, and is undone.
func (a *Agent) adopt(ctx context.Context, object *v1alpha1.CRIResize, o *observed, accepted []figures.Pod) (verdict, bool) {
	if len(object.Status.Applied) > 0 {
		return verdict{}, true
	}
	if d := o.difference(accepted...); d != "" {
		return verdict{reason: v1alpha1.ReasonNodeDiffers, message: d + ", by the pod's spec; nothing was written", again: lookAgain}, false
	}
	adopted := object.DeepCopy()
	adopted.Status.Applied = nil
	for _, c := range object.Spec.Containers {
		adopted.Status.Applied = append(adopted.Status.Applied, v1alpha1.AppliedContainer{Name: c.Name, Resources: c.Before})
	}
	if err := a.patch(ctx, object, adopted); err != nil {
		return failed(v1alpha1.ReasonPending, fmt.Errorf("noting the pod as adopted: %w", err)), false
	}
	object.Status.Applied, object.ResourceVersion = adopted.Status.Applied, adopted.ResourceVersion
	return verdict{}, true
}

// judge compares what was read back with what is wanted. What was written was written for the containers that ran then.
func (a *Agent) judge(object *v1alpha1.CRIResize, was, o *observed, want figures.Pod, k *known) verdict {
	if name, down := o.missing(want); down {
		k.proven = nil
		return verdict{reason: v1alpha1.ReasonContainerNotRunning, message: fmt.Sprintf("container %q is not running", name), again: a.lookForStart(o, k)}
	}
	if d := o.difference(want); d != "" {
		if !o.sameRuns(was) {
			return failed(v1alpha1.ReasonPending, fmt.Errorf("a container was started meanwhile, %s", d))
		}
		k.note(d, o, a.clock.Now())
		if v, wait := a.pause(object, k); wait {
			return v
		}
		return failed(v1alpha1.ReasonWriteFailed, fmt.Errorf("after writing, %s", d))
	}
	k.prove(o)
	k.rest = o
	object.Status.Applied = nil
	for _, c := range object.Spec.Containers {
		object.Status.Applied = append(object.Status.Applied, v1alpha1.AppliedContainer{Name: c.Name, Resources: c.Wanted})
	}
	return verdict{reason: v1alpha1.ReasonApplied, message: "the cgroups of pod and containers hold what is wanted", again: lookAgain}
}

// pause says whether a repair must wait. Until then the pod is not watched: one who writes all the time would wake the agent each time.
// Every 2 s it is seen whether a container was restarted.
func (a *Agent) pause(object *v1alpha1.CRIResize, k *known) (verdict, bool) {
	v, wait := k.holdsOff(a.clock.Now())
	if wait {
		a.unfollow(client.ObjectKeyFromObject(object))
	}
	return v, wait
}

// refused is for a write that failed. Where all was in force before, and the same containers run, somebody else writes: cgroup v1
// refuses a container more than its pod has, which that one has just lowered. The pod is not watched until the next try: see pause.
func (a *Agent) refused(object *v1alpha1.CRIResize, was, is *observed, want figures.Pod, err error, k *known) verdict {
	v := unheld(err)
	if v.reason != v1alpha1.ReasonWriteFailed {
		return v
	}
	a.unfollow(client.ObjectKeyFromObject(object))
	if d := is.difference(want); d != "" && wasApplied(object) && is.sameRuns(was) {
		k.note(d+"; "+v.message, is, a.clock.Now())
		if contended, wait := k.holdsOff(a.clock.Now()); wait {
			return contended
		}
	}
	return v
}

func unobserved(err error) verdict {
	switch {
	case errors.Is(err, cri.ErrUnavailable):
		return failed(v1alpha1.ReasonRuntimeUnavailable, err)
	case errors.Is(err, cri.ErrNotFound):
		return verdict{reason: v1alpha1.ReasonPodNotFound, message: err.Error(), again: lookSoon}
	case errors.Is(err, errNotOptedIn):
		return verdict{reason: v1alpha1.ReasonNotOptedIn, message: err.Error(), again: lookAgain}
	case errors.Is(err, errNoCgroup):
		return verdict{reason: v1alpha1.ReasonContainerNotRunning, message: err.Error(), again: lookSoon}
	default:
		return failed(v1alpha1.ReasonPending, err)
	}
}

func unheld(err error) verdict {
	var inUse *memoryInUseError
	switch {
	case errors.As(err, &inUse):
		return verdict{reason: v1alpha1.ReasonMemoryInUse, message: inUse.message, again: lookSoon}
	case errors.Is(err, cri.ErrUnavailable):
		return failed(v1alpha1.ReasonRuntimeUnavailable, err)
	default:
		return failed(v1alpha1.ReasonWriteFailed, err)
	}
}

// record writes down what the kernel holds.
func record(object *v1alpha1.CRIResize, o *observed) {
	pod := kernelOf(o.pod)
	object.Status.Pod = &pod
	object.Status.Containers = nil
	for _, c := range object.Spec.Containers {
		if seen, runs := o.containers[c.Name]; runs {
			object.Status.Containers = append(object.Status.Containers, v1alpha1.ContainerKernel{
				Name: c.Name, ContainerID: seen.ID, RestartCount: int32(seen.RestartCount), Kernel: kernelOf(seen.kernel), //nolint:gosec // G115: the API's restartCount is an int32
			})
		}
	}
}

func kernelOf(v cgroup.Values) v1alpha1.Kernel {
	k := v1alpha1.Kernel{CPUQuotaMicroseconds: v.Quota, CPUPeriodMicroseconds: v.Period, MemoryLimitBytes: v.Memory}
	w := weight(v)
	if v.Weight != 0 {
		k.CPUWeight = &w
	} else {
		k.CPUShares = &w
	}
	return k
}

func setCondition(object *v1alpha1.CRIResize, v verdict) {
	status := metav1.ConditionFalse
	if v.reason == v1alpha1.ReasonApplied {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&object.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionApplied, Status: status, Reason: v.reason, Message: v.message, ObservedGeneration: object.Generation,
	})
}

// report sends the status if it says anything new.
func (a *Agent) report(ctx context.Context, was, is *v1alpha1.CRIResize) error {
	if equality.Semantic.DeepEqual(was.Status, is.Status) {
		return nil
	}
	return client.IgnoreNotFound(a.patch(ctx, was, is))
}

// patch changes a status from was to is, if it still is the version that was looked at: what is true of one CRIResize is not of the
// next one of the same pod.
func (a *Agent) patch(ctx context.Context, was, is *v1alpha1.CRIResize) error {
	base := was.DeepCopy()
	base.ResourceVersion = is.ResourceVersion
	return a.client.Status().Patch(ctx, is, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
}
