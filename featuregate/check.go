package featuregate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The bounds of Halt.Window.
const (
	shortestWindow = time.Minute
	longestWindow  = 7 * 24 * time.Hour
)

// check gives everything that is wrong with a policy, in the order of its fields.
func check(p *Policy) []error {
	var r reader
	if p.APIVersion != APIVersion {
		r.fail("apiVersion", "%q is not %s", p.APIVersion, APIVersion)
	}
	if p.Kind != Kind {
		r.fail("kind", "%q is not %s", p.Kind, Kind)
	}
	switch p.KillSwitch.Enforcement {
	case "", EnforcementKeep, EnforcementStop:
	default:
		r.fail("killSwitch.enforcement", "%q is neither Keep nor Stop", p.KillSwitch.Enforcement)
	}
	if strings.ContainsAny(p.KillSwitch.Message, "\r\n") {
		r.fail("killSwitch.message", "has more than one line")
	}
	r.checkSelector("selector", p.Selector)
	r.checkRollout("default", p.Default)
	r.checkRegions(p.Regions)
	if p.Halt != nil {
		r.checkHalt(*p.Halt)
	}
	return r.errs
}

func (r *reader) checkRegions(regions []Region) {
	first := map[string]int{}
	for i, region := range regions {
		path := fmt.Sprintf("regions[%d]", i)
		switch before, twice := first[region.Name]; {
		case region.Name == "":
			r.fail(path+".name", "is missing: nodes without a region are in default")
		case twice:
			r.fail(path+".name", "%q is the name of regions[%d] too", region.Name, before)
		case len(validation.IsValidLabelValue(region.Name)) > 0:
			r.fail(path+".name", "%s cannot be the value of a node's label", show(region.Name))
		default:
			first[region.Name] = i
		}
		r.checkRollout(path, region.Rollout)
	}
}

func (r *reader) checkRollout(path string, o Rollout) {
	r.checkSelector(path+".selector", o.Selector)
	r.checkLevels(path, o.InPlace, o.CRI)
	for i, s := range o.Stages {
		at := fmt.Sprintf("%s.stages[%d]", path, i)
		switch {
		case s.NotBefore.IsZero():
			r.fail(at+".notBefore", "is missing")
		case i > 0 && !s.NotBefore.After(o.Stages[i-1].NotBefore.Time):
			r.fail(at+".notBefore", "%s is not after that of stages[%d]", s.NotBefore.UTC().Format(time.RFC3339), i-1)
		}
		if s.InPlace == "" && s.CRI == "" {
			r.fail(at, "names no path: inPlace, cri or both")
		}
		r.checkLevels(at, s.InPlace, s.CRI)
	}
}

func (r *reader) checkLevels(path string, inPlace, cri Level) {
	for _, l := range []struct {
		name  string
		level Level
	}{{"inPlace", inPlace}, {"cri", cri}} {
		if _, ok := parseLevel(l.level); !ok {
			r.fail(path+"."+l.name, "%s is none of Off, Observe, On and a percentage such as 25%%", show(string(l.level)))
		}
	}
}

func (r *reader) checkSelector(path string, s *Selector) {
	if s == nil {
		return
	}
	for _, list := range []struct {
		name  string
		names []string
	}{{"namespaces", s.Namespaces}, {"exceptNamespaces", s.ExceptNamespaces}} {
		for i, name := range list.names {
			if len(validation.IsDNS1123Label(name)) > 0 {
				r.fail(fmt.Sprintf("%s.%s[%d]", path, list.name, i), "%s cannot be the name of a namespace", show(name))
			}
		}
	}
	if s.Pods == nil {
		return
	}
	r.checkLabels(path+".pods", s.Pods)
}

func (r *reader) checkLabels(path string, s *metav1.LabelSelector) {
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, field.NewPath(path))
	for _, err := range errs {
		r.fail(err.Field, "%s", oneLine(err.ErrorBody()))
	}
	if len(errs) > 0 {
		return
	}
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		r.fail(path, "%s", oneLine(err.Error()))
	}
}

func (r *reader) checkHalt(h Halt) {
	if h.Window.Duration < shortestWindow || h.Window.Duration > longestWindow {
		r.fail("halt.window", "%s is not between %s and %s", h.Window.Duration, shortestWindow, longestWindow)
	}
	if share, ok := parsePercent(h.Ratio); !ok || share == 0 {
		r.fail("halt.ratio", "%s is no percentage above 0%%, such as 5%%", show(h.Ratio))
	}
	if h.Minimum < 0 {
		r.fail("halt.minimum", "%d is negative", h.Minimum)
	}
	known := knownFailures()
	for i, name := range h.Failures {
		path := fmt.Sprintf("halt.failures[%d]", i)
		switch {
		case !slices.Contains(known, name):
			r.fail(path, "%s is none of %s", show(name), strings.Join(known, ", "))
		case slices.Index(h.Failures, name) < i:
			r.fail(path, "%q is there twice", name)
		}
	}
}

// level is a Level that was read.
type level struct {
	mode levelMode
	// share of the pods, in hundredths of a percent; of a percentage only.
	share uint32
}

type levelMode int

const (
	modeOff levelMode = iota
	modeObserve
	modePercentage
	modeOn
)

// whole is all pods, in hundredths of a percent.
const whole = 100_00

// parseLevel reads a Level; an empty one is Off.
func parseLevel(l Level) (level, bool) {
	switch l {
	case "", LevelOff:
		return level{mode: modeOff}, true
	case LevelObserve:
		return level{mode: modeObserve}, true
	case LevelOn:
		return level{mode: modeOn}, true
	}
	share, ok := parsePercent(string(l))
	return level{mode: modePercentage, share: share}, ok
}

// parsePercent reads 0% to 100%, with up to two digits behind the point, into hundredths of a percent.
func parsePercent(text string) (uint32, bool) {
	digits, ok := strings.CutSuffix(text, "%")
	if !ok {
		return 0, false
	}
	units, part, fraction := strings.Cut(digits, ".")
	if fraction && (part == "" || len(part) > 2) {
		return 0, false
	}
	part += "00"[len(part):]
	if len(units) > 2 && units != "100" || strings.ContainsAny(units+part, "+-_") {
		return 0, false
	}
	n, err := strconv.ParseUint(units+part, 10, 32)
	if err != nil || n > whole || units == "" {
		return 0, false
	}
	return uint32(n), true
}
