package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// NoLimit is the quota or memory of a cgroup without a limit of its own.
const NoLimit = -1

// Values is what the kernel holds for one cgroup.
type Values struct {
	// Shares is cpu.shares, on v1 only.
	Shares uint64
	// Weight is cpu.weight, on v2 only. WeightHolds compares it with shares.
	Weight uint64
	// Quota is the CFS quota in microseconds per period, or NoLimit.
	Quota int64
	// Period is the CFS period in microseconds.
	Period int64
	// Memory is the limit in bytes, or NoLimit. The kernel holds whole pages:
	// MemoryHolds compares it with what was asked for.
	Memory int64
}

// Read returns what the kernel holds for the cgroup at path. The error is
// fs.ErrNotExist when there is no such cgroup.
func (t *Tree) Read(path string) (Values, error) {
	values, err := t.readCPU(path)
	if err == nil {
		values.Memory, err = t.readMemory(path)
	}
	if err != nil {
		return Values{}, fmt.Errorf("reading cgroup %q: %w", path, err)
	}
	return values, nil
}

func (t *Tree) readCPU(path string) (values Values, err error) {
	weight, err := t.readWeight(path)
	if err != nil {
		return Values{}, err
	}
	if t.unified {
		values.Weight = weight
	} else {
		values.Shares = weight
	}
	values.Quota, values.Period, err = t.readQuota(path)
	return values, err
}

func (t *Tree) readWeight(path string) (uint64, error) {
	f, err := t.cpuFile(path, t.weightName())
	if err != nil {
		return 0, err
	}
	weight, err := f.readInt()
	return uint64(weight), err //nolint:gosec // the kernel knows no negative weight
}

func (t *Tree) weightName() string {
	if t.unified {
		return "cpu.weight"
	}
	return "cpu.shares"
}

func (t *Tree) readQuota(path string) (quota, period int64, err error) {
	if t.unified {
		return t.readQuotaV2(path)
	}
	quotaFile, periodFile, err := t.quotaFilesV1(path)
	if err != nil {
		return 0, 0, err
	}
	if quota, err = quotaFile.readInt(); err != nil {
		return 0, 0, err
	}
	period, err = periodFile.readInt()
	return quota, period, err
}

func (t *Tree) quotaFilesV1(path string) (quota, period file, err error) {
	quota, err = t.cpuFile(path, "cpu.cfs_quota_us")
	return quota, file{dir: quota.dir, name: "cpu.cfs_period_us"}, err
}

func (t *Tree) readQuotaV2(path string) (quota, period int64, err error) {
	f, err := t.cpuFile(path, "cpu.max")
	if err != nil {
		return 0, 0, err
	}
	text, err := f.read()
	if err != nil {
		return 0, 0, err
	}
	quotaText, periodText, _ := strings.Cut(text, " ")
	if quota, err = f.parse(quotaText); err != nil {
		return 0, 0, err
	}
	period, err = f.parse(periodText)
	return quota, period, err
}

func (t *Tree) readMemory(path string) (int64, error) {
	f, err := t.memoryFile(path, t.memoryName())
	if err != nil {
		return 0, err
	}
	return f.readInt()
}

func (t *Tree) memoryName() string {
	if t.unified {
		return "memory.max"
	}
	return "memory.limit_in_bytes"
}

// MemoryInUse returns the bytes that the cgroup at path and those below it use
// and that the kernel cannot simply drop: usage without the inactive part of
// the page cache, which is what the kubelet calls the working set.
func (t *Tree) MemoryInUse(path string) (int64, error) {
	used, err := t.memoryInUse(path)
	if err != nil {
		return 0, fmt.Errorf("reading memory in use of cgroup %q: %w", path, err)
	}
	return used, nil
}

func (t *Tree) memoryInUse(path string) (int64, error) {
	usageName, inactiveKey := "memory.usage_in_bytes", "total_inactive_file"
	if t.unified {
		usageName, inactiveKey = "memory.current", "inactive_file"
	}
	usage, err := t.memoryFile(path, usageName)
	if err != nil {
		return 0, err
	}
	used, err := usage.readInt()
	if err != nil {
		return 0, err
	}
	inactive, err := file{dir: usage.dir, name: "memory.stat"}.readKey(inactiveKey)
	return max(0, used-inactive), err
}

// readKey returns one value of a file of "key value" lines.
func (f file) readKey(key string) (int64, error) {
	text, err := f.read()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == key {
			return f.parse(value)
		}
	}
	return 0, fmt.Errorf("reading %s: no line %q", f.path(), key)
}

// SwapAllowance returns the bytes of swap that the cgroup at path may use above
// its memory limit, or NoLimit. It reports false where the kernel does not
// count swap for cgroups: there a runtime must not be sent a swap limit, on
// cgroup v1 runc would fail on the missing file.
func (t *Tree) SwapAllowance(path string) (allowance int64, accounted bool, err error) {
	name := memswName
	if t.unified {
		name = "memory.swap.max"
	}
	f, err := t.memoryFile(path, name)
	if err != nil {
		return 0, false, err
	}
	if accounted, err = f.exists(); err != nil || !accounted {
		return 0, false, err
	}
	allowance, err = f.readInt()
	if err != nil || t.unified || allowance == NoLimit {
		return allowance, true, err
	}
	memory, err := t.readMemory(path) // v1 limits the sum of both
	return allowance - memory, true, err
}

// Populated reports whether the cgroup at path, or one below it, has processes
// of its own. On v1 cgroup.procs does not tell: it leaves out what the pid
// namespace of the reader does not have. No process is without memory.
func (t *Tree) Populated(path string) (bool, error) {
	populated, err := t.populated(path)
	if err != nil {
		return false, fmt.Errorf("reading whether cgroup %q has processes: %w", path, err)
	}
	return populated > 0, nil
}

func (t *Tree) populated(path string) (int64, error) {
	if t.unified {
		f, err := t.memoryFile(path, "cgroup.events")
		if err != nil {
			return 0, err
		}
		return f.readKey("populated")
	}
	f, err := t.memoryFile(path, "memory.usage_in_bytes")
	if err != nil {
		return 0, err
	}
	return f.readInt()
}

// Children are the names of the cgroups directly in the one at path.
func (t *Tree) Children(path string) ([]string, error) {
	f, err := t.cpuFile(path, "")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the cgroups in %q: %w", path, gone(err))
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (f file) exists() (bool, error) {
	_, err := os.Stat(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// MemoryHolds reports whether held is what the kernel makes of a limit of want
// bytes: it rounds down to whole pages.
func MemoryHolds(want, held int64) bool {
	page := int64(os.Getpagesize())
	return want == held || want > 0 && want/page*page == held
}
