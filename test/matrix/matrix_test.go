package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podresize/podresize/test/cluster"
	"github.com/podresize/podresize/test/setting"
)

// TestRead: only tests at the ends of branches count, and what was skipped or did not end has failed.
func TestRead(t *testing.T) {
	for _, tc := range []struct {
		name, events string
		exit, tests  int
		verdict      string
	}{
		{"all passed", "run A,run A/x,run A/x/y,run A/x/z,pass A/x/y,pass A/x/z,pass A/x,pass A,run B,pass B", 0, 2, "passed"},
		{"nothing ran", "run B,pass B", 0, 0, "**failed**"},
		{"one failed", "run A,run A/x,run A/x/y,run A/x/z,pass A/x/y,fail A/x/z,fail A/x,fail A", 1, 2, "**failed**: z"},
		{"skipped", "run A,run A/x,skip A/x,pass A", 0, 1, "**failed**: x"},
		{"did not end", "run A,run A/x,run A/x/y", 1, 1, "**failed**: y"},
		{"did not build", "", 1, 0, "**failed**"},
		{"many", "run A/a,fail A/a,run A/b,fail A/b,run A/c,fail A/c,run A/d,fail A/d,fail A", 1, 4, "**failed**: a, b, c and 1 more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var events strings.Builder
			for line := range strings.SplitSeq(tc.events, ",") {
				if action, test, ok := strings.Cut(line, " "); ok {
					events.WriteString(`{"Action":"` + action + `","Test":"` + test + `"}` + "\n" + `{"Action":"output","Test":"` + test + `","Output":"says\n"}` + "\n")
				}
			}
			var log strings.Builder
			r, err := read(strings.NewReader(events.String()), &log)
			if err != nil {
				t.Fatal(err)
			}
			r.exit = tc.exit
			if r.tests != tc.tests || r.verdict() != tc.verdict {
				t.Errorf("%d tests, %s", r.tests, r.verdict())
			}
			if got, want := strings.Count(log.String(), "says\n"), strings.Count(events.String(), "says"); got != want {
				t.Errorf("%d of %d lines logged", got, want)
			}
		})
	}
}

// TestWriteRow: other rows stay, in the order of the settings.
func TestWriteRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "matrix.md")
	if err := os.WriteFile(path, []byte("# Title\n"+beginMark+endMark+"end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1.31:on", "mixed:nodes", "1.26", "1.31:on", "1.32+containerd2:off"} {
		s, err := setting.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeRow(path, s, result{tests: 7, took: time.Minute, commit: "c0ffee", date: "2025-06-01"}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n" + beginMark + "\n" + head +
		"| 1.26 | v1.26.15 | v1.26.15 | CRI | passed | 7 | 1m0s | c0ffee | 2025-06-01 |\n" +
		"| 1.31:on | v1.31.14, gate on | v1.31.14, gate on | InPlace | passed | 7 | 1m0s | c0ffee | 2025-06-01 |\n" +
		"| 1.32+containerd2:off | v1.32.13, gate off | v1.32.13, gate off, containerd " + cluster.Containerd2Version + " | CRI | passed | 7 | 1m0s | c0ffee | 2025-06-01 |\n" +
		"| mixed:nodes | v1.33.13 | v1.31.14, gate off; v1.31.14, gate on; v1.33.13 | CRI; InPlace; InPlace | passed | 7 | 1m0s | c0ffee | 2025-06-01 |\n" +
		"\n" + endMark + "end\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(path, []byte("# Title\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTable(path); err == nil {
		t.Error("no error for a file without a place for the table")
	}
}
