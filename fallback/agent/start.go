package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// startFor is how long after its start a container may still be made small: an agent that was away for longer does not shrink what has
// come to work.
const startFor = 2 * time.Minute

// small is a pod that starts small, for as long as its cgroup is there.
type small struct {
	uid    string
	path   string // of its cgroup
	limits map[string]corev1.ResourceList
	since  time.Time // it was found
	// done are the ids of the containers that were looked at, and ran the names of all that were ever.
	done, ran map[string]bool
	told      bool // which containers of the annotation never ran
	// letGo says that the pod's CRIResize was deleted just now: what runs keeps what it has.
	letGo bool
	// starting are the cgroups of which one may become a container's.
	starting starting
}

// startSmall gives the containers of a pod that no CRIResize speaks of the limits that they are to start with: each of them once, when it
// has begun to run.
func (a *Agent) startSmall(ctx context.Context, name types.NamespacedName, s *small) (ctrl.Result, error) {
	a.pods.watched(name, []string{s.path})
	a.watchFor(ctx, s.path) // before the look: what comes after it is told
	pod, err := a.runtime.Pod(ctx, s.uid)
	if errors.Is(err, cri.ErrNotFound) {
		return a.endSmall(name, s), nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("looking at a pod that starts small: %w", err)
	}
	if err := a.startContainers(ctx, pod, s); err != nil {
		return ctrl.Result{}, err
	}
	a.tellUnknown(ctx, pod, s)
	return ctrl.Result{RequeueAfter: a.nextStart(pod, s)}, nil
}

func (a *Agent) startContainers(ctx context.Context, pod cri.Pod, s *small) error {
	var errs []error
	done := make(map[string]bool, len(pod.Containers))
	sidecar := slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.Name == v1alpha1.SidecarContainer })
	if sidecar && !a.opts.Sidecar {
		return nil // it does so itself
	}
	for _, c := range pod.Containers {
		s.ran[c.Name] = true
		if done[c.ID] = s.done[c.ID] || s.letGo; done[c.ID] {
			continue
		}
		err := a.startContainer(ctx, pod, c, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("giving container %q of pod %q the limits to start with: %w", c.Name, pod.Namespace+"/"+pod.Name, err))
		}
		done[c.ID] = err == nil
	}
	s.done, s.letGo = done, false
	return errors.Join(errs...)
}

// tellUnknown tells once, when all containers should have run, which names of the annotation are those of none.
func (a *Agent) tellUnknown(ctx context.Context, pod cri.Pod, s *small) {
	if s.told || a.clock.Since(s.since) < startFor {
		return
	}
	s.told = true
	for _, name := range sortedKeys(s.limits) {
		if !s.ran[name] {
			logr.FromContextOrDiscard(ctx).Info("Container of the annotation has not run", "pod", pod.Namespace+"/"+pod.Name, "container", name)
		}
	}
}

// endSmall forgets a pod of which the cgroup is gone. One without a sandbox gets another.
func (a *Agent) endSmall(name types.NamespacedName, s *small) ctrl.Result {
	if _, err := a.tree.Children(s.path); err == nil {
		return ctrl.Result{RequeueAfter: lookSoon}
	}
	a.unfollow(name)
	a.pods.startsSmall(name, nil)
	return ctrl.Result{}
}

// nextStart is when to look again: soon if there is a cgroup whose container does not run yet.
func (a *Agent) nextStart(pod cri.Pod, s *small) time.Duration {
	strangers, err := a.strangers(s.path, cgroupsOf(pod))
	if err != nil || len(strangers) == 0 {
		return lookRarely
	}
	return s.starting.next(strangers, a.clock.Now())
}

// cgroupsOf are the cgroups of a pod's sandbox, where the runtime tells it, and of its running containers.
func cgroupsOf(pod cri.Pod) []string {
	told := []string{pod.CgroupsPath}
	for _, c := range pod.Containers {
		told = append(told, c.CgroupsPath)
	}
	var paths []string
	for _, t := range told {
		if located, err := cgroup.Locate(t); err == nil {
			paths = append(paths, located.Container)
		}
	}
	return paths
}

