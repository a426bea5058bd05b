package cluster

import (
	"slices"
	"testing"
)

func TestSnapshotSince(t *testing.T) {
	earlier := Snapshot{traces: map[string]trace{
		"mount /a": {}, "sysctl x": {"0", everyOne}, "link gone": {},
	}}
	now := Snapshot{traces: map[string]trace{
		"mount /a": {}, "sysctl x": {"1", everyOne}, "link new": {}, "process 1": {"kubelet", "mine"}, "process 2": {"kubelet", "other"},
	}}
	got := now.Since(earlier)
	want := []string{"changed sysctl x from 0 to 1", "new link new ", "new process 1 kubelet", "new process 2 kubelet"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	now.living = map[string]bool{"other": true, everyOne: true}
	got = now.Since(earlier)
	want = []string{"new link new ", "new process 1 kubelet"}
	if !slices.Equal(got, want) {
		t.Errorf("while another cluster lives: got %q, want %q", got, want)
	}
}

func TestOwners(t *testing.T) {
	for text, want := range map[string]string{
		"/sys/fs/cgroup/cpu/podresize":             everyOne,
		"/sys/fs/cgroup/cpu/podresize/a/n1":        "a",
		"9:cpu:/x\n8:pids:/podresize/a/system\n0:": "a",
		"8:pids:/podresize/a\n0::/":                "a",
		"/sys/fs/cgroup/cpu/other":                 "",
	} {
		if got := cgroupOwner(text); got != want {
			t.Errorf("cgroup %q belongs to %q, want %q", text, got, want)
		}
	}
	for path, want := range map[string]string{
		StateDir: everyOne, hostPath(): everyOne, clusterDir("a"): "a", "/run/podresize-a.lock": everyOne, "/var/lib/kubelet": everyOne, "/var/lib/x": "",
	} {
		if got := fileOwner(path); got != want {
			t.Errorf("file %q belongs to %q, want %q", path, got, want)
		}
	}
}
