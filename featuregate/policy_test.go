package featuregate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/podresize/podresize/featuregate"
)

const head = "apiVersion: podresize.dev/v1alpha1\nkind: RolloutPolicy\n"

func example(tb testing.TB) []byte {
	tb.Helper()
	text, err := os.ReadFile("testdata/rollout.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func at(tb testing.TB, text string) time.Time {
	tb.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		tb.Fatal(err)
	}
	return when
}

func TestParse(t *testing.T) {
	stage := func(when string, inPlace, cri featuregate.Level) featuregate.Stage {
		return featuregate.Stage{NotBefore: metav1.NewTime(at(t, when)), InPlace: inPlace, CRI: cri}
	}
	want := &featuregate.Policy{
		APIVersion: featuregate.APIVersion, Kind: featuregate.Kind,
		KillSwitch: featuregate.KillSwitch{Enforcement: featuregate.EnforcementStop, Message: "see INC-1"},
		Selector: &featuregate.Selector{
			ExceptNamespaces: []string{"kube-system"},
			Pods: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "podresize.dev/opt-out", Operator: metav1.LabelSelectorOpDoesNotExist},
			}},
		},
		Default: featuregate.Rollout{InPlace: featuregate.LevelOff},
		Regions: []featuregate.Region{
			{Name: "eu-west-1", Rollout: featuregate.Rollout{InPlace: featuregate.LevelObserve, Stages: []featuregate.Stage{
				stage("2026-03-02T08:00:00Z", "10%", ""),
				stage("2026-03-09T08:00:00Z", "50%", featuregate.LevelObserve),
				stage("2026-03-16T08:00:00Z", featuregate.LevelOn, featuregate.LevelOn),
			}}},
			{Name: "us-east-1", Rollout: featuregate.Rollout{
				Selector: &featuregate.Selector{Namespaces: []string{"shop", "web"}, Pods: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "batch"}}},
				InPlace:  featuregate.LevelOn, CRI: "12.5%",
			}},
			{Name: "ap-south-1", Rollout: featuregate.Rollout{CRI: featuregate.LevelOn}},
		},
		Halt: &featuregate.Halt{
			Window: metav1.Duration{Duration: 30 * time.Minute}, Ratio: "5%", Minimum: 40, Failures: []string{"Unconfirmed", "KubeletError", "Restart"},
		},
	}
	got, err := featuregate.Parse(example(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// What Go writes can be read again.
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	again, err := featuregate.Parse(text)
	if diff := cmp.Diff(want, again); err != nil || diff != "" {
		t.Errorf("%v: %s of\n%s", err, diff, text)
	}
}

// wrong are bad values: for every field at least one. field is as in leaves.
var wrong = []struct {
	field string // with [] for the index of a list
	yaml  string // behind head, or the whole text if whole
	says  string
	whole bool
	// beyondSchema: what a schema cannot say.
	beyondSchema bool
}{
	{field: "apiVersion", yaml: "apiVersion: podresize.dev/v1\nkind: RolloutPolicy", says: `apiVersion: "podresize.dev/v1" is not podresize.dev/v1alpha1`, whole: true},
	{field: "apiVersion", yaml: "kind: RolloutPolicy", says: `apiVersion: "" is not podresize.dev/v1alpha1`, whole: true},
	{field: "kind", yaml: "apiVersion: podresize.dev/v1alpha1\nkind: Policy", says: `kind: "Policy" is not RolloutPolicy`, whole: true},
	{field: "kind", yaml: "apiVersion: podresize.dev/v1alpha1\nkind: 7", says: `kind: 7 is no string`, whole: true},
	{field: "", yaml: "spec: {}", says: "spec: unknown field: known are apiVersion, kind, killSwitch, selector, default, regions, halt"},
	{field: "", yaml: `"a b\nc": {}`, says: `["a b\nc"]: unknown field`},
	{field: "killSwitch", yaml: "killSwitch: on", says: "killSwitch: true is no object"},
	{field: "killSwitch", yaml: "killSwitch: {enabled: true}", says: "killSwitch.enabled: unknown field: known are active, enforcement, message"},
	{field: "killSwitch.active", yaml: "killSwitch: {active: maybe}", says: `killSwitch.active: "maybe" is neither true nor false`},
	{field: "killSwitch.enforcement", yaml: "killSwitch: {enforcement: stop}", says: `killSwitch.enforcement: "stop" is neither Keep nor Stop`},
	{field: "killSwitch.message", yaml: "killSwitch: {message: 3}", says: "killSwitch.message: 3 is no string"},
	{field: "killSwitch.message", yaml: `killSwitch: {message: "a\nb"}`, says: "killSwitch.message: has more than one line", beyondSchema: true},
	{field: "selector", yaml: "selector: []", says: "selector: [] is no object"},
	{field: "selector.namespaces", yaml: "selector: {namespaces: shop}", says: `selector.namespaces: "shop" is no list`},
	{field: "selector.namespaces[]", yaml: "selector: {namespaces: [shop, A_B]}", says: `selector.namespaces[1]: "A_B" cannot be the name of a namespace`, beyondSchema: true},
	{field: "selector.namespaces[]", yaml: "selector: {namespaces: [5]}", says: "selector.namespaces[0]: 5 is no string"},
	{field: "selector.exceptNamespaces", yaml: "selector: {exceptNamespaces: {}}", says: "selector.exceptNamespaces: {} is no list"},
	{field: "selector.exceptNamespaces[]", yaml: "selector: {exceptNamespaces: ['']}", says: `selector.exceptNamespaces[0]: "" cannot be the name of a namespace`, beyondSchema: true},
	{field: "selector.pods", yaml: "selector: {pods: {tier: batch}}", says: "selector.pods.tier: unknown field: known are matchLabels, matchExpressions"},
	{field: "selector.pods.matchLabels", yaml: "selector: {pods: {matchLabels: {rollout: on}}}", says: "selector.pods.matchLabels.rollout: true is no string"},
	{field: "selector.pods.matchLabels", yaml: "selector: {pods: {matchLabels: {a: 'b c'}}}", says: "selector.pods.matchLabels: Invalid value", beyondSchema: true},
	{field: "selector.pods.matchExpressions", yaml: "selector: {pods: {matchExpressions: x}}", says: `selector.pods.matchExpressions: "x" is no list`},
	{field: "selector.pods.matchExpressions[]", yaml: "selector: {pods: {matchExpressions: [null]}}", says: "selector.pods.matchExpressions[0]: is empty"},
	{field: "selector.pods.matchExpressions[].key", yaml: "selector: {pods: {matchExpressions: [{key: 'a b', operator: Exists}]}}", says: "selector.pods.matchExpressions[0].key: Invalid value", beyondSchema: true},
	{field: "selector.pods.matchExpressions[].operator", yaml: "selector: {pods: {matchExpressions: [{key: a, operator: Is}]}}", says: "selector.pods.matchExpressions[0].operator: Invalid value"},
	{field: "selector.pods.matchExpressions[].values", yaml: "selector: {pods: {matchExpressions: [{key: a, operator: In}]}}", says: "selector.pods.matchExpressions[0].values: Required value", beyondSchema: true},
	{field: "selector.pods.matchExpressions[].values[]", yaml: "selector: {pods: {matchExpressions: [{key: a, operator: In, values: [1]}]}}", says: "selector.pods.matchExpressions[0].values[0]: 1 is no string"},
	{field: "default", yaml: "default: Off", says: "default: false is no object"},
	{field: "default.selector", yaml: "default: {selector: 1}", says: "default.selector: 1 is no object"},
	{field: "default.inPlace", yaml: "default: {inPlace: Some}", says: `default.inPlace: "Some" is none of Off, Observe, On and a percentage such as 25%`},
	{field: "default.cri", yaml: "default: {cri: 25}", says: "default.cri: 25 is no string"},
	{field: "default.stages", yaml: "default: {stages: {}}", says: "default.stages: {} is no list"},
	{field: "default.stages[]", yaml: "default: {stages: [On]}", says: "default.stages[0]: true is no object"},
	{field: "default.stages[].notBefore", yaml: "default: {stages: [{cri: On}]}", says: "default.stages[0].notBefore: is missing"},
	{field: "default.stages[].inPlace", yaml: "default: {stages: [{notBefore: 2026-03-02T08:00:00Z, inPlace: 101%}]}", says: `default.stages[0].inPlace: "101%" is none of`},
	{field: "default.stages[].cri", yaml: "default: {stages: [{notBefore: 2026-03-02T08:00:00Z, cri: 1.234%}]}", says: `default.stages[0].cri: "1.234%" is none of`},
	{field: "regions", yaml: "regions: {eu: {}}", says: `regions: {"eu":{}} is no list`},
	{field: "regions[]", yaml: "regions: [eu]", says: `regions[0]: "eu" is no object`},
	{field: "regions[]", yaml: "regions: [{name: eu, inplace: On}]", says: "regions[0].inplace: unknown field: known are name, selector, inPlace, cri, stages"},
	{field: "regions[].name", yaml: "regions: [{cri: On}]", says: "regions[0].name: is missing"},
	{field: "regions[].name", yaml: "regions: [{name: eu}, {name: us}, {name: eu}]", says: `regions[2].name: "eu" is the name of regions[0] too`, beyondSchema: true},
	{field: "regions[].name", yaml: "regions: [{name: 'e u'}]", says: `regions[0].name: "e u" cannot be the value of a node's label`, beyondSchema: true},
	{field: "regions[].selector", yaml: "regions: [{name: eu, selector: {namespace: a}}]", says: "regions[0].selector.namespace: unknown field"},
	{field: "regions[].inPlace", yaml: "regions: [{name: eu, inPlace: -1%}]", says: `regions[0].inPlace: "-1%" is none of`},
	{field: "regions[].cri", yaml: "regions: [{name: eu, cri: observe}]", says: `regions[0].cri: "observe" is none of`},
	{field: "regions[].stages", yaml: "regions: [{name: eu, stages: 1}]", says: "regions[0].stages: 1 is no list"},
	{field: "regions[].stages[]", yaml: "regions: [{name: eu, stages: [{notBefore: 2026-03-02T08:00:00Z}]}]", says: "regions[0].stages[0]: names no path: inPlace, cri or both", beyondSchema: true},
	{field: "regions[].stages[].notBefore", yaml: "regions: [{name: eu, stages: [{notBefore: 2026-03-02, cri: On}]}]", says: `regions[0].stages[0].notBefore: "2026-03-02" is no time such as`, beyondSchema: true},
	{field: "regions[].stages[].notBefore", yaml: "regions: [{name: eu, stages: [{notBefore: 2026-03-02T08:00:00Z, cri: On}, {notBefore: 2026-03-02T08:00:00Z, cri: Off}]}]", says: "regions[0].stages[1].notBefore: 2026-03-02T08:00:00Z is not after that of stages[0]", beyondSchema: true},
	{field: "regions[].stages[].inPlace", yaml: "regions: [{name: eu, stages: [{notBefore: 2026-03-02T08:00:00Z, inPlace: '%'}]}]", says: `regions[0].stages[0].inPlace: "%" is none of`},
	{field: "regions[].stages[].cri", yaml: "regions: [{name: eu, stages: [{notBefore: 2026-03-02T08:00:00Z, cri: []}]}]", says: "regions[0].stages[0].cri: [] is no string"},
	{field: "halt", yaml: "halt: Off", says: "halt: false is no object"},
	{field: "halt.window", yaml: "halt: {window: 10, ratio: 5%}", says: "halt.window: 10 is no duration such as 30m or 24h"},
	{field: "halt.window", yaml: "halt: {window: 10s, ratio: 5%}", says: "halt.window: 10s is not between 1m0s and 168h0m0s", beyondSchema: true},
	{field: "halt.ratio", yaml: "halt: {window: 10m, ratio: 0%}", says: `halt.ratio: "0%" is no percentage above 0%, such as 5%`, beyondSchema: true},
	{field: "halt.ratio", yaml: "halt: {window: 10m}", says: `halt.ratio: "" is no percentage`},
	{field: "halt.minimum", yaml: "halt: {window: 10m, ratio: 5%, minimum: -1}", says: "halt.minimum: -1 is negative", beyondSchema: true},
	{field: "halt.minimum", yaml: "halt: {window: 10m, ratio: 5%, minimum: 1.5}", says: "halt.minimum: 1.5 is no whole number"},
	{field: "halt.failures", yaml: "halt: {window: 10m, ratio: 5%, failures: Restart}", says: `halt.failures: "Restart" is no list`},
	{field: "halt.failures[]", yaml: "halt: {window: 10m, ratio: 5%, failures: [Restarts]}", says: `halt.failures[0]: "Restarts" is none of Unconfirmed, `},
	{field: "halt.failures[]", yaml: "halt: {window: 10m, ratio: 5%, failures: [Restart, Restart]}", says: `halt.failures[1]: "Restart" is there twice`, beyondSchema: true},
	{field: "", yaml: "halt: {}\nhalt: {}", says: `not YAML: yaml: unmarshal errors: line 4: key "halt" already set in map`, beyondSchema: true},
	{field: "", yaml: "---\nkind: RolloutPolicy", says: "the text has 2 documents: a policy is one", beyondSchema: true},
	{field: "", yaml: "\t", says: "not YAML: ", beyondSchema: true},
	{field: "", yaml: "# nothing", says: "the policy is empty", whole: true, beyondSchema: true},
	{field: "", yaml: "- a", says: `["a"] is no object`, whole: true},
}

// TestBadValues: every field's bad value is told in one line that names the field, and nothing else is told.
func TestBadValues(t *testing.T) {
	covered := map[string]bool{}
	for _, tc := range wrong {
		covered[tc.field] = true
		text := head + tc.yaml
		if tc.whole {
			text = tc.yaml
		}
		_, err := featuregate.Parse([]byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, tc.says)
		}
		if broken := violates(t, text); !tc.beyondSchema && broken == "" {
			t.Errorf("the schema takes\n%s", text)
		}
	}
	for field := range leaves(reflect.TypeFor[featuregate.Policy](), "") {
		if !covered[field] {
			t.Errorf("no bad value of %s is tested", field)
		}
	}
	if broken := violates(t, string(example(t))); broken != "" {
		t.Errorf("the schema does not take the example: %s", broken)
	}
}

