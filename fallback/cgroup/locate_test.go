package cgroup_test

import (
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
