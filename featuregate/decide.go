package featuregate

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podresize/podresize/resize"
)

// Facts are all that a decision depends on, beside the policy.
type Facts struct {
	// Region of the pod's node; empty: it has none.
	Region    string
	Namespace string
	UID       types.UID
	Labels    map[string]string
	Path      resize.Path
	Now       time.Time
	// Halted: the region was turned Off by itself.
	Halted bool
}

// Reason says for programs what a Decision rests on.
type Reason string

// Reasons, in the order in which they are looked at. docs/rollout.md has the same table.
const (
	ReasonKillSwitch        Reason = "KillSwitch"
	ReasonHalted            Reason = "Halted"
	ReasonNotSelected       Reason = "NotSelected"
	ReasonOff               Reason = "Off"
	ReasonObserve           Reason = "Observe"
	ReasonOutsidePercentage Reason = "OutsidePercentage"
	ReasonInPercentage      Reason = "InPercentage"
	ReasonOn                Reason = "On"
)

// Decision is what a policy says of one pod and path.
type Decision struct {
	Mode   resize.Mode
	Reason Reason
	// Rule is the field of the policy that decided; empty: none did, so that it is Off.
	Rule string
	// Level is what the policy says there; empty where no level decided.
	Level Level
	// Share is the pod's own, in hundredths of a percent: it is in if it is below the level's.
	Share uint32
	// Region is the one that was decided for.
	Region string
	// StopEnforcing: CRIResizes are no longer to be enforced either.
	StopEnforcing bool

	detail string
}

// Message says in one line why it was decided so.
func (d Decision) Message() string {
	where := fmt.Sprintf("region %q", d.Region)
	if d.Region == "" {
		where = "a node without a region"
	}
	switch d.Reason {
	case ReasonKillSwitch:
		if d.detail != "" {
			return "the roll-out's kill switch is active: " + d.detail
		}
		return "the roll-out's kill switch is active"
	case ReasonHalted:
		return where + " was halted: a person has to clear that"
	case ReasonNotSelected:
		return fmt.Sprintf("the pod is not in the roll-out: %s leaves it out", d.Rule)
	case ReasonOutsidePercentage, ReasonInPercentage:
		return fmt.Sprintf("%s: %s is %s, the pod's share is %s", where, d.Rule, d.Level, percent(d.Share))
	default:
		if d.Rule == "" {
			return where + ": the policy does not name this path, so it is Off"
		}
		return fmt.Sprintf("%s: %s is %s", where, d.Rule, d.Level)
	}
}

func percent(share uint32) string { return fmt.Sprintf("%d.%02d%%", share/100, share%100) }

// Decider answers from a policy, without a request, a lock or an allocation.
type Decider struct {
	killSwitch *KillSwitch
	everywhere chosen
	fallback   *rollout
	regions    map[string]*rollout
	halt       *haltRule
}

// rollout is a Rollout that was read.
type rollout struct {
	chosen  chosen
	inPlace []step
	cri     []step
}

// step is a level from a time on.
type step struct {
	from  time.Time
	level level
	text  Level
	rule  string
}

// chosen is a Selector that was read.
type chosen struct {
	rule   string
	only   map[string]struct{}
	except map[string]struct{}
	labels labels.Selector
}

// NewDecider reads a policy; the error joins a *FieldError for everything that is wrong with it.
func NewDecider(p *Policy) (*Decider, error) {
	if errs := check(p); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	d := &Decider{fallback: newRollout("default", p.Default), regions: make(map[string]*rollout, len(p.Regions))}
	if p.KillSwitch.Active {
		kill := p.KillSwitch
		d.killSwitch = &kill
	}
	d.everywhere = newChosen("selector", p.Selector)
	for i, region := range p.Regions {
		d.regions[region.Name] = newRollout(fmt.Sprintf("regions[%d]", i), region.Rollout)
	}
	if p.Halt != nil {
		d.halt = newHaltRule(*p.Halt)
	}
	return d, nil
}

