//go:build e2e

package cgroup_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/podresize/podresize/fallback/cgroup"
)

const (
	kernelRoot = "/sys/fs/cgroup"
	hogEnv     = "PODRESIZE_TEST_HOG_BYTES"
)

// kernelPod makes a cgroup for a pod with one for a container in it on the real
// cgroup v1 of this machine, and removes them after the test.
func kernelPod(t *testing.T) (tree *cgroup.Tree, pod, container string) {
	t.Helper()
	tree, err := cgroup.Open(kernelRoot)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Unified() {
		t.Skip("these are the rules of cgroup v1, and this kernel runs v2")
	}
	pod = fmt.Sprintf("/podresize-test-%d/pod1", os.Getpid())
	container = pod + "/c1"
	for _, controller := range []string{"cpu", "memory"} {
		for _, path := range []string{filepath.Dir(pod), pod, container} {
			dir := filepath.Join(kernelRoot, controller, path)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("removing %s: %v", dir, err)
				}
			})
		}
	}
	return tree, pod, container
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustFail(t *testing.T, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func wantQuota(t *testing.T, tree *cgroup.Tree, path string, quota, period int64) {
	t.Helper()
	got, err := tree.Read(path)
	must(t, err)
	if got.Quota != quota || got.Period != period {
		t.Fatalf("%s holds %d/%d, want %d/%d", path, got.Quota, got.Period, quota, period)
	}
}

// raw writes a file past the package under test.
func raw(controller, path, name, value string) error {
	return os.WriteFile(filepath.Join(kernelRoot, controller, path, name), []byte(value), 0o600)
}

func TestKernelNewCgroup(t *testing.T) {
	tree, pod, _ := kernelPod(t)
	got, err := tree.Read(pod)
	must(t, err)
	want := cgroup.Values{Shares: 1024, Quota: cgroup.NoLimit, Period: 100000, Memory: cgroup.NoLimit}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestKernelShares(t *testing.T) {
	tree, pod, _ := kernelPod(t)
	for _, shares := range []uint64{2, 102, 262144} {
		must(t, tree.SetShares(pod, shares))
		got, err := tree.Read(pod)
		must(t, err)
		if got.Shares != shares {
			t.Errorf("holds %d, want %d", got.Shares, shares)
		}
	}
}

// The kernel refuses a child above its parent, from both sides, so parents go up
// first and down last.
func TestKernelQuotaOrder(t *testing.T) {
	tree, pod, container := kernelPod(t)
	must(t, tree.SetQuota(pod, 20000, 100000))
	must(t, tree.SetQuota(container, 20000, 100000))

	mustFail(t, tree.SetQuota(container, 50000, 100000), syscall.EINVAL)
	wantQuota(t, tree, container, 20000, 100000)
	mustFail(t, tree.SetQuota(pod, 10000, 100000), syscall.EINVAL)
	wantQuota(t, tree, pod, 20000, 100000)

	must(t, tree.SetQuota(pod, 50000, 100000))
	must(t, tree.SetQuota(container, 50000, 100000))
	must(t, tree.SetQuota(container, 10000, 100000))
	must(t, tree.SetQuota(pod, 10000, 100000))
	must(t, tree.SetQuota(pod, cgroup.NoLimit, 100000))
	must(t, tree.SetQuota(container, 400000, 100000))
	wantQuota(t, tree, pod, cgroup.NoLimit, 100000)
	wantQuota(t, tree, container, 400000, 100000)
}

// With the pod, its parent and its container all at the same ratio there is no
// order of the two files that the kernel takes: the case the way through no
// limit is for.
func TestKernelQuotaWithPeriod(t *testing.T) {
	tree, pod, container := kernelPod(t)
	for _, path := range []string{filepath.Dir(pod), pod, container} {
		must(t, tree.SetQuota(path, 20000, 100000))
	}
	for name, value := range map[string]string{
		"cpu.cfs_period_us": "50000", "cpu.cfs_quota_us": "10000",
	} {
		mustFail(t, raw("cpu", pod, name, value), syscall.EINVAL)
	}
	for _, want := range []struct{ quota, period int64 }{{10000, 50000}, {40000, 200000}, {20000, 100000}} {
		must(t, tree.SetQuota(pod, want.quota, want.period))
		wantQuota(t, tree, pod, want.quota, want.period)
	}
}

func TestKernelRefusedPeriodLeavesQuota(t *testing.T) {
	tree, pod, container := kernelPod(t)
	must(t, tree.SetQuota(pod, 20000, 100000))
	must(t, tree.SetQuota(container, 10000, 100000))
	for name, want := range map[string]struct{ quota, period int64 }{
		"above the pod":      {60000, 200000},
		"period too long":    {20000, 1000001},
		"period too short":   {1000, 999},
		"quota too short":    {999, 50000},
		"quota beyond sense": {1 << 60, 50000},
	} {
		if err := tree.SetQuota(container, want.quota, want.period); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: got %v, want EINVAL", name, err)
		}
		wantQuota(t, tree, container, 10000, 100000)
	}
}

func TestKernelMemory(t *testing.T) {
	tree, pod, _ := kernelPod(t)
	_, accounts, err := tree.SwapAllowance(pod)
	must(t, err)
	if !accounts {
		t.Skip("this kernel does not account swap")
	}
	for _, withSwap := range []bool{false, true} {
		must(t, tree.SetMemory(pod, 64<<20))
		if withSwap {
			must(t, raw("memory", pod, memsw, "64M"))
		}
		for _, limit := range []int64{128 << 20, 32 << 20, 32<<20 + 1, 200<<20 - 1, cgroup.NoLimit, 64 << 20} {
			must(t, tree.SetMemory(pod, limit))
			got, err := tree.Read(pod)
			must(t, err)
			if !cgroup.MemoryHolds(limit, got.Memory) {
				t.Errorf("holds %d, want %d", got.Memory, limit)
			}
			wantSwap(t, pod, got.Memory, withSwap && limit != cgroup.NoLimit)
			if limit == cgroup.NoLimit && withSwap {
				withSwap = false // there is no limit to keep in step any more
			}
		}
	}
}

// wantSwap checks that the limit on memory plus swap is the memory limit, or
// that there is none.
func wantSwap(t *testing.T, pod string, memory int64, limited bool) {
	t.Helper()
	want := noLimit
	if limited {
		want = strconv.FormatInt(memory, 10)
	}
	if got := content(t, filepath.Join(kernelRoot, "memory"+pod), memsw); got != want {
		t.Errorf("memory plus swap is limited to %s, want %s", got, want)
	}
}

// A process that holds 48 MiB counts as memory in use, and the kernel refuses a
// limit below that.
func TestKernelMemoryInUse(t *testing.T) {
	const held = 48 << 20
	tree, pod, container := kernelPod(t)
	must(t, tree.SetMemory(pod, 256<<20))
	must(t, tree.SetMemory(container, 256<<20))
	hog(t, container, held)
	for _, path := range []string{pod, container} {
		used, err := tree.MemoryInUse(path)
		must(t, err)
		if used < held || used > 4*held { // the race detector holds as much again
			t.Errorf("%s uses %d, want %d or a little more", path, used, held)
		}
		mustFail(t, tree.SetMemory(path, 16<<20), syscall.EBUSY)
		got, err := tree.Read(path)
		must(t, err)
		if got.Memory != 256<<20 {
			t.Errorf("%s holds %d after a refusal", path, got.Memory)
		}
	}
}

// hog runs a process in the cgroup that holds so many bytes until the test ends.
func hog(t *testing.T, path string, bytes int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), hogEnv+"="+strconv.Itoa(bytes))
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	must(t, raw("memory", path, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)))
	_, err = in.Write([]byte("go\n"))
	must(t, err)
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "held" {
		t.Fatalf("the process said %q, %v", line, err)
	}
}

