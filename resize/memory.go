package resize

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/lru"
)

const (
	// defaultRemember is how many pods a memory holds; the pod that was looked at longest ago is forgotten first.
	defaultRemember = 32768
	// refusedFor is how long a request that the API server refused is not repeated: what refused it may change, but not at once.
	refusedFor = 10 * time.Second
)

// memory keeps a little about each pod that was asked for something. Losing it costs a request and a second look.
type memory struct {
	mu    sync.Mutex
	notes *lru.Cache
}

// note is what is remembered of one pod.
type note struct {
	// answer is the pod as the last patch returned it, until the caller's pod has caught up.
	answer *corev1.Pod
	// previous is what the last patch replaced.
	previous *Resources
	// restarts are the restart counts that the last patch returned.
	restarts map[string]int32
	// asked is when the current spec was sent, or first seen.
	asked time.Time
	// spec is the fingerprint of the resources that the fields below speak of.
	spec string
	// generation is the pod's, of the last patch; zero before Kubernetes 1.33.
	generation int64
	// mismatched: the evidence was once seen to differ from spec, so that a match is news.
	mismatched bool
	// ours: the fields above are of a patch of this process, so that an older copy of the pod is told from a newer one.
	ours bool
	// stale is what the kubelet said when the last patch was answered: of the spec before.
	stale string
	// done is the answer for the pod at doneAt, its resourceVersion: the same object gets the same answer.
	done   *Result
	doneAt string
	// refusal is the answer to a patch that the API server refused; it holds for that patch until refusalEnds.
	refusal     *Result
	refusalOf   string
	refusalEnds time.Time
	// matched is when the evidence was first seen to match spec; zero: not yet.
	matched time.Time
	// kubelet is the minor version of the pod's kubelet when its node was read for this spec; zero: unknown.
	kubelet     uint
	kubeletRead bool
	// touches is how often the pod was touched for this spec; touchAt is when that is to be done next; zero: never.
	touches int
	touchAt time.Time
}

func newMemory(pods int) *memory { return &memory{notes: lru.New(pods)} }

// newest gives the pod, or what the last patch returned if that is newer than the caller's copy.
func (m *memory) newest(pod *corev1.Pod) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.get(pod.UID)
	if !ok || n.answer == nil {
		return pod
	}
	if older(pod, n.answer) {
		return n.answer
	}
	n.answer = nil
	return pod
}