func newRollout(path string, o Rollout) *rollout {
	out := &rollout{chosen: newChosen(path+".selector", o.Selector)}
	add := func(steps []step, from time.Time, l Level, rule string) []step {
		if l == "" {
			return steps
		}
		read, _ := parseLevel(l) // check has seen that it can be read
		return append(steps, step{from: from, level: read, text: l, rule: rule})
	}
	out.inPlace = add(nil, time.Time{}, o.InPlace, path+".inPlace")
	out.cri = add(nil, time.Time{}, o.CRI, path+".cri")
	for i, s := range o.Stages {
		at := fmt.Sprintf("%s.stages[%d]", path, i)
		out.inPlace = add(out.inPlace, s.NotBefore.Time, s.InPlace, at+".inPlace")
		out.cri = add(out.cri, s.NotBefore.Time, s.CRI, at+".cri")
	}
	return out
}

func newChosen(path string, s *Selector) chosen {
	c := chosen{rule: path, labels: labels.Everything()}
	if s == nil {
		return c
	}
	c.only, c.except = set(s.Namespaces), set(s.ExceptNamespaces)
	if s.Pods != nil {
		c.labels, _ = metav1.LabelSelectorAsSelector(s.Pods) // check has seen that it is one
	}
	return c
}

func set(names []string) map[string]struct{} {
	out := make(map[string]struct{}, len(names))
	for _, name := range names {
		out[name] = struct{}{}
	}
	return out
}

// has says whether the pod is chosen.
func (c *chosen) has(f *Facts) bool {
	if _, named := c.only[f.Namespace]; len(c.only) > 0 && !named {
		return false
	}
	if _, named := c.except[f.Namespace]; named {
		return false
	}
	return c.labels.Matches(labels.Set(f.Labels))
}

// at is the step that holds at a time; nil: none does yet.
func at(steps []step, now time.Time) *step {
	for i := len(steps) - 1; i >= 0; i-- {
		if !steps[i].from.After(now) {
			return &steps[i]
		}
	}
	return nil
}

// Decide is a pure function. It looks at the kill switch, then at the halt, at the selectors and at the level of the path that
// holds at that time, in this order.
func (d *Decider) Decide(f Facts) Decision {
	out := Decision{Mode: resize.ModeOff, Region: f.Region}
	if d.killSwitch != nil {
		out.Reason, out.Rule, out.detail = ReasonKillSwitch, "killSwitch", d.killSwitch.Message
		out.StopEnforcing = d.killSwitch.Enforcement == EnforcementStop
		return out
	}
	if f.Halted {
		out.Reason = ReasonHalted
		return out
	}
	r, named := d.regions[f.Region]
	if !named {
		r = d.fallback
	}
	for _, c := range [...]*chosen{&d.everywhere, &r.chosen} {
		if !c.has(&f) {
			out.Reason, out.Rule = ReasonNotSelected, c.rule
			return out
		}
	}
	steps := r.inPlace
	if f.Path == resize.PathCRI {
		steps = r.cri
	}
	return out.by(at(steps, f.Now), f.UID)
}

// by completes a decision with the step that holds.
func (d Decision) by(s *step, uid types.UID) Decision {
	d.Reason, d.Share = ReasonOff, ShareOf(uid)
	if s == nil {
		return d
	}
	d.Rule, d.Level = s.rule, s.text
	switch {
	case s.level.mode == modeObserve:
		d.Mode, d.Reason = resize.ModeObserve, ReasonObserve
	case s.level.mode == modeOn:
		d.Mode, d.Reason = resize.ModeOn, ReasonOn
	case s.level.mode == modePercentage && d.Share < s.level.share:
		d.Mode, d.Reason = resize.ModeOn, ReasonInPercentage
	case s.level.mode == modePercentage:
		d.Reason = ReasonOutsidePercentage
	}
	return d
}

// ShareOf is the place of a pod among all, from 0 to 9999: a percentage lets those in whose place is below it, so that raising it keeps all
// that were in. It is the 64-bit FNV-1a hash of the UID, modulo 10000, and will not change: a pod is in or out in every release.
func ShareOf(uid types.UID) uint32 {
	const offset, prime = 14695981039346656037, 1099511628211
	hash := uint64(offset)
	for i := range len(uid) {
		hash = (hash ^ uint64(uid[i])) * prime
	}
	return uint32(hash % whole)
}
