package cgroup_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podresize/podresize/fallback/cgroup"
)

func TestSet(t *testing.T) {
	const cpu, mem, uni = "cpu" + pod + "/", "memory" + pod + "/", "." + pod + "/"
	limited := files{mem + memsw: "67108864\n"}
	setShares := func(shares uint64) func(*cgroup.Tree) error {
		return func(t *cgroup.Tree) error { return t.SetShares(pod, shares) }
	}
	setQuota := func(quota, period int64) func(*cgroup.Tree) error {
		return func(t *cgroup.Tree) error { return t.SetQuota(pod, quota, period) }
	}
	setMemory := func(limit int64) func(*cgroup.Tree) error {
		return func(t *cgroup.Tree) error { return t.SetMemory(pod, limit) }
	}
	for name, tc := range map[string]struct {
		files files
		set   func(*cgroup.Tree) error
		want  files
	}{
		"v1 shares":             {v1(), setShares(512), files{cpu + "cpu.shares": "512"}},
		"v2 shares":             {v2(), setShares(1024), files{uni + "cpu.weight": "39"}},
		"v1 quota":              {v1(), setQuota(60000, 100000), files{cpu + "cpu.cfs_quota_us": "60000", cpu + "cpu.cfs_period_us": "100000"}},
		"v1 quota and period":   {v1(), setQuota(5000, 10000), files{cpu + "cpu.cfs_quota_us": "5000", cpu + "cpu.cfs_period_us": "10000"}},
		"v1 no quota":           {v1(), setQuota(-1, 100000), files{cpu + "cpu.cfs_quota_us": "-1"}},
		"v1 no quota, period":   {v1(), setQuota(-1, 50000), files{cpu + "cpu.cfs_quota_us": "-1", cpu + "cpu.cfs_period_us": "50000"}},
		"v2 quota":              {v2(), setQuota(60000, 50000), files{uni + "cpu.max": "60000 50000"}},
		"v2 no quota":           {v2(), setQuota(-1, 100000), files{uni + "cpu.max": "max 100000"}},
		"v1 memory":             {v1(), setMemory(128 << 20), files{mem + "memory.limit_in_bytes": "134217728", mem + memsw: noLimit}},
		"v1 memory, with swap":  {v1().with(limited), setMemory(128 << 20), files{mem + "memory.limit_in_bytes": "134217728", mem + memsw: "134217728"}},
		"v1 lower, with swap":   {v1().with(limited), setMemory(32 << 20), files{mem + "memory.limit_in_bytes": "33554432", mem + memsw: "33554432"}},
		"v1 no limit":           {v1().with(limited), setMemory(-1), files{mem + "memory.limit_in_bytes": "-1", mem + memsw: "-1"}},
		"v1 memory, no account": {v1().with(files{mem + memsw: ""}), setMemory(128 << 20), files{mem + "memory.limit_in_bytes": "134217728"}},
		"v2 memory":             {v2(), setMemory(128 << 20), files{uni + "memory.max": "134217728"}},
		"v2 no limit":           {v2(), setMemory(-1), files{uni + "memory.max": "max"}},
	} {
		t.Run(name, func(t *testing.T) {
			tree, root := open(t, tc.files)
			if err := tc.set(tree); err != nil {
				t.Fatal(err)
			}
			for file, want := range tc.want {
				if got := content(t, root, file); got != want {
					t.Errorf("%s holds %q, want %q", file, got, want)
				}
			}
			if _, err := os.Stat(filepath.Join(root, mem+memsw)); tc.files[mem+memsw] == "" && err == nil {
				t.Error("a file was made")
			}
		})
	}
}

// A file that was written would have lost its newline.
func TestSetWritesNothingThatHolds(t *testing.T) {
	for name, fake := range map[string]files{
		"v1": v1(),
		"v2": v2(),
	} {
		t.Run(name, func(t *testing.T) {
			tree, root := open(t, fake)
			err := errors.Join(tree.SetShares(pod, 102), tree.SetQuota(pod, 20000, 100000), tree.SetMemory(pod, 64<<20+1))
			if err != nil {
				t.Fatal(err)
			}
			for file, want := range fake {
				got, err := os.ReadFile(filepath.Join(root, file))
				if err != nil || string(got) != want {
					t.Errorf("%s holds %q, %v, want %q untouched", file, got, err, want)
				}
			}
		})
	}
}

func TestSetRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		set func(*cgroup.Tree) error
		say string
	}{
		"no shares":       {func(t *cgroup.Tree) error { return t.SetShares(pod, 1) }, "setting shares"},
		"too many shares": {func(t *cgroup.Tree) error { return t.SetShares(pod, 262145) }, "setting shares"},
		"no quota":        {func(t *cgroup.Tree) error { return t.SetQuota(pod, 0, 100000) }, "quota 0"},
		"negative quota":  {func(t *cgroup.Tree) error { return t.SetQuota(pod, -2, 100000) }, "quota -2"},
		"no memory":       {func(t *cgroup.Tree) error { return t.SetMemory(pod, 0) }, "memory limit 0"},
		"negative memory": {func(t *cgroup.Tree) error { return t.SetMemory(pod, -64) }, "memory limit -64"},
		"climbing":        {func(t *cgroup.Tree) error { return t.SetMemory("/kubepods/../..", 1<<20) }, "invalid cgroup path"},
	} {
		t.Run(name, func(t *testing.T) {
			tree, root := open(t, v1())
			err := tc.set(tree)
			if err == nil || !strings.Contains(err.Error(), tc.say) {
				t.Errorf("got %v, want an error that says %q", err, tc.say)
			}
			for file, want := range v1() {
				if got := content(t, root, file); got != strings.TrimSpace(want) {
					t.Errorf("%s holds %q, want %q", file, got, want)
				}
			}
		})
	}
}

func TestSetOnMissingCgroup(t *testing.T) {
	for name, fake := range map[string]files{"v1": v1(), "v2": v2()} {
		t.Run(name, func(t *testing.T) {
			tree, root := open(t, fake)
			for what, err := range map[string]error{
				"shares": tree.SetShares("/gone", 102),
				"quota":  tree.SetQuota("/gone", 20000, 100000),
				"memory": tree.SetMemory("/gone", 64<<20),
			} {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: got %v, want fs.ErrNotExist", what, err)
				}
			}
			if _, err := os.Stat(filepath.Join(root, "gone")); err == nil {
				t.Error("the cgroup was made")
			}
		})
	}
}