// startContainer lowers the limits of one container. Its weight and the pod's cgroup stay as the kubelet made them, so that the next start
// has room.
func (a *Agent) startContainer(ctx context.Context, pod cri.Pod, c cri.Container, s *small) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("pod", pod.Namespace+"/"+pod.Name, "container", c.Name)
	limits, found := s.limits[c.Name]
	switch {
	case !found:
		return nil
	case c.InPlace:
		log.Info("Container does not start small", "reason", "its kubelet resizes in place")
		return nil
	case c.CPUs+c.MemoryNodes != "":
		log.Info("Container does not start small", "reason", "the static policy of the CPU or memory manager has pinned it")
		return nil
	case a.clock.Since(c.StartedAt) > startFor:
		log.Info("Container does not start small", "reason", "it was started too long ago", "startedAt", c.StartedAt)
		return nil
	}
	inPlace, err := a.kubeletInPlace(ctx)
	if err != nil {
		return err
	}
	if inPlace {
		log.Info("Container does not start small", "reason", "the node's kubelet resizes in place")
		return nil
	}
	paths, err := cgroup.Locate(c.CgroupsPath)
	if err != nil {
		return err
	}
	held, err := a.tree.Read(paths.Container)
	if err != nil {
		return err
	}
	has := figures.Cgroup{Shares: shares(c, held), Quota: held.Quota, Period: held.Period, Memory: held.Memory}
	want, err := a.lowered(ctx, paths.Container, has, limits)
	if err != nil || want == has {
		return err
	}
	o := observedContainer{Container: c, path: paths.Container, kernel: held}
	if err := a.setContainer(ctx, o, want, want); err != nil {
		return err
	}
	if held, err = a.tree.Read(paths.Container); err != nil {
		return err
	}
	if d := differs(held, []figures.Cgroup{want}); d != "" {
		return fmt.Errorf("after writing, its %s", d)
	}
	log.Info("Container starts small", "quotaMicroseconds", want.Quota, "memoryBytes", want.Memory, "after", a.clock.Since(c.StartedAt).String())
	return nil
}

// shares are what an update must repeat. A cpu.weight tells no shares.
func shares(c cri.Container, held cgroup.Values) int64 {
	if held.Weight != 0 {
		return c.CPUShares
	}
	return int64(held.Shares) //nolint:gosec // G115: the kernel's range ends at 262144
}

// lowered is what a container holds with the limits that are lower. A memory limit that is in use already, or beside which there is
// swap, is left out.
func (a *Agent) lowered(ctx context.Context, path string, held figures.Cgroup, limits corev1.ResourceList) (figures.Cgroup, error) {
	want := figures.Lowered(held, limits)
	if want.Memory == held.Memory {
		return want, nil
	}
	why, err := a.keepsMemory(path, want.Memory)
	if why != "" {
		logr.FromContextOrDiscard(ctx).Info("Memory limit to start with is left out", "cgroup", path, "limitBytes", want.Memory, "reason", why)
		want.Memory = held.Memory
	}
	return want, err
}

// keepsMemory is why a memory limit stays what it is; "": it can be lowered.
func (a *Agent) keepsMemory(path string, limit int64) (string, error) {
	allowance, _, err := a.tree.SwapAllowance(path)
	if err != nil {
		return "", fmt.Errorf("reading the swap limit: %w", err)
	}
	if allowance > 0 {
		return fmt.Sprintf("it may use %d bytes of swap: see docs/agent.md", allowance), nil
	}
	used, err := a.reducedTo(path, limit-limit/headroom)
	if err != nil {
		return "", fmt.Errorf("reading the memory in use: %w", err)
	}
	if used > limit-limit/headroom {
		return fmt.Sprintf("%d bytes are in use, and a twentieth must stay free", used), nil
	}
	return "", nil
}

// started are the figures of a pod that started small, and was given all the limits that are lower.
func started(spec *v1alpha1.CRIResizeSpec, limits map[string]corev1.ResourceList) figures.Pod {
	p := figures.Before(spec)
	for name, l := range limits {
		if held, ours := p.Containers[name]; ours {
			p.Containers[name] = figures.Lowered(held, l)
		}
	}
	return p
}