// TestAllThatIsWrong is told at once.
func TestAllThatIsWrong(t *testing.T) {
	_, err := featuregate.Parse([]byte(head + "default: {inPlace: 5, cri: 6}\nhalt: 7"))
	var first *featuregate.FieldError
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 3 || !errors.As(err, &first) || first.Path != "default.cri" {
		t.Errorf("got %v", err)
	}
}

func TestPercentages(t *testing.T) {
	for _, good := range []string{"0%", "1%", "07%", "99.99%", "100%", "100.0%", "0.01%", "Off", "Observe", "On", "on", "'On'", "yes", "false"} {
		if _, err := featuregate.Parse([]byte(head + "default: {cri: " + good + "}")); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"100.01%", "007%", "+1%", "1e1%", ".5%", "5.%", "1_0%", "'5 %'", "'%'", "'on'", "50", "0x1%"} {
		if _, err := featuregate.Parse([]byte(head + "default: {cri: " + bad + "}")); err == nil {
			t.Errorf("%s was taken", bad)
		}
		if violates(t, head+"default: {cri: "+bad+"}") == "" {
			t.Errorf("the schema takes %s", bad)
		}
	}
}

// leaves are all fields of a type, by their paths, with [] for an index, and what they hold.
func leaves(of reflect.Type, path string) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	switch {
	case of.Kind() == reflect.Pointer:
		return leaves(of.Elem(), path)
	case of == reflect.TypeFor[metav1.Time](), of == reflect.TypeFor[metav1.Duration]():
	case of.Kind() == reflect.Slice:
		out = leaves(of.Elem(), path+"[]")
	case of.Kind() == reflect.Struct:
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous:
				maps.Copy(out, leaves(f.Type, path))
				continue
			case path != "":
				name = path + "." + name
			}
			maps.Copy(out, leaves(f.Type, name))
		}
	}
	if path != "" && !strings.Contains(path, "selector.") || strings.HasPrefix(path, "selector.") {
		out[path] = of // the fields of selectors within regions are those of the policy's
	}
	return out
}

