package cgroup_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/podresize/podresize/fallback/cgroup"
)

func TestLocate(t *testing.T) {
	const uid, id = "pod0b5e7c0a-8f6e-4a7e-9a39-4d7e0e7b3f11", "4f1c"
	slice := "kubepods-burstable-" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	slicePath := "/kubepods.slice/kubepods-burstable.slice/" + slice
	for name, tc := range map[string]struct {
		cgroupsPath    string
		pod, container string
	}{
		"cgroupfs": {
			"/kubepods/burstable/" + uid + "/" + id,
			"/kubepods/burstable/" + uid, "/kubepods/burstable/" + uid + "/" + id,
		},
		"cgroupfs, guaranteed": {
			"/kubepods/" + uid + "/" + id,
			"/kubepods/" + uid, "/kubepods/" + uid + "/" + id,
		},
		"cgroupfs, own root and CRI-O's prefix": {
			"/node/a/kubepods/besteffort/" + uid + "/crio-" + id,
			"/node/a/kubepods/besteffort/" + uid, "/node/a/kubepods/besteffort/" + uid + "/crio-" + id,
		},
		"systemd, containerd": {
			slice + ":cri-containerd:" + id,
			slicePath, slicePath + "/cri-containerd-" + id + ".scope",
		},
		"systemd, CRI-O": {
			slice + ":crio:" + id,
			slicePath, slicePath + "/crio-" + id + ".scope",
		},
		"systemd, guaranteed": {
			"kubepods-podab_cd.slice:cri-containerd:" + id,
			"/kubepods.slice/kubepods-podab_cd.slice", "/kubepods.slice/kubepods-podab_cd.slice/cri-containerd-" + id + ".scope",
		},
		"systemd, own root": {
			"node-kubepods-podab.slice:crio:" + id,
			"/node.slice/node-kubepods.slice/node-kubepods-podab.slice",
			"/node.slice/node-kubepods.slice/node-kubepods-podab.slice/crio-" + id + ".scope",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cgroup.Locate(tc.cgroupsPath)
			if err != nil {
				t.Fatal(err)
			}
			if want := (cgroup.Paths{Pod: tc.pod, Container: tc.container}); got != want {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestLocateRefuses(t *testing.T) {
	for name, cgroupsPath := range map[string]string{
		"empty":                      "",
		"root":                       "/",
		"relative":                   "kubepods/pod1/c",
		"climbing":                   "/kubepods/pod1/../../c",
		"climbing at the end":        "/kubepods/pod1/..",
		"dot":                        "/kubepods/pod1/./c",
		"double slash":               "/kubepods//pod1/c",
		"trailing slash":             "/kubepods/pod1/c/",
		"parent is a QoS class":      "/kubepods/burstable/c",
		"parent is the root":         "/c",
		"slice of a QoS class":       "kubepods-burstable.slice:cri-containerd:c",
		"default slice":              ":cri-containerd:c",
		"no slice":                   "kubepods-pod1:cri-containerd:c",
		"only the suffix":            ".slice:cri-containerd:c",
		"root slice":                 "-.slice:cri-containerd:c",
		"empty level":                "kubepods--pod1.slice:cri-containerd:c",
		"slash in the slice":         "../kubepods-pod1.slice:cri-containerd:c",
		"slash in the prefix":        "kubepods-pod1.slice:../cri-containerd:c",
		"slash in the name":          "kubepods-pod1.slice:cri-containerd:../../c",
		"no prefix":                  "kubepods-pod1.slice::c",
		"no name":                    "kubepods-pod1.slice:cri-containerd:",
		"two parts":                  "kubepods-pod1.slice:c",
		"four parts":                 "kubepods-pod1.slice:cri-containerd:c:d",
		"slice path instead of name": "/kubepods.slice/kubepods-pod1.slice:cri-containerd:c",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cgroup.Locate(cgroupsPath)
			if err == nil {
				t.Fatalf("got %+v, want an error", got)
			}
			if !strings.Contains(err.Error(), `"`+cgroupsPath+`"`) {
				t.Errorf("%q does not quote the path", err)
			}
		})
	}
}

func TestTops(t *testing.T) {
	for podPath, want := range map[string][]string{
		"/kubepods/burstable/pod1-2":          {"/kubepods", "/kubepods/burstable", "/kubepods/besteffort"},
		"/kubepods/pod1-2":                    {"/kubepods", "/kubepods/burstable", "/kubepods/besteffort"},
		"/bed/n1/kubepods/besteffort/pod1-2":  {"/bed/n1/kubepods", "/bed/n1/kubepods/burstable", "/bed/n1/kubepods/besteffort"},
		"/kubepods.slice/kubepods-pod1.slice": {"/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice", "/kubepods.slice/kubepods-besteffort.slice"},
		"/a.slice/a-kubepods.slice/a-kubepods-burstable.slice/a-kubepods-burstable-pod1.slice": {
			"/a.slice/a-kubepods.slice", "/a.slice/a-kubepods.slice/a-kubepods-burstable.slice", "/a.slice/a-kubepods.slice/a-kubepods-besteffort.slice",
		},
		"/elsewhere/pod1": nil,
		"/":               nil,
	} {
		got, err := cgroup.Tops(podPath)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", podPath, got, err)
		}
	}
}

func TestPodUID(t *testing.T) {
	for podPath, want := range map[string]string{
		"/kubepods/burstable/pod8f14e45f-ceea-467f-ab83-2f3d1a3b1b1e":                                               "8f14e45f-ceea-467f-ab83-2f3d1a3b1b1e",
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8f14e45f_ceea_467f_ab83_2f3d1a3b1b1e.slice": "8f14e45f-ceea-467f-ab83-2f3d1a3b1b1e",
		"/kubepods/podc4ca4238a0b923820dcc509a6f75849b":                                                             "c4ca4238a0b923820dcc509a6f75849b", // a static pod's
		"/kubepods/burstable":                                 "",
		"/kubepods.slice/kubepods-burstable.slice":            "",
		"/kubepods.slice/kubepods-pod1.slice/cri-cafe.scope":  "",
		"/kubepods/burstable/pod8f14e45f/1f40fc92da241694750": "",
	} {
		if got := cgroup.PodUID(podPath); got != want {
			t.Errorf("%q: %q", podPath, got)
		}
	}
}
