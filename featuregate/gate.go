package featuregate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/podresize/podresize/resize"
)

// GateOptions tune a Gate.
type GateOptions struct {
	// Region is that of all pods. It wins over the label of their nodes, which are then not read; empty: the label tells.
	Region string
	// Nodes reads a node, from a lister: it is asked at each decision. It may be nil if Region is given.
	Nodes func(ctx context.Context, name string) (*corev1.Node, error)
	// Halts keeps which regions are halted; nil: no region is ever halted.
	Halts HaltStore
	// Changed is called after policy or halted regions have changed: decisions may be others now, so look at all pods again. It must
	// not block; nil: nobody is told.
	Changed func()
	// Clock is for tests; nil: the system's.
	Clock clock.PassiveClock
}

// Gate is a resize.Gate that goes by a policy. Until Run has read one, and has learnt which regions are halted, everything is Off.
type Gate struct {
	opts   GateOptions
	policy atomic.Pointer[Decider]
	halted atomic.Pointer[map[string]Halted]

	mu      sync.Mutex
	told    *string // what the source has told last; nil: nothing yet
	broken  error
	stored  map[string]Halted // nil: not known yet
	unsaved map[string]Halted
	tallies map[string]*tally
}

var _ resize.Gate = (*Gate)(nil)

// NewGate makes a Gate.
func NewGate(opts GateOptions) (*Gate, error) {
	if opts.Region == "" && opts.Nodes == nil {
		return nil, errors.New("making a gate: it needs Region, or Nodes to find it out")
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Changed == nil {
		opts.Changed = func() {}
	}
	g := &Gate{opts: opts, unsaved: map[string]Halted{}, tallies: map[string]*tally{}}
	if opts.Halts == nil {
		g.halted.Store(&map[string]Halted{})
	}
	return g, nil
}

// Run follows policy and halted regions until ctx ends. What is wrong with a policy is logged, and Broken tells it; it returns early
// only if one of the two cannot be followed at all.
func (g *Gate) Run(ctx context.Context, policy Source) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	follow := func(what string, run func() error) {
		group.Go(func() {
			if err := run(); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("following %s: %w", what, err))
			}
		})
	}
	follow("the policy", func() error { return policy(ctx, func(text []byte, err error) { g.load(ctx, text, err) }) })
	if g.opts.Halts != nil {
		follow("the halted regions", func() error { return g.opts.Halts.Follow(ctx, g.learn) })
	}
	group.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// load takes a policy over, or reports what is wrong with it; then the last good one stays.
func (g *Gate) load(ctx context.Context, text []byte, err error) {
	decider, same, err := g.read(text, err)
	log := logr.FromContextOrDiscard(ctx)
	switch {
	case same:
	case err != nil:
		log.Error(err, "The policy is broken", "lastGoodStays", g.policy.Load() != nil)
	default:
		g.policy.Store(decider)
		log.Info("A policy is in force")
		g.opts.Changed()
	}
}

// read reads what was told, unless it is what was told before.
func (g *Gate) read(text []byte, err error) (d *Decider, same bool, broken error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	told := string(text)
	if err != nil {
		told = "error: " + err.Error()
	}
	if g.told != nil && *g.told == told {
		return nil, true, g.broken
	}
	g.told = &told
	var p *Policy
	if err == nil {
		p, err = Parse(text)
	}
	if err == nil {
		d, err = NewDecider(p)
	}
	g.broken = err
	return d, false, err
}

// Broken tells what is wrong with the policy that was told last; nil: nothing, it is in force.
func (g *Gate) Broken() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.broken
}

// learn takes over which regions are halted.
func (g *Gate) learn(stored map[string]Halted) {
	g.mu.Lock()
	g.stored = maps.Clone(stored)
	if g.stored == nil {
		g.stored = map[string]Halted{}
	}
	changed := g.publish()
	g.mu.Unlock()
	if changed {
		g.opts.Changed()
	}
}

// publish makes known which regions are halted, those that are not stored yet too.
func (g *Gate) publish() (changed bool) {
	all := maps.Clone(g.stored)
	if all == nil {
		return false
	}
	maps.Copy(all, g.unsaved)
	for region := range all {
		delete(g.tallies, region) // it begins anew when the halt is cleared
	}
	before := g.halted.Swap(&all)
	return before == nil || !maps.Equal(*before, all)
}

// Decide implements resize.Gate.
func (g *Gate) Decide(ctx context.Context, pod *corev1.Pod, path resize.Path) (resize.Decision, error) {
	policy, halted := g.policy.Load(), g.halted.Load()
	switch {
	case policy == nil:
		return resize.Decision{Mode: resize.ModeOff, Message: "no policy has been read yet"}, nil
	case policy.killSwitch != nil:
		return answer(policy.Decide(Facts{})), nil
	case halted == nil:
		return resize.Decision{Mode: resize.ModeOff, Message: "it is not known yet which regions are halted"}, nil
	}
	region, err := g.region(ctx, pod)
	if err != nil {
		return resize.Decision{}, err
	}
	record, isHalted := (*halted)[region]
	d := policy.Decide(Facts{
		Region: region, Namespace: pod.Namespace, UID: pod.UID, Labels: pod.Labels, Path: path, Now: g.opts.Clock.Now(), Halted: isHalted,
	})
	out := answer(d)
	if isHalted {
		out.Message += ": " + record.Message
	}
	return out, nil
}

func answer(d Decision) resize.Decision {
	if d.Mode == resize.ModeOn {
		return resize.Decision{Mode: d.Mode}
	}
	return resize.Decision{Mode: d.Mode, Message: d.Message(), StopEnforcing: d.StopEnforcing}
}

func (g *Gate) region(ctx context.Context, pod *corev1.Pod) (string, error) {
	if g.opts.Region != "" || pod.Spec.NodeName == "" {
		return g.opts.Region, nil
	}
	node, err := g.opts.Nodes(ctx, pod.Spec.NodeName)
	if err != nil {
		return "", fmt.Errorf("finding out the region of node %q: %w", pod.Spec.NodeName, err)
	}
	return RegionOf(node), nil
}

// RegionOf is the region that a node is labelled with; empty: none.
func RegionOf(node *corev1.Node) string { return node.Labels[corev1.LabelTopologyRegion] }