// TestSchemaFitsType: the schema has exactly the fields of the Go type, closed, and the same values for those that are enumerations.
func TestSchemaFitsType(t *testing.T) {
	root := readSchema(t)
	want := slices.Sorted(maps.Keys(leaves(reflect.TypeFor[featuregate.Policy](), "")))
	got := slices.DeleteFunc(slices.Sorted(maps.Keys(schemaFields(t, root, root, ""))), func(path string) bool {
		return strings.Contains(path, "selector.") && !strings.HasPrefix(path, "selector.")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("- Go type, + schema: %s", diff)
	}
	failures := schemaFields(t, root, root, "")["halt.failures[]"]["enum"].([]any)
	for _, name := range failures {
		text := fmt.Sprintf("%shalt: {window: 1m, ratio: 5%%, failures: [%s]}", head, name)
		if _, err := featuregate.Parse([]byte(text)); err != nil {
			t.Errorf("the schema has a failure that Parse does not take: %v", err)
		}
	}
	_, err := featuregate.Parse([]byte(head + "halt: {window: 1m, ratio: 5%, failures: [none]}"))
	if _, known, _ := strings.Cut(err.Error(), "is none of "); len(strings.Split(known, ", ")) != len(failures) {
		t.Errorf("Parse knows %s, the schema %v", known, failures)
	}
}

// TestFailuresAreDocumented: all that may count as a failure is a state or a reason of docs/reasons.md, or Restart.
func TestFailuresAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	root := readSchema(t)
	for _, name := range schemaFields(t, root, root, "")["halt.failures[]"]["enum"].([]any) {
		if name != featuregate.FailureRestart && !strings.Contains(string(text), fmt.Sprintf("\n| %s |", name)) {
			t.Errorf("docs/reasons.md has no %s", name)
		}
	}
}

