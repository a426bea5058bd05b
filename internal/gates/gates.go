// Package gates has the feature gates of the programs: one table, the flag --feature-gates, and docs/feature-gates.md.
package gates

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
)

// Switch is one feature gate.
type Switch struct {
	Name featuregate.Feature
	// Program is the one that it switches. All programs know all switches, so that one value does for all of them.
	Program string
	// Spec is its stage and what it is by default.
	Spec featuregate.FeatureSpec
	// Since is the release that brought it, at this stage.
	Since string
	// Meaning is what it does, and what happens without.
	Meaning string
}

// Gates are the switches as a command line sets them. It is the value of a flag.
type Gates struct {
	gate     featuregate.MutableFeatureGate
	table    []Switch
	removed  map[featuregate.Feature]string
	text     string
	warnings []string
}

var _ pflag.Value = (*Gates)(nil)

// New makes the switches of a table, as they are by default. removed says of names that there are no more what holds since.
func New(table []Switch, removed map[featuregate.Feature]string) (*Gates, error) {
	g := &Gates{gate: featuregate.NewFeatureGate(), table: table, removed: removed}
	specs := map[featuregate.Feature]featuregate.FeatureSpec{}
	for _, s := range table {
		specs[s.Name] = s.Spec
	}
	if err := g.gate.Add(specs); err != nil {
		return nil, fmt.Errorf("registering the feature gates: %w", err)
	}
	return g, nil
}

// AddFlag adds --feature-gates.
func (g *Gates) AddFlag(flags *pflag.FlagSet) {
	flags.Var(g, "feature-gates", "Switches, as in CRIFallback=true,MemoryReclaim=false. Known are:\n"+strings.Join(g.gate.KnownFeatures(), "\n"))
}

// Enabled says how a switch is set. It is to be one of the table.
func (g *Gates) Enabled(name featuregate.Feature) bool { return g.gate.Enabled(name) }

// Warnings tell of switches that were set and cannot be: unknown, removed and locked ones. They are left as they are, so that no
// program stops working with the next release, or the last.
func (g *Gates) Warnings() []string { return g.warnings }

// String implements pflag.Value.
func (g *Gates) String() string { return g.text }

// Type implements pflag.Value.
func (g *Gates) Type() string { return "name=true|false,..." }

// Set implements pflag.Value.
func (g *Gates) Set(text string) error {
	set := map[string]bool{}
	for pair := range strings.SplitSeq(text, ",") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%s: %q is neither true nor false", name, value)
		}
		if g.settable(featuregate.Feature(name), on) {
			set[name] = on
		}
	}
	g.text = text
	return g.gate.SetFromMap(set)
}

// settable says whether a switch can be set so, and warns if it cannot.
func (g *Gates) settable(name featuregate.Feature, on bool) bool {
	spec, known := g.gate.GetAll()[name]
	holds, removed := g.removed[name]
	warn := func(format string, args ...any) {
		g.warnings = append(g.warnings, fmt.Sprintf("feature gate %q ", name)+fmt.Sprintf(format, args...))
	}
	switch {
	case removed:
		warn("was removed, setting it does nothing: %s", holds)
	case !known:
		warn("is not known, setting it does nothing")
	case spec.LockToDefault && on != spec.Default:
		warn("can no longer be set: it is always %t", spec.Default)
	default:
		return true
	}
	return false
}

// Markdown is the table as docs/feature-gates.md has it.
func Markdown(table []Switch, removed map[featuregate.Feature]string) string {
	var b strings.Builder
	b.WriteString("| Gate | Program | Stage | Default | Since | Meaning |\n|---|---|---|---|---|---|\n")
	for _, s := range table {
		fmt.Fprintf(&b, "| %s | %s | %s | %t | %s | %s |\n", s.Name, s.Program, stage(s.Spec), s.Spec.Default, s.Since, s.Meaning)
	}
	names := make([]string, 0, len(removed))
	for name := range removed {
		names = append(names, string(name))
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "| %s | – | removed | – | – | %s |\n", name, removed[featuregate.Feature(name)])
	}
	return b.String()
}

func stage(spec featuregate.FeatureSpec) string {
	name := "GA" // whose name is empty
	if given := string(spec.PreRelease); given != "" {
		name = given[:1] + strings.ToLower(given[1:])
	}
	if spec.LockToDefault {
		name += ", locked"
	}
	return name
}
