package cluster_test

import (
	"strings"
	"testing"

	"github.com/podresize/podresize/test/cluster"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"1.26": "v1.26.15", "v1.26": "v1.26.15", "1.26.15": "v1.26.15", "v1.37.2": "v1.37.2",
	} {
		got, err := cluster.ParseVersion(text)
		if err != nil || got.String() != want {
			t.Errorf("ParseVersion(%q) = %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseVersionSaysWhatThereIs(t *testing.T) {
	for _, text := range []string{"", "1.2", "1.25", "1.26.1", "latest", "vv1.26"} {
		_, err := cluster.ParseVersion(text)
		if err == nil || !strings.Contains(err.Error(), "1.26.15, 1.27.16") || strings.Contains(err.Error(), "\n") {
			t.Errorf("ParseVersion(%q): error %v does not list the releases on one line", text, err)
		}
	}
}

func TestVersionsCoverEveryMinor(t *testing.T) {
	minor := 26
	for _, v := range cluster.Versions() {
		if v.Minor != minor {
			t.Fatalf("found 1.%d, want 1.%d", v.Minor, minor)
		}
		minor++
	}
	if minor != 38 {
		t.Errorf("the table ends before 1.%d", minor)
	}
}
