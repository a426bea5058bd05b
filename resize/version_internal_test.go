package resize

import "testing"

func TestMinor(t *testing.T) {
	for _, tc := range []struct {
		name, version string
		want          uint
		none          bool
	}{
		{name: "case-1", version: "v1.21.13-eks-84b4fe6", want: 21},
		{name: "case-1 major and minor", version: "1.21+", want: 21},
		{name: "case-1 minor alone", version: "21+", none: true},
		{name: "case-2", version: "v1.25.8-eks-ec5523e", want: 25},
		{name: "case-4", version: "29+", none: true}, // no hint is not version 0
		{name: "case-4 major and minor", version: "1.29+", want: 29},
		{name: "case-6", version: "1.27.9-gke.300", want: 27},
		{name: "case-7", version: "v1.35.3-gke.1389002", want: 35},
		{name: "case-9", version: "v1.25.4-gke.2100", want: 25},
		{name: "case-12", version: "v1.11.7-gke.4", want: 11},
		{name: "case-13 alpha", version: "v1.32.0-alpha.1", want: 32}, // a hint: TestAdapterChoice has discovery decide
		{name: "case-13 rc", version: "v1.32.0-rc.0", want: 32},
		{name: "case-14", version: "v1.32.3+k3s1", want: 32},
		{name: "plain", version: "v1.37.2", want: 37},
		{name: "empty", version: "", none: true},
		{name: "major alone", version: "v1", none: true},
		{name: "another major", version: "v2.3.4", none: true},
		{name: "a runtime's", version: "containerd://2.0.4-k3s2", none: true},
		{name: "words", version: "unknown", none: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := minor(tc.version)
			if got != tc.want || ok == tc.none {
				t.Errorf("minor(%q) = %d, %t; want %d, %t", tc.version, got, ok, tc.want, !tc.none)
			}
		})
	}
}
