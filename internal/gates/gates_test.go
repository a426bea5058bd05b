package gates_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"github.com/podresize/podresize/internal/gates"
)

var update = flag.Bool("update", false, "write docs/feature-gates.md")

const intro = `# Feature gates

<!-- Generated from internal/gates/table.go by make generate. -->

` + "`podresize` and `podresize-agent` take `--feature-gates=Name=true,Other=false`. Both know all of these, and each heeds its own, so that one\n" +
	`value does for both. A gate that is unknown, removed or locked is left as it is: the program says so on stderr and works on. Only a value that
is neither true nor false is an error. ` + "`AllAlpha` and `AllBeta` set all of a stage that are not named.\n" + `
These gates switch code of podresize on or off. Which pods are resized where, and from when, is in the [roll-out policy](rollout.md).

`

// TestDocs: docs/feature-gates.md is generated from the table.
func TestDocs(t *testing.T) {
	const path = "../../docs/feature-gates.md"
	want := intro + gates.Markdown(gates.Table(), gates.Removed())
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is stale, run make generate: %s", path, diff)
	}
}

func TestTable(t *testing.T) {
	names := []string{}
	for _, s := range gates.Table() {
		names = append(names, string(s.Name))
		if s.Meaning == "" || s.Since == "" || s.Program != "podresize" && s.Program != "podresize-agent" {
			t.Errorf("%+v lacks something", s)
		}
		if _, removed := gates.Removed()[s.Name]; removed {
			t.Errorf("%s is there and removed", s.Name)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("%q are not in order", names)
	}
}

// table has one of each stage.
func table() []gates.Switch {
	return []gates.Switch{
		{Name: "Early", Program: "podresize", Since: "v0.1.0", Meaning: "e", Spec: featuregate.FeatureSpec{PreRelease: featuregate.Alpha}},
		{Name: "Late", Program: "podresize", Since: "v0.1.0", Meaning: "l", Spec: featuregate.FeatureSpec{PreRelease: featuregate.Beta, Default: true}},
		{Name: "Settled", Program: "podresize", Since: "v0.1.0", Meaning: "s", Spec: featuregate.FeatureSpec{PreRelease: featuregate.GA, Default: true, LockToDefault: true}},
	}
}

func removed() map[featuregate.Feature]string {
	return map[featuregate.Feature]string{"Gone": "it is always on"}
}

func TestFlag(t *testing.T) {
	for _, tc := range []struct {
		text        string
		early, late bool
		warnings    []string
		err         string
	}{
		{text: "", late: true},
		{text: "Early=true,Late=false", early: true},
		{text: " Early=1 , ", early: true, late: true},
		{text: "AllAlpha=true", early: true, late: true},
		{text: "AllBeta=false,Early=true", early: true},
		{text: "Nobody=true,Early=true", early: true, late: true, warnings: []string{`feature gate "Nobody" is not known, setting it does nothing`}},
		{text: "Gone=false,Early=true", early: true, late: true, warnings: []string{`feature gate "Gone" was removed, setting it does nothing: it is always on`}},
		{text: "Settled=false,Early=true", early: true, late: true, warnings: []string{`feature gate "Settled" can no longer be set: it is always true`}},
		{text: "Settled=true", late: true},
		{text: "Early=maybe", late: true, err: `Early: "maybe" is neither true nor false`},
		{text: "Early", late: true, err: `Early: "" is neither true nor false`},
	} {
		t.Run(tc.text, func(t *testing.T) {
			g, err := gates.New(table(), removed())
			if err != nil {
				t.Fatal(err)
			}
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			g.AddFlag(flags)
			err = flags.Parse([]string{"--feature-gates=" + tc.text})
			if (err != nil) != (tc.err != "") || err != nil && !strings.HasSuffix(err.Error(), tc.err) {
				t.Errorf("got %v, want %s", err, tc.err)
			}
			if g.Enabled("Early") != tc.early || g.Enabled("Late") != tc.late || !g.Enabled("Settled") {
				t.Errorf("Early %t, Late %t, Settled %t", g.Enabled("Early"), g.Enabled("Late"), g.Enabled("Settled"))
			}
			if diff := cmp.Diff(tc.warnings, g.Warnings()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMarkdown(t *testing.T) {
	const want = `| Gate | Program | Stage | Default | Since | Meaning |
|---|---|---|---|---|---|
| Early | podresize | Alpha | false | v0.1.0 | e |
| Late | podresize | Beta | true | v0.1.0 | l |
| Settled | podresize | GA, locked | true | v0.1.0 | s |
| Gone | – | removed | – | – | it is always on |
`
	if diff := cmp.Diff(want, gates.Markdown(table(), removed())); diff != "" {
		t.Error(diff)
	}
}
