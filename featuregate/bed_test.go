package featuregate_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/podresize/podresize/featuregate"
	"github.com/podresize/podresize/resize"
)

// store keeps halted regions as long as the test lives.
type store struct {
	mu     sync.Mutex
	halted map[string]featuregate.Halted
	tell   func(map[string]featuregate.Halted)
	fail   error
}

func (s *store) Follow(ctx context.Context, tell func(map[string]featuregate.Halted)) error {
	s.mu.Lock()
	s.tell = tell
	tell(maps.Clone(s.halted))
	s.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (s *store) Halt(_ context.Context, region string, why featuregate.Halted) error {
	return s.change(func(h map[string]featuregate.Halted) { h[region] = why })
}

// clear is what a person does.
func (s *store) clear(t *testing.T, region string) {
	t.Helper()
	if err := s.change(func(h map[string]featuregate.Halted) { delete(h, region) }); err != nil {
		t.Fatal(err)
	}
}

func (s *store) change(how func(map[string]featuregate.Halted)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	if s.halted == nil {
		s.halted = map[string]featuregate.Halted{}
	}
	how(s.halted)
	s.tell(maps.Clone(s.halted))
	return nil
}

// bed is a Gate that runs, with a policy that the test changes.
type bed struct {
	*featuregate.Gate
	clock   *clocktesting.FakePassiveClock
	tell    func([]byte, error)
	changed chan struct{}
	stop    func()
}

// newBed starts a Gate; halts may be nil.
func newBed(t *testing.T, clock *clocktesting.FakePassiveClock, halts featuregate.HaltStore) *bed {
	t.Helper()
	b := &bed{clock: clock, changed: make(chan struct{}, 1000)}
	gate, err := featuregate.NewGate(featuregate.GateOptions{
		Nodes: nodes, Halts: halts, Clock: clock, Changed: func() { b.changed <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Gate = gate
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- gate.Run(ctx, func(ctx context.Context, tell func([]byte, error)) error {
			b.tell = tell
			close(ready)
			<-ctx.Done()
			return nil
		})
	}()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	<-ready
	if halts != nil {
		b.await(t)
	}
	return b
}

// await waits until the Gate says that something has changed.
func (b *bed) await(t *testing.T) {
	t.Helper()
	select {
	case <-b.changed:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing has changed")
	}
}

// policy puts a policy into force.
func (b *bed) policy(t *testing.T, text string) {
	t.Helper()
	b.tell([]byte(text), nil)
	if err := b.Broken(); err != nil {
		t.Fatal(err)
	}
}

// nodes are named by their region; "bare" has none, and "gone" cannot be read.
func nodes(_ context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyRegion: name}}}
	switch name {
	case "bare":
		node.Labels = nil
	case "gone":
		return nil, errors.New("no such node")
	}
	return node, nil
}

func newPod(region string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid},
		Spec:       corev1.PodSpec{NodeName: region, Containers: []corev1.Container{{Name: "app"}}},
	}
}

// decide asks about a pod, and insists on an answer.
func (b *bed) decide(t *testing.T, pod *corev1.Pod, path resize.Path) resize.Decision {
	t.Helper()
	d, err := b.Decide(t.Context(), pod, path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (b *bed) report(t *testing.T, pod *corev1.Pod, res resize.Result, resizeErr error) {
	t.Helper()
	if err := b.Report(t.Context(), pod, res, resizeErr); err != nil {
		t.Fatal(err)
	}
}
