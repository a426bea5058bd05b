package featuregate_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/podresize/podresize/featuregate"
	"github.com/podresize/podresize/resize"
)

func decider(tb testing.TB, text string) *featuregate.Decider {
	tb.Helper()
	p, err := featuregate.Parse([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	d, err := featuregate.NewDecider(p)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// insider and outsider are pods whose shares are 3.16% and 92.25%.
const insider, outsider types.UID = "uid-4", "uid-10"

func TestDecide(t *testing.T) {
	const inPlace, cri = resize.PathInPlace, resize.PathCRI
	rollout := string(example(t))
	killed := head + "killSwitch: {active: true, enforcement: Stop, message: see INC-1}\ndefault: {inPlace: On, cri: On}"
	facts := func(region, namespace string, path resize.Path, when string) featuregate.Facts {
		return featuregate.Facts{Region: region, Namespace: namespace, Path: path, UID: insider, Now: at(t, when)}
	}
	for _, tc := range []struct {
		name   string
		policy string
		facts  featuregate.Facts
		change func(*featuregate.Facts)
		mode   resize.Mode
		reason featuregate.Reason
		says   string
	}{
		{name: "before the first stage", facts: facts("eu-west-1", "shop", inPlace, "2026-03-02T07:59:59Z"), mode: resize.ModeObserve, reason: featuregate.ReasonObserve, says: `region "eu-west-1": regions[0].inPlace is Observe`},
		{name: "from the second of a stage on", facts: facts("eu-west-1", "shop", inPlace, "2026-03-02T08:00:00Z"), mode: resize.ModeOn, reason: featuregate.ReasonInPercentage, says: `region "eu-west-1": regions[0].stages[0].inPlace is 10%, the pod's share is 3.16%`},
		{name: "another time zone", facts: facts("eu-west-1", "shop", inPlace, "2026-03-02T10:00:00+02:00"), mode: resize.ModeOn, reason: featuregate.ReasonInPercentage, says: `region "eu-west-1": regions[0].stages[0].inPlace is 10%, the pod's share is 3.16%`},
		{name: "outside", facts: facts("eu-west-1", "shop", inPlace, "2026-03-10T08:00:00Z"), change: func(f *featuregate.Facts) { f.UID = outsider }, mode: resize.ModeOff, reason: featuregate.ReasonOutsidePercentage, says: `region "eu-west-1": regions[0].stages[1].inPlace is 50%, the pod's share is 92.25%`},
		{name: "a path that no stage has named yet", facts: facts("eu-west-1", "shop", cri, "2026-03-02T08:00:00Z"), mode: resize.ModeOff, reason: featuregate.ReasonOff, says: `region "eu-west-1": the policy does not name this path, so it is Off`},
		{name: "another path at the same time", facts: facts("eu-west-1", "shop", cri, "2026-03-10T08:00:00Z"), mode: resize.ModeObserve, reason: featuregate.ReasonObserve, says: `region "eu-west-1": regions[0].stages[1].cri is Observe`},
		{name: "the last stage", facts: facts("eu-west-1", "shop", inPlace, "2036-03-10T08:00:00Z"), change: func(f *featuregate.Facts) { f.UID = outsider }, mode: resize.ModeOn, reason: featuregate.ReasonOn, says: `region "eu-west-1": regions[0].stages[2].inPlace is On`},
		{name: "a region that is not named", facts: facts("mars", "shop", inPlace, "2026-03-10T08:00:00Z"), mode: resize.ModeOff, reason: featuregate.ReasonOff, says: `region "mars": default.inPlace is Off`},
		{name: "no region", facts: facts("", "shop", inPlace, "2026-03-10T08:00:00Z"), mode: resize.ModeOff, reason: featuregate.ReasonOff, says: "a node without a region: default.inPlace is Off"},
		{name: "namespace left out everywhere", facts: facts("ap-south-1", "kube-system", cri, "2026-03-10T08:00:00Z"), mode: resize.ModeOff, reason: featuregate.ReasonNotSelected, says: "the pod is not in the roll-out: selector leaves it out"},
		{name: "label left out everywhere", facts: facts("ap-south-1", "shop", cri, "2026-03-10T08:00:00Z"), change: func(f *featuregate.Facts) { f.Labels = map[string]string{"podresize.dev/opt-out": ""} }, mode: resize.ModeOff, reason: featuregate.ReasonNotSelected, says: "the pod is not in the roll-out: selector leaves it out"},
		{name: "label left out in a region", facts: facts("us-east-1", "shop", inPlace, "2026-03-10T08:00:00Z"), mode: resize.ModeOff, reason: featuregate.ReasonNotSelected, says: "the pod is not in the roll-out: regions[1].selector leaves it out"},
		{name: "namespace left out in a region", facts: facts("us-east-1", "db", inPlace, "2026-03-10T08:00:00Z"), change: func(f *featuregate.Facts) { f.Labels = map[string]string{"tier": "batch"} }, mode: resize.ModeOff, reason: featuregate.ReasonNotSelected, says: "the pod is not in the roll-out: regions[1].selector leaves it out"},
		{name: "selected in a region", facts: facts("us-east-1", "web", inPlace, "2026-03-10T08:00:00Z"), change: func(f *featuregate.Facts) { f.Labels = map[string]string{"tier": "batch"} }, mode: resize.ModeOn, reason: featuregate.ReasonOn, says: `region "us-east-1": regions[1].inPlace is On`},
		{name: "halted", facts: facts("ap-south-1", "shop", cri, "2026-03-10T08:00:00Z"), change: func(f *featuregate.Facts) { f.Halted = true }, mode: resize.ModeOff, reason: featuregate.ReasonHalted, says: `region "ap-south-1" was halted: a person has to clear that`},
		{name: "killed", policy: killed, facts: facts("mars", "shop", cri, "2026-03-10T08:00:00Z"), change: func(f *featuregate.Facts) { f.Halted = true }, mode: resize.ModeOff, reason: featuregate.ReasonKillSwitch, says: "the roll-out's kill switch is active: see INC-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.policy == "" {
				tc.policy = rollout
			}
			if tc.change != nil {
				tc.change(&tc.facts)
			}
			got := decider(t, tc.policy).Decide(tc.facts)
			if got.Mode != tc.mode || got.Reason != tc.reason || got.Message() != tc.says {
				t.Errorf("got %s, %s: %s", got.Mode, got.Reason, got.Message())
			}
			if got.StopEnforcing != (tc.reason == featuregate.ReasonKillSwitch) {
				t.Errorf("stop enforcing: %t", got.StopEnforcing)
			}
		})
	}
}

// TestShareOf: these figures hold for ever. Were they to change, another half of the pods would be in after an upgrade.
func TestShareOf(t *testing.T) {
	for uid, want := range map[types.UID]uint32{
		"": 6037, insider: 316, outsider: 9225, "6ba7b810-9dad-11d1-80b4-00c04fd430c8": 6864,
	} {
		if got := featuregate.ShareOf(uid); got != want {
			t.Errorf("%s: %d, want %d", uid, got, want)
		}
	}
}

// TestReasonsAreDocumented: docs/rollout.md lists exactly the reasons of a decision, in the order in which they are looked at.
func TestReasonsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("## How it is decided"))
	text, _, _ = bytes.Cut(text, []byte("\n## "))
	var documented []featuregate.Reason
	for _, row := range regexp.MustCompile(`(?m)^\| \d+ \| (\w+) \|`).FindAllSubmatch(text, -1) {
		documented = append(documented, featuregate.Reason(row[1]))
	}
	want := []featuregate.Reason{
		featuregate.ReasonKillSwitch, featuregate.ReasonHalted, featuregate.ReasonNotSelected, featuregate.ReasonOff, featuregate.ReasonObserve,
		featuregate.ReasonOutsidePercentage, featuregate.ReasonInPercentage, featuregate.ReasonOn,
	}
	if !slices.Equal(documented, want) {
		t.Errorf("docs/rollout.md has %q, want %q", documented, want)
	}
}