type object = map[string]any

func readSchema(t *testing.T) object {
	t.Helper()
	var root object
	if err := json.Unmarshal(featuregate.Schema(), &root); err != nil {
		t.Fatal(err)
	}
	return root
}

func resolve(root, s object) object {
	ref, ok := s["$ref"].(string)
	if !ok {
		return s
	}
	return root["definitions"].(object)[strings.TrimPrefix(ref, "#/definitions/")].(object)
}

// schemaFields are all fields that a schema has, as leaves has them.
func schemaFields(t *testing.T, root, s object, path string) map[string]object {
	t.Helper()
	s = resolve(root, s)
	out := map[string]object{}
	if path != "" {
		out[path] = s
	}
	properties, _ := s["properties"].(object)
	if s["type"] == "object" && s["additionalProperties"] != false && !strings.HasSuffix(path, "matchLabels") {
		t.Errorf("%s takes unknown fields", path)
	}
	for name, p := range properties {
		if path != "" {
			name = path + "." + name
		}
		maps.Copy(out, schemaFields(t, root, p.(object), name))
	}
	if items, ok := s["items"].(object); ok {
		maps.Copy(out, schemaFields(t, root, items, path+"[]"))
	}
	return out
}

// violates says what of the schema a YAML text violates; empty: nothing. It knows the keywords that the schema has.
func violates(t *testing.T, text string) string {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return ""
	}
	root := readSchema(t)
	return violation(root, root, value, "")
}