// TestMain lets this binary be the process that hog starts.
func TestMain(m *testing.M) {
	if size, err := strconv.Atoi(os.Getenv(hogEnv)); err == nil {
		hold(size)
		return
	}
	m.Run()
}

// hold waits for a line, which comes when it is in its cgroup, then holds memory
// until its input ends.
func hold(size int) {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return
	}
	held := make([]byte, size)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	fmt.Println("held")
	_, _ = in.ReadString('\n')
	runtime.KeepAlive(held)
}

func TestKernelRemovedCgroup(t *testing.T) {
	tree, _, container := kernelPod(t)
	for _, controller := range []string{"cpu", "memory"} {
		must(t, syscall.Rmdir(filepath.Join(kernelRoot, controller, container)))
	}
	_, err := tree.Read(container)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading: got %v, want fs.ErrNotExist", err)
	}
	if err := tree.SetMemory(container, 1<<20); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("writing: got %v, want fs.ErrNotExist", err)
	}
}

// A cgroup may go between the opening of its file and the reading of it, for
// which the kernel has an errno of its own.
func TestKernelCgroupRemovedWhileRead(t *testing.T) {
	tree, _, container := kernelPod(t)
	dir := filepath.Join(kernelRoot, "memory", container)
	removed := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 3000 && err == nil; i++ {
			err = errors.Join(syscall.Rmdir(dir), os.Mkdir(dir, 0o755))
		}
		removed <- err
	}()
	for {
		if _, err := tree.Read(container); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want fs.ErrNotExist", err)
		}
		select {
		case err := <-removed:
			must(t, err)
			return
		default:
		}
	}
}
