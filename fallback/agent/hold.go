package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
)

// headroom is the share of a new memory limit that must stay free for a decrease to be tried: a twentieth. The kernel may kill a
// process that allocates while the limit sinks onto what is in use.
const headroom = 20

// memoryInUseError says why a memory limit is not lowered now.
type memoryInUseError struct{ message string }

func (m *memoryInUseError) Error() string { return m.message }

// hold brings the kernel to want, in the kubelet's order (doPodResizeAction in pkg/kubelet/kuberuntime): a child must never be
// above its parent, cgroup v1 refuses that. While a container does not run, the pod's cgroup keeps room for what the kubelet
// will start it with.
func (a *Agent) hold(ctx context.Context, o *observed, before, want, applied figures.Pod) error {
	if err := a.roomForMemory(o, want); err != nil {
		return err
	}
	room := want.Cgroup
	if _, down := o.missing(want); down {
		room = larger(room, before.Cgroup)
		room.Shares = want.Cgroup.Shares // a weight needs no room
	}
	if err := a.setPod(ctx, o.path, larger(room, figuresOf(o.pod, room))); err != nil {
		return fmt.Errorf("raising the pod's cgroup: %w", err)
	}
	for _, name := range decreasesFirst(o, want) {
		if err := a.setContainer(ctx, o.containers[name], want.Containers[name], applied.Containers[name]); err != nil {
			return fmt.Errorf("updating container %q: %w", name, err)
		}
	}
	if err := a.setPod(ctx, o.path, room); err != nil {
		return fmt.Errorf("lowering the pod's cgroup: %w", err)
	}
	return nil
}

// roomForMemory checks every memory limit that is to sink against what is in use.
func (a *Agent) roomForMemory(o *observed, want figures.Pod) error {
	check := func(what, path string, have, limit int64) error {
		if limit == figures.Unlimited || (have != cgroup.NoLimit && have <= limit) {
			return nil
		}
		used, err := a.reducedTo(path, limit-limit/headroom)
		if err != nil {
			return fmt.Errorf("reading the memory in use of %s: %w", what, err)
		}
		if used <= limit-limit/headroom {
			return nil
		}
		return &memoryInUseError{message: fmt.Sprintf("%s uses %d bytes of memory, too much for a limit of %d (a twentieth must stay free)", what, used, limit)}
	}
	for _, name := range sortedKeys(o.containers) {
		c, w := o.containers[name], want.Containers[name]
		if _, ours := want.Containers[name]; !ours {
			continue
		}
		if err := check(fmt.Sprintf("container %q", name), c.path, c.kernel.Memory, w.Memory); err != nil {
			return err
		}
	}
	return check("the pod", o.path, o.pod.Memory, want.Cgroup.Memory)
}

// reducedTo has the kernel reclaim what is in use above so many bytes, if that is wanted, and gives what is in use then.
func (a *Agent) reducedTo(path string, most int64) (int64, error) {
	used, err := a.tree.MemoryInUse(path)
	if err != nil || used <= most || a.opts.NoReclaim || !a.reclaims.due(path, a.clock.Now()) {
		return used, err
	}
	if err := a.tree.Reclaim(path, used-most); err != nil {
		return 0, err
	}
	return a.tree.MemoryInUse(path)
}

// reclaimEvery is how often the kernel is asked to reclaim memory of one cgroup: what could not be freed is in use, and what is read again
// and again would be pushed out again and again.
const reclaimEvery = time.Minute

// reclaims are when the kernel was last asked, by cgroup.
type reclaims struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due says whether it is time to ask, and notes that it is done.
func (r *reclaims) due(path string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(_ string, at time.Time) bool { return now.Sub(at) >= reclaimEvery })
	if _, lately := r.last[path]; lately {
		return false
	}
	if r.last == nil {
		r.last = map[string]time.Time{}
	}
	r.last[path] = now
	return true
}