func violation(root, s object, value any, path string) string {
	s = resolve(root, s)
	if broken := valueViolation(root, s, value, path); broken != "" {
		return broken
	}
	kinds := map[string]string{"map[string]interface {}": "object", "[]interface {}": "array", "float64": "integer", "bool": "boolean", "string": "string", "<nil>": "null"}
	if kind, typed := s["type"]; typed && kind != kinds[fmt.Sprintf("%T", value)] {
		return path + " is of another type"
	}
	switch v := value.(type) {
	case object:
		return objectViolation(root, s, v, path)
	case float64:
		if v != float64(int(v)) {
			return path + " is not whole"
		}
	case []any:
		items, _ := s["items"].(object)
		for i, element := range v {
			if broken := violation(root, items, element, fmt.Sprintf("%s[%d]", path, i)); broken != "" {
				return broken
			}
		}
	}
	return ""
}

// valueViolation is about the keywords that name values.
func valueViolation(root, s object, value any, path string) string {
	fits := func(one any) bool { return violation(root, one.(object), value, path) == "" }
	if anyOf, ok := s["anyOf"].([]any); ok && !slices.ContainsFunc(anyOf, fits) {
		return path + " is none of anyOf"
	}
	if constant, ok := s["const"]; ok && constant != value {
		return path + " is not const"
	}
	if enum, ok := s["enum"].([]any); ok && !slices.ContainsFunc(enum, func(e any) bool { return reflect.DeepEqual(e, value) }) {
		return path + " is not in enum"
	}
	if pattern, ok := s["pattern"].(string); ok {
		if text, isText := value.(string); !isText || !regexp.MustCompile(pattern).MatchString(text) {
			return path + " does not match"
		}
	}
	return ""
}

