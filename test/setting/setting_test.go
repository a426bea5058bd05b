package setting_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

func TestParse(t *testing.T) {
	for name, want := range map[string]resize.Path{
		"1.26": resize.PathCRI, "1.27": resize.PathCRI, "1.27:on": resize.PathInPlace, "v1.31.14:off": resize.PathCRI,
		"1.32": resize.PathCRI, "1.32:on": resize.PathInPlace, "1.33": resize.PathInPlace, "1.33:off": resize.PathCRI, "1.37": resize.PathInPlace,
		"1.26+crun": resize.PathCRI, "1.26+containerd2": resize.PathCRI, "1.32+containerd2:off": resize.PathCRI, "1.33+crun": resize.PathInPlace,
	} {
		s, err := setting.Parse(name)
		if err != nil || s.Name != name || s.IsMixed() || len(s.Nodes) != 1 || s.Nodes[0].Path != want {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	for _, name := range []string{"", "1.25", "1.26:on", "1.31:", "1.31:maybe", "mixed:", "mixed:none", "1.26+", "+crun", "1.26+kata", "1.26+crun+crun", "1.26+containerd2+crun", "1.26:+crun", "1.31:on+crun", "1.25+crun"} {
		if s, err := setting.Parse(name); err == nil {
			t.Errorf("%q: %+v", name, s)
		}
	}
}

func TestRuntime(t *testing.T) {
	for name, want := range map[string]cluster.Runtime{
		"1.26": "", "1.26+crun": cluster.Crun, "1.31+containerd2:on": cluster.Containerd2, "mixed:nodes": "",
	} {
		s, err := setting.Parse(name)
		if err != nil || s.Runtime() != want {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if _, err := cluster.Complete(s.Config); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAll: every one can be parsed, and no two have the same cluster.
func TestAll(t *testing.T) {
	all, err := setting.ParseAll(strings.Join(setting.All(), " "))
	if err != nil {
		t.Fatal(err)
	}
	clusters := map[string]string{}
	for _, s := range all {
		if other, taken := clusters[s.Config.Name]; taken {
			t.Errorf("%s and %s are both %s", s.Name, other, s.Config.Name)
		}
		clusters[s.Config.Name] = s.Name
	}
	if len(all) != 3+1+2*6+5+4 {
		t.Errorf("%d settings: %v", len(all), setting.All())
	}
	mixed, err := setting.ParseAll("mixed")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range mixed {
		names = append(names, s.Name)
	}
	if diff := cmp.Diff(setting.All()[len(all)-4:], names); diff != "" {
		t.Error(diff)
	}
}