// setPod writes the pod's cgroup, where it holds something else. Shares of 0 leave the weight. The properties of a slice come first:
// systemd rounds the quota, and the files say it exactly.
func (a *Agent) setPod(ctx context.Context, path string, f figures.Cgroup) error {
	want := cgroup.Slice{Shares: uint64(f.Shares), Quota: f.Quota, Period: f.Period, Memory: f.Memory} //nolint:gosec // G115: figures clamps shares to 2..262144
	if cgroup.IsSlice(path) {
		held, err := a.tree.Read(path)
		if err != nil {
			return err
		}
		if f.Shares == 0 && cgroup.MemoryHolds(f.Memory, held.Memory) && holdsQuota(held, f) || holds(held, f) {
			return nil
		}
		if err := a.systemd.Set(ctx, path, want); err != nil {
			return err
		}
	}
	if err := a.tree.SetMemory(path, f.Memory); err != nil {
		return err
	}
	if err := a.tree.SetQuota(path, f.Quota, f.Period); err != nil {
		return err
	}
	if f.Shares == 0 {
		return nil
	}
	return a.tree.SetShares(path, want.Shares)
}

// needsUpdate says whether a container must be updated. On cgroup v2 its weight may be that of the shares applied before by the one
// formula and that of the wanted ones by the other: then only an update tells.
func needsUpdate(have cgroup.Values, want, applied figures.Cgroup) bool {
	return !holds(have, want) || have.Weight != 0 && want.Shares != applied.Shares
}

func (a *Agent) setContainer(ctx context.Context, c observedContainer, f, applied figures.Cgroup) error {
	if !needsUpdate(c.kernel, f, applied) {
		return nil
	}
	r := cri.Resources{CPUShares: f.Shares, CPUQuota: f.Quota, CPUPeriod: f.Period, MemoryLimit: f.Memory, MemoryHeld: c.kernel.Memory}
	allowance, accounted, err := a.tree.SwapAllowance(c.path)
	if err != nil {
		return err
	}
	if accounted {
		r.MemorySwap = swapBeside(c.kernel.Memory, f.Memory, allowance)
	}
	return a.runtime.Update(ctx, c.ID, r)
}

// swapBeside is the limit on memory and swap together that leaves a container the swap that it may use now. The first memory limit of
// a container allows none, which is what the kubelet does on a node without swap.
func swapBeside(held, memory, allowance int64) int64 {
	switch {
	case held == cgroup.NoLimit || memory == figures.Unlimited:
		return memory
	case allowance == cgroup.NoLimit:
		return figures.Unlimited
	default:
		return memory + allowance
	}
}

// decreasesFirst orders the running containers so that what one gives up can be taken by the next.
func decreasesFirst(o *observed, want figures.Pod) []string {
	var order []string
	for _, name := range sortedKeys(want.Containers) {
		if _, runs := o.containers[name]; runs {
			order = append(order, name)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Compare(growth(o.containers[a].kernel, want.Containers[a]), growth(o.containers[b].kernel, want.Containers[b]))
	})
	return order
}

// growth is -1 if a limit sinks, else 1.
func growth(have cgroup.Values, want figures.Cgroup) int {
	if limit(want.Quota) < limit(have.Quota) || limit(want.Memory) < limit(have.Memory) {
		return -1
	}
	return 1
}

// larger takes of each figure the larger one.
func larger(a, b figures.Cgroup) figures.Cgroup {
	return figures.Cgroup{
		Shares: max(a.Shares, b.Shares),
		Quota:  unlimit(max(limit(a.Quota), limit(b.Quota))),
		Period: a.Period,
		Memory: unlimit(max(limit(a.Memory), limit(b.Memory))),
	}
}

// figuresOf is what the kernel holds, in the form of figures. A cpu.weight has no shares that it stands for: it is raised, or
// lowered, in one step, since weights need no order.
func figuresOf(v cgroup.Values, like figures.Cgroup) figures.Cgroup {
	f := figures.Cgroup{Shares: int64(v.Shares), Quota: v.Quota, Period: v.Period, Memory: v.Memory} //nolint:gosec // G115: the kernel's range ends at 262144
	if v.Weight != 0 {
		f.Shares = like.Shares
	}
	if cgroup.MemoryHolds(like.Memory, v.Memory) {
		f.Memory = like.Memory // the same limit, in whole pages
	}
	return f
}

// limit makes no limit the largest one; unlimit goes back.
func limit(v int64) uint64   { return uint64(v) } //nolint:gosec // G115: -1 becomes the largest uint64, which is the point
func unlimit(v uint64) int64 { return int64(v) }  //nolint:gosec // G115: the inverse of limit

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