func objectViolation(root, s object, v object, path string) string {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, there := v[name.(string)]; !there {
			return path + " lacks " + name.(string)
		}
	}
	properties, _ := s["properties"].(object)
	for name, value := range v {
		p, known := properties[name].(object)
		if more, ok := s["additionalProperties"].(object); !known && ok {
			p, known = more, true
		}
		if !known {
			return path + " has an unknown " + name
		}
		if broken := violation(root, p, value, path+"."+name); broken != "" {
			return broken
		}
	}
	return ""
}

// FuzzParse: no text makes it fail otherwise than by errors that name a field on one line each; what it takes can be decided by, is
// taken again when written, and decides the same then.
func FuzzParse(f *testing.F) {
	f.Add(example(f))
	for _, tc := range wrong {
		f.Add([]byte(head + tc.yaml))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := featuregate.Parse(text)
		if err != nil {
			checkErrors(t, err)
			return
		}
		d, err := featuregate.NewDecider(p)
		if err != nil {
			t.Fatalf("%s\nis parsed, but %v", text, err)
		}
		written, err := yaml.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := featuregate.Parse(written)
		if err != nil {
			t.Fatalf("%s\nis not taken: %v", written, err)
		}
		d2, err := featuregate.NewDecider(again)
		if err != nil {
			t.Fatal(err)
		}
		for _, facts := range []featuregate.Facts{{}, {Region: "eu-west-1", Path: "InPlace", UID: "a", Namespace: "shop", Now: time.Unix(1<<31, 0)}} {
			if a, b := d.Decide(facts), d2.Decide(facts); a != b || a.Message() != b.Message() {
				t.Fatalf("%+v and %+v", a, b)
			}
		}
	})
}

func checkErrors(t *testing.T, err error) {
	t.Helper()
	all := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		all = many.Unwrap()
	}
	for _, err := range all {
		var field *featuregate.FieldError
		if !errors.As(err, &field) || field.Message == "" || strings.ContainsAny(err.Error(), "\r\n") {
			t.Fatalf("got %#v: %q", err, err)
		}
	}
}
