package agent

import (
	"context"
	"errors"
	"io/fs"
	gopath "path"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/util/workqueue"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// inPlaceSince is the minor release from which on kubelets resize in place unless their gate is switched off.
const inPlaceSince = 33

// finder finds the pods of the node that are to start small. It is told of new cgroups, and asks the runtime once for each pod.
type finder struct {
	// queue has the cgroups in which something happened; "" stands for the start, when it is not known yet where pods have theirs.
	queue workqueue.TypedDelayingInterface[string]
	// tops are the cgroups in which pods have theirs.
	tops map[string]bool
	// seen are the cgroups of pods.
	seen map[string]*found
}

// found is a pod's cgroup.
type found struct {
	decided  bool     // whether the pod starts small
	starting starting // its sandbox, as long as that is not ready
}

func newFinder() *finder {
	return &finder{
		queue: workqueue.NewTypedDelayingQueue[string](),
		tops:  map[string]bool{},
		seen:  map[string]*found{},
	}
}

// find runs the finder until ctx ends.
func (a *Agent) find(ctx context.Context, moved moves) error {
	f := a.finder
	defer context.AfterFunc(ctx, f.queue.ShutDown)()
	f.queue.Add("")
	for {
		path, ended := f.queue.Get()
		if ended {
			return nil
		}
		a.findAt(ctx, path, moved)
		f.queue.Done(path)
	}
}

func (a *Agent) findAt(ctx context.Context, path string, moved moves) {
	switch {
	case path == "":
		a.findTops(ctx)
	case a.finder.tops[path]:
		a.findPods(ctx, path, moved)
	case a.finder.seen[path] != nil && !a.finder.seen[path].decided:
		a.decide(ctx, path, moved)
	}
}

// findTops learns where pods have their cgroups from one that is there, the agent's own if no other, and looks at them all now and
// then: the kernel may have dropped an event.
func (a *Agent) findTops(ctx context.Context) {
	f := a.finder
	if len(f.tops) == 0 {
		for _, top := range a.tops(ctx) {
			f.tops[top] = true
			a.watchFor(ctx, top)
		}
	}
	for top := range f.tops {
		f.queue.Add(top)
	}
	if len(f.tops) == 0 {
		f.queue.AddAfter("", lookAgain)
		return
	}
	f.queue.AddAfter("", lookRarely)
}

// tops are the cgroups in which pods have theirs, if there is a pod that tells. A runtime that does not answer is told by the heartbeat.
func (a *Agent) tops(ctx context.Context) []string {
	pods, err := a.runtime.Sandboxes(ctx)
	for i := 0; err == nil && i < len(pods); i++ {
		full, err := a.runtime.Pod(ctx, pods[i].UID)
		if err != nil {
			continue // it may have ended since
		}
		for _, path := range cgroupsOf(full) {
			if tops, err := cgroup.Tops(gopath.Dir(path)); err == nil {
				return tops
			}
		}
	}
	return nil
}

// watchFor has the finder told of what happens in a cgroup.
func (a *Agent) watchFor(ctx context.Context, path string) {
	if err := a.watcher.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		logr.FromContextOrDiscard(ctx).Error(err, "Cgroup not watched, pods may start small late", "cgroup", path)
	}
}

// findPods looks which pods came and went.
func (a *Agent) findPods(ctx context.Context, top string, moved moves) {
	f := a.finder
	children, err := a.tree.Children(top)
	if err != nil {
		return // looked at again with all tops
	}
	there := make(map[string]bool, len(children))
	for _, path := range children {
		if uid := cgroup.PodUID(path); uid == "" || a.opts.Sidecar && uid != a.opts.PodUID {
			continue
		}
		there[path] = true
		if f.seen[path] == nil {
			f.seen[path] = &found{}
			a.watchFor(ctx, path)
			f.queue.Add(path)
		}
	}
	for path := range f.seen {
		if name, small := a.pods.at(path); !there[path] && gopath.Dir(path) == top {
			delete(f.seen, path)
			if small {
				moved.send(ctx, name)
			}
		}
	}
}

// decide asks the runtime once whether a pod is to start small. A pod without a sandbox in its cgroup has none that is ready.
func (a *Agent) decide(ctx context.Context, path string, moved moves) {
	f := a.finder
	pod, err := a.runtime.Sandbox(ctx, cgroup.PodUID(path))
	switch {
	case errors.Is(err, cri.ErrNotFound):
		if children, err := a.tree.Children(path); err == nil && len(children) > 0 {
			f.queue.AddAfter(path, f.seen[path].starting.next(children, a.clock.Now()))
		}
		return
	case err != nil:
		f.queue.AddAfter(path, lookSoon)
		return
	}
	f.seen[path].decided = true
	limits, err := v1alpha1.StartLimits(pod.Annotations)
	log := logr.FromContextOrDiscard(ctx).WithValues("pod", pod.Namespace+"/"+pod.Name)
	switch {
	case err != nil:
		log.Error(err, "Pod does not start small")
	case len(limits) > 0:
		if why := a.notSmall(pod); why != "" {
			log.Info("Pod does not start small", "reason", why)
			return
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.UID}
		a.pods.startsSmall(name, &small{uid: pod.UID, path: path, limits: limits, since: a.clock.Now(), ran: map[string]bool{}})
		moved.send(ctx, name)
	}
}

// notSmall is why the annotation of a pod does not count here; "": it does.
func (a *Agent) notSmall(pod cri.Pod) string {
	if !a.opts.isFor(pod.Namespace) {
		return "the agent is not for its namespace"
	}
	if err := a.optedIn(pod); err != nil {
		return err.Error()
	}
	return ""
}

// kubeletInPlace says whether the node's kubelet resizes in place: it would take lower limits for what the pod has, or put its spec's
// back. It is asked at each start, since a kubelet may be upgraded under its pods. A sidecar has no right to know.
func (a *Agent) kubeletInPlace(ctx context.Context) (bool, error) {
	if a.opts.Sidecar {
		return false, nil
	}
	n, err := a.ownNode(ctx)
	if err != nil {
		return false, err
	}
	v, err := version.ParseGeneric(n.Status.NodeInfo.KubeletVersion)
	return err == nil && v.Major() == 1 && v.Minor() >= inPlaceSince, nil
}
