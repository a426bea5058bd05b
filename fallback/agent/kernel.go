package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// runtime is the container runtime of the node.
type runtime interface {
	Pod(ctx context.Context, uid string) (cri.Pod, error)
	Sandbox(ctx context.Context, uid string) (cri.Pod, error)
	Sandboxes(ctx context.Context) ([]cri.Pod, error)
	Update(ctx context.Context, id string, r cri.Resources) error
	// Check finds out whether the runtime answers.
	Check(ctx context.Context) error
}

// systemd is that of the node.
type systemd interface {
	Set(ctx context.Context, path string, want cgroup.Slice) error
}

// observed is a pod as runtime and kernel have it at one moment.
type observed struct {
	at         time.Time // when the runtime was asked
	path       string    // of the pod's cgroup
	sandbox    string    // the cgroup of the pod's sandbox, "" where the runtime does not tell
	pod        cgroup.Values
	containers map[string]observedContainer
	// hollow are the containers that run, by the runtime's word, and have no process in their cgroup on this host.
	hollow []cri.Container
	// startLimits are those of the pod's annotation; nil: it has none, or one that nobody can read.
	startLimits map[string]corev1.ResourceList
	// handler is the runtime handler of the pod, "" for the default one.
	handler string
}

type observedContainer struct {
	cri.Container
	path   string
	kernel cgroup.Values
}

// errNoCgroup: the runtime tells no cgroup of the sandbox, and none of its containers runs yet.
var errNoCgroup = errors.New("the runtime tells no cgroup of the pod")

// observe finds the pod's running containers and reads their cgroups and the pod's. Who may write a CRIResize in one namespace has
// no say about the pods of another: the runtime's pod must be the object's by name too.
func (a *Agent) observe(ctx context.Context, object *v1alpha1.CRIResize) (*observed, error) {
	asked := a.clock.Now()
	pod, err := a.runtime.Pod(ctx, object.Spec.PodUID)
	if err != nil {
		return nil, err
	}
	if pod.Namespace != object.Namespace || pod.Name != object.Spec.PodName {
		return nil, fmt.Errorf("the pod with UID %q is another one than %q: %w", object.Spec.PodUID, object.Namespace+"/"+object.Spec.PodName, cri.ErrNotFound)
	}
	if err := a.optedIn(pod); err != nil {
		return nil, err
	}
	startLimits, _ := v1alpha1.StartLimits(pod.Annotations) // an error was told when the pod was found
	o := &observed{at: asked, startLimits: startLimits, handler: pod.RuntimeHandler, containers: make(map[string]observedContainer, len(pod.Containers))}
	if pod.CgroupsPath != "" {
		paths, err := cgroup.Locate(pod.CgroupsPath)
		if err != nil {
			return nil, fmt.Errorf("locating the pod's cgroup: %w", err)
		}
		o.path, o.sandbox = paths.Pod, paths.Container
	}
	for _, c := range pod.Containers {
		paths, err := cgroup.Locate(c.CgroupsPath)
		if err != nil {
			return nil, fmt.Errorf("locating the cgroup of container %q: %w", c.Name, err)
		}
		o.path = paths.Pod
		values, err := a.readRunning(paths.Container)
		if errors.Is(err, fs.ErrNotExist) {
			o.hollow = append(o.hollow, c)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the cgroup of container %q: %w", c.Name, err)
		}
		o.containers[c.Name] = observedContainer{Container: c, path: paths.Container, kernel: values}
	}
	if o.path == "" {
		return nil, errNoCgroup
	}
	if o.pod, err = a.tree.Read(o.path); err != nil {
		return nil, fmt.Errorf("reading the pod's cgroup: %w", err)
	}
	return o, nil
}

// readRunning reads the cgroup of a container that runs; without a process in it, it is as good as gone.
func (a *Agent) readRunning(path string) (cgroup.Values, error) {
	populated, err := a.tree.Populated(path)
	if err != nil {
		return cgroup.Values{}, err
	}
	if !populated {
		return cgroup.Values{}, fs.ErrNotExist
	}
	return a.tree.Read(path)
}

