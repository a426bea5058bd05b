package figures

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// Unlimited is the figure of a quota or a memory limit that is not set.
const Unlimited = -1

const (
	// Period is the CFS period of a kubelet that was not told another one, in microseconds.
	Period = 100_000

	minShares    = 2       // kernel/sched: MIN_SHARES
	maxShares    = 262_144 // kernel/sched: MAX_SHARES
	sharesPerCPU = 1024
	minQuota     = 1000 // microseconds; the kernel takes no less
	milliPerCPU  = 1000
)

// Cgroup holds the figures of one cgroup, in the kernel's units.
type Cgroup struct {
	// Shares is the CPU weight as cgroup v1 counts it, 2 to 262144.
	Shares int64
	// Quota is the CPU time in microseconds that may be used in each Period, or Unlimited.
	Quota int64
	// Period in microseconds.
	Period int64
	// Memory is the limit in bytes, or Unlimited.
	Memory int64
}

// Pod holds the figures of a pod's cgroup and, by name, of its regular containers'.
type Pod struct {
	Cgroup     Cgroup
	Containers map[string]Cgroup
}

// Before gives the figures that the kubelet set when it started the pod.
func Before(spec *v1alpha1.CRIResizeSpec) Pod {
	return of(spec, func(c v1alpha1.Container) v1alpha1.Requirements { return c.Before })
}

// Wanted gives the figures that a kubelet would set for the resources wanted.
func Wanted(spec *v1alpha1.CRIResizeSpec) Pod {
	return of(spec, func(c v1alpha1.Container) v1alpha1.Requirements { return c.Wanted })
}

// Applied gives the figures for the resources that an agent noted as applied; those of before for containers that it did not note.
func Applied(spec *v1alpha1.CRIResizeSpec, noted []v1alpha1.AppliedContainer) Pod {
	return of(spec, func(c v1alpha1.Container) v1alpha1.Requirements {
		for _, n := range noted {
			if n.Name == c.Name {
				return n.Resources
			}
		}
		return c.Before
	})
}

func of(spec *v1alpha1.CRIResizeSpec, pick func(v1alpha1.Container) v1alpha1.Requirements) Pod {
	regular := make([]v1alpha1.Requirements, 0, len(spec.Containers))
	containers := make(map[string]Cgroup, len(spec.Containers))
	for _, c := range spec.Containers {
		r := pick(c)
		regular = append(regular, r)
		containers[c.Name] = ofContainer(r)
	}
	return Pod{Cgroup: ofPod(spec, regular), Containers: containers}
}

func ofContainer(r v1alpha1.Requirements) Cgroup {
	request, ok := r.Requests[corev1.ResourceCPU]
	if !ok {
		request = r.Limits[corev1.ResourceCPU]
	}
	limits := limitsOf(r)
	return Cgroup{
		Shares: shares(request.MilliValue()),
		Quota:  quota(limits.Cpu().MilliValue()),
		Period: Period,
		Memory: memory(limits.Memory().Value()),
	}
}

func ofPod(spec *v1alpha1.CRIResizeSpec, regular []v1alpha1.Requirements) Cgroup {
	best := Cgroup{Shares: minShares, Quota: Unlimited, Period: Period, Memory: Unlimited}
	if spec.QOSClass == corev1.PodQOSBestEffort {
		return best
	}
	requests := effective(spec, regular, requestsOf)
	add(requests, spec.Overhead)
	best.Shares = shares(requests.Cpu().MilliValue())

	limits := effective(spec, regular, limitsOf)
	for name, q := range limits {
		if overhead, ok := spec.Overhead[name]; ok && !q.IsZero() {
			q.Add(overhead)
			limits[name] = q
		}
	}
	if allDeclare(spec, regular, corev1.ResourceCPU) {
		best.Quota = quota(limits.Cpu().MilliValue())
	}
	if allDeclare(spec, regular, corev1.ResourceMemory) {
		best.Memory = memory(limits.Memory().Value())
	}
	return best
}

func requestsOf(r v1alpha1.Requirements) corev1.ResourceList { return r.Requests }
func limitsOf(r v1alpha1.Requirements) corev1.ResourceList   { return r.Limits }

// effective is the larger of what the pod needs while it runs and what it needs at most while it starts: an init container
// runs beside the sidecars that stand before it (KEP-753, AggregateContainerRequests in component-helpers).
func effective(spec *v1alpha1.CRIResizeSpec, regular []v1alpha1.Requirements, list func(v1alpha1.Requirements) corev1.ResourceList) corev1.ResourceList {
	running, starting, sidecars := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for _, r := range regular {
		add(running, list(r))
	}
	for _, c := range spec.InitContainers {
		if c.Sidecar {
			add(running, list(c.Resources))
			add(sidecars, list(c.Resources))
			raise(starting, sidecars)
			continue
		}
		now := sidecars.DeepCopy()
		add(now, list(c.Resources))
		raise(starting, now)
	}
	raise(running, starting)
	return running
}

// allDeclare says whether every container, init containers too, has a limit of that resource: only then does the kubelet
// limit the pod.
func allDeclare(spec *v1alpha1.CRIResizeSpec, regular []v1alpha1.Requirements, name corev1.ResourceName) bool {
	for _, c := range spec.InitContainers {
		if q := c.Resources.Limits[name]; q.IsZero() {
			return false
		}
	}
	for _, r := range regular {
		if q := r.Limits[name]; q.IsZero() {
			return false
		}
	}
	return true
}

func add(sum, list corev1.ResourceList) {
	for name, q := range list {
		total := sum[name].DeepCopy()
		total.Add(q)
		sum[name] = total
	}
}

func raise(most, list corev1.ResourceList) {
	for name, q := range list {
		if old, ok := most[name]; !ok || q.Cmp(old) > 0 {
			most[name] = q.DeepCopy()
		}
	}
}

// shares converts milli-CPU to cpu.shares (MilliCPUToShares).
func shares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/milliPerCPU, minShares), maxShares)
}

// quota converts milli-CPU to microseconds per Period (MilliCPUToQuota).
func quota(milli int64) int64 {
	if milli == 0 {
		return Unlimited
	}
	return max(milli*Period/milliPerCPU, minQuota)
}

func memory(limit int64) int64 {
	if limit == 0 {
		return Unlimited
	}
	return limit
}

// Lowered is held with those of the limits that are lower. The period, and so the meaning of a quota, stays.
func Lowered(held Cgroup, limits corev1.ResourceList) Cgroup {
	to := ofContainer(v1alpha1.Requirements{Limits: limits})
	if to.Quota != Unlimited {
		to.Quota = max(to.Quota*held.Period/Period, minQuota)
	}
	held.Quota, held.Memory = lower(held.Quota, to.Quota), lower(held.Memory, to.Memory)
	return held
}

func lower(a, b int64) int64 {
	if a == Unlimited || b != Unlimited && b < a {
		return b
	}
	return a
}
