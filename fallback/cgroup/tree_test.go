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

const (
	pod     = "/kubepods/burstable/pod1"
	noLimit = "9223372036854771712" // how a v1 kernel with 4 KiB pages says it
)

// files is a fake tree: content by path below the root.
type files map[string]string

func (f files) write(t *testing.T, root string) {
	t.Helper()
	for name, content := range f {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// v1 and v2 are the trees of one pod with 102 shares, 20 ms of every 100 ms and
// 64 MiB.
func v1() files {
	return files{
		"cpu" + pod + "/cpu.shares":               "102\n",
		"cpu" + pod + "/cpu.cfs_quota_us":         "20000\n",
		"cpu" + pod + "/cpu.cfs_period_us":        "100000\n",
		"memory" + pod + "/memory.limit_in_bytes": "67108864\n",
		"memory" + pod + "/memory.usage_in_bytes": "30000000\n",
		"memory" + pod + "/memory.stat":           "cache 9000000\ninactive_file 1\ntotal_inactive_file 8000000\n",
		"unified/cgroup.controllers":              "\n",
		"memory" + pod + "/" + memsw:              noLimit + "\n",
	}
}

func v2() files {
	return files{
		"cgroup.controllers":          "cpuset cpu io memory pids\n",
		"." + pod + "/cpu.weight":     "4\n",
		"." + pod + "/cpu.max":        "20000 100000\n",
		"." + pod + "/memory.max":     "67108864\n",
		"." + pod + "/memory.current": "30000000\n",
		"." + pod + "/memory.stat":    "anon 1\nfile 9000000\ninactive_file 8000000\n",
	}
}

const memsw = "memory.memsw.limit_in_bytes"

// with returns the files, some of them changed; "" removes one.
func (f files) with(changes files) files {
	for name, content := range changes {
		f[name] = content
		if content == "" {
			delete(f, name)
		}
	}
	return f
}

func open(t *testing.T, f files) (*cgroup.Tree, string) {
	t.Helper()
	root := t.TempDir()
	f.write(t, root)
	tree, err := cgroup.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return tree, root
}

func content(t *testing.T, root, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		files   files
		unified bool
	}{
		"v2":               {v2(), true},
		"v1":               {files{"cpu/x": "", "memory/x": ""}, false},
		"hybrid":           {v1(), false},
		"joint mount":      {files{"cpu,cpuacct/x": "", "memory/x": ""}, false},
		"other joint name": {files{"cpuacct,cpu/x": "", "memory/x": ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if tree, _ := open(t, tc.files); tree.Unified() != tc.unified {
				t.Errorf("Unified() = %t, want %t", tree.Unified(), tc.unified)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		files files
		say   string
	}{
		"empty":                    {files{}, "neither cgroup v2"},
		"v1 without cpu":           {files{"memory/x": ""}, "directory cpu"},
		"v1 without memory":        {files{"cpu/x": ""}, "directory memory"},
		"cpu is a file":            {files{"cpu": "", "memory/x": ""}, "directory cpu"},
		"systemd's tree of hybrid": {files{"cgroup.controllers": "\n"}, "without the cpu controller"},
		"v2 without memory":        {files{"cgroup.controllers": "cpuset cpu\n"}, "without the memory controller"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			tc.files.write(t, root)
			_, err := cgroup.Open(root)
			if err == nil || !strings.Contains(err.Error(), tc.say) || !strings.Contains(err.Error(), root) {
				t.Errorf("got %v, want an error that names %s and says %q", err, root, tc.say)
			}
		})
	}
}

func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		files files
		want  cgroup.Values
	}{
		"v1": {v1(), cgroup.Values{Shares: 102, Quota: 20000, Period: 100000, Memory: 64 << 20}},
		"v1 without limits": {
			v1().with(files{"cpu" + pod + "/cpu.cfs_quota_us": "-1\n", "memory" + pod + "/memory.limit_in_bytes": noLimit + "\n"}),
			cgroup.Values{Shares: 102, Quota: cgroup.NoLimit, Period: 100000, Memory: cgroup.NoLimit},
		},
		"v1 with 64 KiB pages": {
			v1().with(files{"memory" + pod + "/memory.limit_in_bytes": "9223372036854710272\n"}),
			cgroup.Values{Shares: 102, Quota: 20000, Period: 100000, Memory: cgroup.NoLimit},
		},
		"v2": {v2(), cgroup.Values{Weight: 4, Quota: 20000, Period: 100000, Memory: 64 << 20}},
		"v2 without limits": {
			v2().with(files{"." + pod + "/cpu.max": "max 50000\n", "." + pod + "/memory.max": "max\n"}),
			cgroup.Values{Weight: 4, Quota: cgroup.NoLimit, Period: 50000, Memory: cgroup.NoLimit},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, _ := open(t, tc.files)
			got, err := tree.Read(pod)
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestReadFails(t *testing.T) {
	for name, tc := range map[string]struct {
		files    files
		path     string
		notExist bool
	}{
		"v1, no such cgroup":  {v1(), "/kubepods/burstable/pod2", true},
		"v2, no such cgroup":  {v2(), "/kubepods/burstable/pod2", true},
		"v1, half a cgroup":   {v1().with(files{"memory" + pod + "/memory.limit_in_bytes": ""}), pod, true},
		"climbing":            {v1(), "/kubepods/../..", false},
		"the root":            {v2(), "/", false},
		"the root by its dot": {v2(), "/.", false},
		"not a number":        {v1().with(files{"cpu" + pod + "/cpu.shares": "many"}), pod, false},
		"no period":           {v2().with(files{"." + pod + "/cpu.max": "max"}), pod, false},
	} {
		t.Run(name, func(t *testing.T) {
			tree, _ := open(t, tc.files)
			got, err := tree.Read(tc.path)
			if err == nil {
				t.Fatalf("got %+v, want an error", got)
			}
			if errors.Is(err, fs.ErrNotExist) != tc.notExist {
				t.Errorf("%v: fs.ErrNotExist should be %t", err, tc.notExist)
			}
			if !strings.Contains(err.Error(), tc.path) {
				t.Errorf("%q does not name the cgroup", err)
			}
		})
	}
}

func TestMemoryInUse(t *testing.T) {
	for name, tc := range map[string]struct {
		files files
		want  int64
	}{
		"v1":                      {v1(), 22000000},
		"v2":                      {v2(), 22000000},
		"v1, nothing but cache":   {v1().with(files{"memory" + pod + "/memory.usage_in_bytes": "7000000"}), 0},
		"v2, stat newer than use": {v2().with(files{"." + pod + "/memory.current": "7999999"}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			tree, _ := open(t, tc.files)
			got, err := tree.MemoryInUse(pod)
			if err != nil || got != tc.want {
				t.Errorf("got %d, %v, want %d", got, err, tc.want)
			}
		})
	}
	t.Run("no such cgroup", func(t *testing.T) {
		tree, _ := open(t, v2())
		if got, err := tree.MemoryInUse("/gone"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %d, %v, want fs.ErrNotExist", got, err)
		}
	})
	t.Run("no such line", func(t *testing.T) {
		tree, _ := open(t, v2().with(files{"." + pod + "/memory.stat": "anon 1\n"}))
		if got, err := tree.MemoryInUse(pod); err == nil || !strings.Contains(err.Error(), "inactive_file") {
			t.Errorf("got %d, %v, want an error that names the line", got, err)
		}
	})
}

func TestSwapAllowance(t *testing.T) {
	for name, tc := range map[string]struct {
		files     files
		allowance int64
		accounted bool
	}{
		"v1, limited like memory": {v1().with(files{"memory" + pod + "/" + memsw: "67108864\n"}), 0, true},
		"v1, more":                {v1().with(files{"memory" + pod + "/" + memsw: "67112960\n"}), 4096, true},
		"v1, unlimited":           {v1(), cgroup.NoLimit, true},
		"v1 without":              {v1().with(files{"memory" + pod + "/" + memsw: ""}), 0, false},
		"v2":                      {v2().with(files{"." + pod + "/memory.swap.max": "4096\n"}), 4096, true},
		"v2, unlimited":           {v2().with(files{"." + pod + "/memory.swap.max": "max\n"}), cgroup.NoLimit, true},
		"v2 without":              {v2(), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			tree, _ := open(t, tc.files)
			allowance, accounted, err := tree.SwapAllowance(pod)
			if err != nil || allowance != tc.allowance || accounted != tc.accounted {
				t.Errorf("got %d, %t, %v, want %d, %t", allowance, accounted, err, tc.allowance, tc.accounted)
			}
		})
	}
}

func TestReclaim(t *testing.T) {
	tree, root := open(t, v2().with(files{"." + pod + "/memory.reclaim": "\n"}))
	if err := tree.Reclaim(pod, 4096); err != nil || content(t, root, "."+pod+"/memory.reclaim") != "4096" {
		t.Errorf("wrote %q, %v", content(t, root, "."+pod+"/memory.reclaim"), err)
	}
	for name, fake := range map[string]files{"v1": v1(), "an old kernel": v2()} {
		tree, _ := open(t, fake)
		if err := tree.Reclaim(pod, 4096); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPopulated(t *testing.T) {
	for name, tc := range map[string]struct {
		files files
		want  bool
	}{
		"v1":       {v1().with(files{"memory" + pod + "/memory.usage_in_bytes": "4096\n"}), true},
		"v1 empty": {v1().with(files{"memory" + pod + "/memory.usage_in_bytes": "0\n"}), false},
		"v2":       {v2().with(files{"." + pod + "/cgroup.events": "populated 1\nfrozen 0\n"}), true},
		"v2 empty": {v2().with(files{"." + pod + "/cgroup.events": "populated 0\nfrozen 0\n"}), false},
	} {
		t.Run(name, func(t *testing.T) {
			tree, _ := open(t, tc.files)
			if got, err := tree.Populated(pod); err != nil || got != tc.want {
				t.Errorf("got %t, %v, want %t", got, err, tc.want)
			}
		})
	}
}

func TestMemoryHolds(t *testing.T) {
	page := int64(os.Getpagesize())
	for _, tc := range []struct {
		want, held int64
		holds      bool
	}{
		{64 << 20, 64 << 20, true},
		{10*page + 1, 10 * page, true},
		{10*page - 1, 9 * page, true},
		{10*page - 1, 10 * page, false},
		{10 * page, 9 * page, false},
		{cgroup.NoLimit, cgroup.NoLimit, true},
		{cgroup.NoLimit, 0, false},
		{64 << 20, cgroup.NoLimit, false},
	} {
		if got := cgroup.MemoryHolds(tc.want, tc.held); got != tc.holds {
			t.Errorf("MemoryHolds(%d, %d) = %t, want %t", tc.want, tc.held, got, tc.holds)
		}
	}
}