// sameRuns says whether the same containers run as then.
func (o *observed) sameRuns(then *observed) bool {
	return maps.EqualFunc(o.containers, then.containers, func(a, b observedContainer) bool { return a.ID == b.ID })
}

// missing gives the first container that should run and does not.
func (o *observed) missing(want figures.Pod) (name string, found bool) {
	for _, name := range sortedKeys(want.Containers) {
		if _, runs := o.containers[name]; !runs {
			return name, true
		}
	}
	return "", false
}

// difference tells where the kernel holds none of the given figures; "" if it holds some of them everywhere.
func (o *observed) difference(accepted ...figures.Pod) string {
	if d := differs(o.pod, choices(accepted, func(p figures.Pod) figures.Cgroup { return p.Cgroup })); d != "" {
		return "the pod's " + d
	}
	for _, name := range sortedKeys(o.containers) {
		if _, ours := accepted[0].Containers[name]; !ours {
			continue // an init container or an ephemeral one
		}
		if d := differs(o.containers[name].kernel, choices(accepted, func(p figures.Pod) figures.Cgroup { return p.Containers[name] })); d != "" {
			return fmt.Sprintf("container %q: its %s", name, d)
		}
	}
	return ""
}

func choices(all []figures.Pod, pick func(figures.Pod) figures.Cgroup) []figures.Cgroup {
	out := make([]figures.Cgroup, 0, len(all))
	for _, p := range all {
		out = append(out, pick(p))
	}
	return out
}

// differs compares figure by figure, since an update may stop half-way.
func differs(have cgroup.Values, accepted []figures.Cgroup) string {
	checks := []struct {
		what string
		have int64
		want func(figures.Cgroup) int64
		same func(figures.Cgroup) bool
	}{
		{weightName(have), weight(have), func(c figures.Cgroup) int64 { return c.Shares }, func(c figures.Cgroup) bool { return holdsShares(have, c) }},
		{"CPU quota", have.Quota, func(c figures.Cgroup) int64 { return c.Quota }, func(c figures.Cgroup) bool { return holdsQuota(have, c) }},
		{"memory limit", have.Memory, func(c figures.Cgroup) int64 { return c.Memory }, func(c figures.Cgroup) bool { return cgroup.MemoryHolds(c.Memory, have.Memory) }},
	}
	for _, check := range checks {
		held := false
		for _, c := range accepted {
			held = held || check.same(c)
		}
		if !held {
			return fmt.Sprintf("%s is %d, expected %d", check.what, check.have, check.want(accepted[0]))
		}
	}
	return ""
}

func holds(have cgroup.Values, want figures.Cgroup) bool {
	return differs(have, []figures.Cgroup{want}) == ""
}

// holdsShares takes a cpu.weight for right if either formula that runtimes convert by gives it, so that it may be that of other
// shares: see needsUpdate.
func holdsShares(have cgroup.Values, want figures.Cgroup) bool {
	if have.Weight != 0 {
		return cgroup.WeightHolds(uint64(want.Shares), have.Weight) //nolint:gosec // G115: figures clamps shares to 2..262144
	}
	return have.Shares == uint64(want.Shares) //nolint:gosec // G115: as above
}

// quotaStep is what the systemd driver rounds a quota of 100 ms up to: 10 ms in a second (k/k#129357).
const quotaStep = 1000 // microseconds

func holdsQuota(have cgroup.Values, want figures.Cgroup) bool {
	if want.Quota == figures.Unlimited {
		return have.Quota == cgroup.NoLimit
	}
	rounded := (want.Quota + quotaStep - 1) / quotaStep * quotaStep
	return have.Period == want.Period && (have.Quota == want.Quota || have.Quota == rounded)
}

func weightName(v cgroup.Values) string {
	if v.Weight != 0 {
		return "CPU weight"
	}
	return "CPU shares"
}

func weight(v cgroup.Values) int64 {
	if v.Weight != 0 {
		return int64(v.Weight) //nolint:gosec // G115: the kernel's range ends at 10000
	}
	return int64(v.Shares) //nolint:gosec // G115: the kernel's range ends at 262144
}
