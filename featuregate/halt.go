package featuregate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podresize/podresize/resize"
)

// Halted is the record of a region that turned Off by itself.
type Halted struct {
	Since time.Time `json:"since"`
	// Message says in one line what went wrong.
	Message string `json:"message"`
}

// HaltStore keeps which regions are halted, across restarts. ConfigMapHalts is one.
type HaltStore interface {
	// Follow tells of all regions that are halted, and again whenever that changes, until ctx ends.
	Follow(ctx context.Context, tell func(map[string]Halted)) error
	// Halt adds a region. What is halted already stays as it is. Follow has told of it before it returns.
	Halt(ctx context.Context, region string, why Halted) error
}

// haltRule is a Halt that was read.
type haltRule struct {
	window   time.Duration
	ratio    uint32
	minimum  int
	failures map[string]struct{}
	text     string
}

func newHaltRule(h Halt) *haltRule {
	rule := &haltRule{window: h.Window.Duration, minimum: h.Minimum, text: h.Ratio}
	rule.ratio, _ = parsePercent(h.Ratio) // check has seen that it can be read
	if rule.minimum == 0 {
		rule.minimum = defaultMinimum
	}
	failures := h.Failures
	if len(failures) == 0 {
		failures = defaultFailures()
	}
	rule.failures = set(failures)
	return rule
}

// failure names what counts as a failure in an answer; empty: nothing.
func (h *haltRule) failure(res resize.Result, err error) string {
	names := []string{string(res.State), string(res.Reason)}
	var failure *resize.Error
	switch {
	case errors.As(err, &failure):
		names = []string{string(failure.Reason)}
	case err != nil:
		names = []string{string(resize.ReasonUnknown)}
	}
	for _, name := range names {
		if _, counts := h.failures[name]; counts {
			return name
		}
	}
	return ""
}

// tally are the resizes of one region.
type tally struct{ trials map[types.UID]*trial }

// trial is the last resize of one pod.
type trial struct {
	began, seen time.Time
	restarts    int32 // of its containers when it began
	failure     string
	done        bool
}

// Report tells what Resize has answered for a pod, for the halt: call it after each Resize that went through the Adapter with this
// Gate. An error says that a region is halted, and that this could not be stored; it is stored with a later Report.
func (g *Gate) Report(ctx context.Context, pod *corev1.Pod, res resize.Result, err error) error {
	policy := g.policy.Load()
	if policy == nil || policy.halt == nil || g.opts.Halts == nil {
		return nil
	}
	region, regionErr := g.region(ctx, pod)
	if regionErr != nil {
		return nil //nolint:nilerr // the gate has let nothing through either
	}
	if why := g.count(policy.halt, region, pod, res, err); why != nil {
		logr.FromContextOrDiscard(ctx).Info("A region is halted", "region", region, "reason", why.Message)
		g.opts.Changed()
	}
	return g.save(ctx)
}

// count adds an answer to the tally of its region, and gives the record if that halts it.
func (g *Gate) count(rule *haltRule, region string, pod *corev1.Pod, res resize.Result, err error) *Halted {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stored == nil {
		return nil
	}
	if _, halted := (*g.halted.Load())[region]; halted {
		return nil
	}
	t := g.tallies[region]
	if t == nil {
		t = &tally{trials: map[types.UID]*trial{}}
		g.tallies[region] = t
	}
	now := g.opts.Clock.Now()
	if !t.note(rule, pod, res, err, now) {
		return nil
	}
	message, passed := t.judge(rule, now)
	if !passed {
		return nil
	}
	why := Halted{Since: now.UTC().Truncate(time.Second), Message: message}
	g.unsaved[region] = why
	g.publish()
	return &why
}

// note says whether there is a failure more than before.
func (t *tally) note(rule *haltRule, pod *corev1.Pod, res resize.Result, err error, now time.Time) (failed bool) {
	failure := rule.failure(res, err)
	one, restarts := t.trials[pod.UID], restartsOf(pod, res)
	began := err == nil && res.Reason == resize.ReasonSent
	if one == nil && failure == "" && !began || err == nil && withheld(res) {
		return false
	}
	if began || one == nil {
		one = &trial{began: now, restarts: restarts}
		if !res.Since.IsZero() {
			one.began = res.Since
		}
		t.trials[pod.UID] = one
	}
	one.seen = now
	if _, counts := rule.failures[FailureRestart]; counts && err == nil && restarts > one.restarts {
		failure = FailureRestart
	}
	return one.add(failure, err == nil && res.State == resize.StateDone)
}

// withheld: the gate has answered, not the cluster.
func withheld(res resize.Result) bool {
	return res.Reason == resize.ReasonGateOff || res.Reason == resize.ReasonObserved
}

// add notes how a trial goes, and says whether it has failed just now. A restart stays a failure, others may come right.
func (one *trial) add(failure string, done bool) (failed bool) {
	if one.failure == FailureRestart {
		return false
	}
	failed = failure != "" && one.failure == ""
	one.done = done
	if failure != "" || done {
		one.failure = failure
	}
	return failed
}

// restartsOf counts the restarts that nobody can have wanted: those of containers without a resizePolicy that restarts them.
func restartsOf(pod *corev1.Pod, res resize.Result) int32 {
	var sum int32
	for _, e := range res.Containers {
		if !restartsByPolicy(pod, e.Name) {
			sum += e.RestartCount
		}
	}
	return sum
}

func restartsByPolicy(pod *corev1.Pod, name string) bool {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if c.Name == name {
			return slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.RestartContainer })
		}
	}
	return false
}

// judge says whether too many of the resizes within the window have failed. It forgets the pods that nobody asks about any more.
func (t *tally) judge(rule *haltRule, now time.Time) (message string, passed bool) {
	failures, ended, failed := map[string]int{}, 0, 0
	for uid, one := range t.trials {
		if now.Sub(one.seen) > rule.window {
			delete(t.trials, uid)
			continue
		}
		if now.Sub(one.began) > rule.window || !one.done && one.failure == "" {
			continue
		}
		ended++
		if one.failure != "" {
			failed++
			failures[one.failure]++
		}
	}
	if ended < rule.minimum || uint64(failed)*whole <= uint64(rule.ratio)*uint64(ended) {
		return "", false
	}
	var kinds []string
	for _, name := range sortedKeys(failures) {
		kinds = append(kinds, fmt.Sprintf("%d %s", failures[name], name))
	}
	return fmt.Sprintf("%d of %d resizes within %s failed, more than %s: %s", failed, ended, rule.window, rule.text, strings.Join(kinds, ", ")), true
}

// save stores the regions that were halted and are not stored yet.
func (g *Gate) save(ctx context.Context) error {
	g.mu.Lock()
	unsaved := maps.Clone(g.unsaved)
	g.mu.Unlock()
	var errs []error
	for _, region := range sortedKeys(unsaved) {
		if err := g.opts.Halts.Halt(ctx, region, unsaved[region]); err != nil {
			errs = append(errs, fmt.Errorf("storing that region %q is halted: %w", region, err))
			continue
		}
		g.mu.Lock()
		delete(g.unsaved, region)
		g.publish()
		g.mu.Unlock()
	}
	return errors.Join(errs...)
}
