package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// pods is what the agent remembers. One pod is never looked at twice at a time, so a known belongs to its look.
type pods struct {
	mu     sync.Mutex
	known  map[types.NamespacedName]*known // by the name of the CRIResize
	byPath map[string]types.NamespacedName // watched cgroups
	small  map[types.NamespacedName]*small // pods that start small; what they hold belongs to the look
}

// known is what the agent remembers of one pod. Losing it costs a look, or the answer NodeDiffers to a CRIResize that is deleted and
// made anew.
type known struct {
	// began is when the look that goes on now began; zero: none does.
	began time.Time
	// object is the CRIResize as last seen; nil: none is known, or the pod is gone.
	object  *v1alpha1.CRIResize
	deleted bool // was object
	// left is what the agent left in the kernel for another CRIResize of the pod, which was deleted.
	left []figures.Pod
	// repairs are those that no status tells of yet.
	repairs int64
	// fits is the generation of object of which it is known that its node is large enough for it.
	fits int64
	// hollow is since when a container, by its id, runs by the runtime's word and has no process in its cgroup.
	hollow map[string]time.Time
	// rest is the pod as it was when it was last seen, through the runtime, to hold what is wanted: see glance.
	rest *observed
	// starting are the cgroups of which one may become the missing container's.
	starting starting
	contention
}

func newPods() *pods {
	return &pods{known: map[types.NamespacedName]*known{}, byPath: map[string]types.NamespacedName{}, small: map[types.NamespacedName]*small{}}
}

// look begins a look at a pod.
func (p *pods) look(name types.NamespacedName, now time.Time) *known {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, ok := p.known[name]
	if !ok {
		k = &known{hollow: map[string]time.Time{}}
		p.known[name] = k
	}
	k.began = now
	return k
}

// see notes the CRIResize as it is now. It may be another one than before, although nobody saw that one deleted.
func (k *known) see(object *v1alpha1.CRIResize) {
	if k.object != nil && k.object.UID != object.UID {
		k.left = []figures.Pod{figures.Wanted(&k.object.Spec), figures.Applied(&k.object.Spec, k.object.Status.Applied)}
		k.contention, k.rest, k.fits = contention{}, nil, 0
	}
	k.object, k.deleted = object, false
	k.of(object.Generation)
}

// looked ends a look. What nobody would miss is forgotten.
func (p *pods) looked(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.known[name]
	k.began = time.Time{}
	if k.object == nil {
		delete(p.known, name)
	}
}

// startsSmall notes a pod that does, or with nil that it is gone.
func (p *pods) startsSmall(name types.NamespacedName, s *small) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == nil {
		delete(p.small, name)
		return
	}
	p.small[name] = s
}

// starting is a pod that starts small; nil: it does not.
func (p *pods) starting(name types.NamespacedName) *small {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.small[name]
}

// allStarting are the names of all of them.
func (p *pods) allStarting() []types.NamespacedName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.small))
}

// oldest is the beginning of the longest look that goes on; zero: none does.
func (p *pods) oldest() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	var oldest time.Time
	for _, k := range p.known {
		if !k.began.IsZero() && (oldest.IsZero() || k.began.Before(oldest)) {
			oldest = k.began
		}
	}
	return oldest
}

// at is whose cgroup that is.
func (p *pods) at(path string) (types.NamespacedName, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, ok := p.byPath[path]
	return name, ok
}

// watched notes which cgroups are now watched for a pod, and gives those that no longer are.
func (p *pods) watched(name types.NamespacedName, paths []string) (gone []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, n := range p.byPath {
		if n == name {
			delete(p.byPath, path)
			gone = append(gone, path)
		}
	}
	for _, path := range paths {
		p.byPath[path] = name
	}
	return gone
}