// older compares by resourceVersion; servers promise that order from 1.35 on (KEP-5504) and have kept it before. Versions that
// do not compare say nothing, and then the caller's copy counts.
func older(a, b *corev1.Pod) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// sent notes what a patch answered. A patch that changed nothing (the caller's copy was old) leaves what is known as it is.
func (m *memory) sent(answer *corev1.Pod, previous Resources, kubelet uint, now time.Time) {
	slim := answer.DeepCopy()
	slim.ManagedFields = nil
	n := &note{
		answer: slim, previous: &previous, restarts: map[string]int32{}, asked: now, spec: fingerprint(answer),
		generation: answer.Generation, ours: true, kubelet: kubelet, kubeletRead: true,
	}
	n.touchFrom(now.Add(firstTouch), answer)
	if answer.Status.ObservedGeneration == 0 {
		n.stale = kubeletSays(answer).fingerprint()
	}
	for _, s := range answer.Status.ContainerStatuses {
		n.restarts[s.Name] = s.RestartCount
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.get(answer.UID); ok && old.ours && old.spec == n.spec && n.generation > 0 && old.generation == n.generation {
		old.answer = slim
		return
	}
	m.notes.Add(answer.UID, n)
}

// look notes whether the evidence matches the pod's spec now, and gives a copy of the note.
func (m *memory) look(pod *corev1.Pod, matches bool, now time.Time) note {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.get(pod.UID)
	spec := fingerprint(pod)
	if ok && n.answer != nil && older(pod, n.answer) {
		return *n // another call has sent something since this one began
	}
	if !ok || n.spec != spec {
		n = &note{asked: now, spec: spec}
		m.notes.Add(pod.UID, n)
	}
	switch {
	case !matches:
		n.mismatched, n.matched = true, time.Time{}
	case n.matched.IsZero() && n.answer == nil: // else it is the patch's own answer that is looked at
		n.matched = now
	}
	return *n
}

// refuse notes that a patch of the pod was refused.
func (m *memory) refuse(pod *corev1.Pod, patch string, res Result, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.get(pod.UID)
	if !ok {
		n = &note{asked: now, spec: fingerprint(pod)}
		m.notes.Add(pod.UID, n)
	}
	n.refusal, n.refusalOf, n.refusalEnds = &res, patch, now.Add(refusedFor)
}

// refused gives the answer to a patch that was refused a moment ago. The patch names all that is missing, so that another one is
// asked for as soon as want or spec change.
func (m *memory) refused(pod *corev1.Pod, patch string, now time.Time) (Result, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.get(pod.UID)
	if !ok || n.refusal == nil || n.refusalOf != patch || !now.Before(n.refusalEnds) {
		return Result{}, false
	}
	return *n.refusal, true
}

// settled gives the answer for a pod that was Done at that very resourceVersion.
func (m *memory) settled(pod *corev1.Pod) (Result, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.get(pod.UID)
	if !ok || n.done == nil || n.doneAt != pod.ResourceVersion {
		return Result{}, false
	}
	return *n.done, true
}

// settle notes that a pod is Done, unless something was sent since seen was looked at.
func (m *memory) settle(pod *corev1.Pod, seen note, res *Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.get(pod.UID); ok && pod.ResourceVersion != "" && n.asked.Equal(seen.asked) && n.spec == seen.spec {
		n.done, n.doneAt = res, pod.ResourceVersion
	}
}

// knowKubelet notes of which version a pod's kubelet is, and that it is to be touched for it now. It gives a copy of the note.
func (m *memory) knowKubelet(pod *corev1.Pod, seen note, kubelet uint, now time.Time) note {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen.kubelet, seen.kubeletRead = kubelet, true
	if n, ok := m.get(pod.UID); ok && n.spec == seen.spec && n.asked.Equal(seen.asked) {
		n.kubelet, n.kubeletRead = kubelet, true
		n.touchFrom(now, pod)
	}
	return seen
}

// touchFrom has the first touch of a pod made at that time, if its kubelet needs any. API servers of 1.32 drop allocatedResources from
// a pod that is patched (dropDisabledPodStatusFields in pkg/api/pod), without which these kubelets do not begin a resize at that sync: there a
// touch is worse than none.
func (n *note) touchFrom(at time.Time, pod *corev1.Pod) {
	if reportsLate(n.kubelet) && supportOf(pod) == nodeYes && tellsReserved(pod) {
		n.touchAt = at
	}
}

// tellsReserved says that the pod has what its kubelet has reserved for its containers.
func tellsReserved(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Resources != nil && len(s.Resources.Requests) > 0 && s.AllocatedResources == nil {
			return false
		}
	}
	return true
}

// claimTouch says whether the pod is to be touched now, by the caller and by nobody else, and how long it is until the next time;
// zero: there is none. If somebody else has just touched it, that counts.
func (m *memory) claimTouch(pod *corev1.Pod, seen note, now time.Time) (due bool, next time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.get(pod.UID)
	if !ok || n.touchAt.IsZero() || n.spec != seen.spec {
		return false, 0
	}
	if now.Before(n.touchAt) {
		return false, n.touchAt.Sub(now)
	}
	pauses := touchPauses()
	if n.touches == len(pauses) {
		n.touchAt = time.Time{}
		return true, 0
	}
	pause := pauses[n.touches]
	n.touches++
	n.touchAt = now.Add(pause)
	other := now.Sub(touchedAt(pod))
	return other < 0 || other >= firstTouch, pause
}

// stopTouching leaves a pod to its kubelet.
func (m *memory) stopTouching(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.get(uid); ok {
		n.touchAt = time.Time{}
	}
}

func (m *memory) get(uid types.UID) (*note, bool) {
	v, ok := m.notes.Get(uid)
	if !ok {
		return nil, false
	}
	n, ok := v.(*note)
	return n, ok
}
