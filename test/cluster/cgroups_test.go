package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

const hybridMounts = `tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,xattr,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
`

func TestController(t *testing.T) {
	hybrid := parseHierarchies(hybridMounts)
	unified := parseHierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
	for _, test := range []struct {
		all        []hierarchy
		name, want string
		v2         bool
	}{
		{hybrid, "cpu", "/sys/fs/cgroup/cpu,cpuacct", false},
		{hybrid, "memory", "/sys/fs/cgroup/memory", false},
		{hybrid, "pids", "/sys/fs/cgroup/unified", true},
		{unified, "cpu", "/sys/fs/cgroup", true},
	} {
		got, err := controller(test.all, test.name)
		if err != nil || got.mount != test.want || got.v2 != test.v2 {
			t.Errorf("%s: got %+v, %v, want %s", test.name, got, err, test.want)
		}
	}
	if _, err := controller(nil, "cpu"); err == nil {
		t.Error("found a controller where nothing is mounted")
	}
}

func TestReadCgroup(t *testing.T) {
	dir := t.TempDir()
	for file, content := range map[string]string{
		"cpu.shares": "102\n", "cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n", "memory.limit_in_bytes": "9223372036854771712\n",
		"cpu.weight": "4\n", "cpu.max": "20000 100000\n", "memory.max": "max\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readCgroupV1("/p", dir, dir)
	want := Cgroup{Path: "/p", CPUShares: 102, CPUQuota: -1, CPUPeriod: 100000, MemoryLimit: -1}
	if err != nil || got != want {
		t.Errorf("v1: got %+v, %v, want %+v", got, err, want)
	}
	got, err = readCgroupV2("/p", dir)
	want = Cgroup{Path: "/p", CPUWeight: 4, CPUQuota: 20000, CPUPeriod: 100000, MemoryLimit: -1}
	if err != nil || got != want {
		t.Errorf("v2: got %+v, %v, want %+v", got, err, want)
	}
	if _, err := readCgroupV2("/p", t.TempDir()); err == nil {
		t.Error("read figures where there are none")
	}
}

func TestParseCgroupsPath(t *testing.T) {
	got, err := parseCgroupsPath(map[string]string{"info": `{"pid":1,"runtimeSpec":{"linux":{"cgroupsPath":"/a/b"}}}`})
	if err != nil || got != "/a/b" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, info := range []map[string]string{nil, {"info": "{}"}, {"info": "x"}} {
		if _, err := parseCgroupsPath(info); err == nil {
			t.Errorf("found a path in %v", info)
		}
	}
}

func TestExpandSlice(t *testing.T) {
	for path, want := range map[string]string{
		"/kubepods/burstable/podx/abc":                       "/kubepods/burstable/podx/abc",
		"kubepods.slice:cri:abc":                             "/kubepods.slice/cri-abc.scope",
		"kubepods-burstable-pod1_2.slice:cri-containerd:abc": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope",
	} {
		if got := expandSlice(path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestParseFigures(t *testing.T) {
	var weight, quota, period, memory int64
	err := parseFigures("8\nmax 100000\n134217728\n", &weight, &quota, &period, &memory)
	if err != nil || weight != 8 || quota != -1 || period != 100000 || memory != 134217728 {
		t.Errorf("got %d, %d of %d, %d, %v", weight, quota, period, memory, err)
	}
	for _, bad := range []string{"", "8", "8 x 100000 1", "8 max 100000 1 2"} {
		if parseFigures(bad, &weight, &quota, &period, &memory) == nil {
			t.Errorf("read figures from %q", bad)
		}
	}
}