// busy is a decision that looks at everything: both selectors, the last of ten stages and the hash.
func busy(tb testing.TB) (*featuregate.Decider, featuregate.Facts) {
	tb.Helper()
	text := head + "selector: {exceptNamespaces: [kube-system], pods: {matchExpressions: [{key: opt-out, operator: DoesNotExist}, {key: tier, operator: In, values: [a, b, c]}]}}\nregions:\n"
	for i := range 20 {
		text += fmt.Sprintf("  - name: region-%d\n    selector: {namespaces: [shop, web], pods: {matchLabels: {tier: b, team: x}}}\n    stages:\n", i)
		for day := range 10 {
			text += fmt.Sprintf("      - {notBefore: 2026-03-%02dT08:00:00Z, inPlace: %d%%, cri: Observe}\n", day+1, day+10)
		}
	}
	return decider(tb, text), featuregate.Facts{
		Region: "region-19", Namespace: "web", UID: "6ba7b810-9dad-11d1-80b4-00c04fd430c8", Path: resize.PathInPlace,
		Labels: map[string]string{"tier": "b", "team": "x", "app": "web"}, Now: time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC),
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	d, facts := busy(t)
	if got := d.Decide(facts); got.Rule != "regions[19].stages[0].inPlace" {
		t.Fatalf("decided by %s", got.Rule)
	}
	if allocs := testing.AllocsPerRun(100, func() { d.Decide(facts) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkDecide(b *testing.B) {
	d, facts := busy(b)
	b.ReportAllocs()
	for b.Loop() {
		d.Decide(facts)
	}
}
