package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
)

const memswName = "memory.memsw.limit_in_bytes"

// SetShares gives the cgroup at path its weight against its siblings. On v2
// shares become cpu.weight the way the kubelet does it for a pod, see Weight.
func (t *Tree) SetShares(path string, shares uint64) error {
	if shares < minShares || shares > maxShares {
		return fmt.Errorf("setting shares of cgroup %q: %d is not between %d and %d", path, shares, minShares, maxShares)
	}
	held, err := t.readWeight(path)
	if err != nil {
		return fmt.Errorf("setting shares of cgroup %q: %w", path, err)
	}
	value, holds := shares, held == shares
	if t.unified {
		value, holds = Weight(shares), Weight(shares) == held
	}
	if holds {
		return nil
	}
	f, err := t.cpuFile(path, t.weightName())
	if err == nil {
		err = f.write(strconv.FormatUint(value, 10))
	}
	if err != nil {
		return fmt.Errorf("setting shares of cgroup %q: %w", path, err)
	}
	return nil
}

// SetQuota limits the cgroup at path to quota microseconds of CPU time in every
// period of so many microseconds; a quota of NoLimit ends the limit. On v1 the
// kernel answers EINVAL when that is more than the parent has or less than a
// child has, and nothing is changed then.
func (t *Tree) SetQuota(path string, quota, period int64) error {
	err := checkLimit("quota", quota)
	if err == nil {
		err = t.setQuota(path, quota, period)
	}
	if err != nil {
		return fmt.Errorf("setting quota of cgroup %q: %w", path, err)
	}
	return nil
}

func (t *Tree) setQuota(path string, quota, period int64) error {
	heldQuota, heldPeriod, err := t.readQuota(path)
	if err != nil {
		return err
	}
	if quota == heldQuota && period == heldPeriod {
		return nil
	}
	if t.unified {
		f, err := t.cpuFile(path, "cpu.max")
		if err != nil {
			return err
		}
		return f.write(v2Limit(quota) + " " + strconv.FormatInt(period, 10))
	}
	quotaFile, periodFile, err := t.quotaFilesV1(path)
	if err != nil {
		return err
	}
	return setQuotaV1(quotaFile, periodFile, bandwidth{heldQuota, heldPeriod}, bandwidth{quota, period})
}

type bandwidth struct{ quota, period int64 }

// setQuotaV1 writes two files of which the kernel judges only the ratio, after
// each write, against parent and children. When both change, neither order is
// safe: the half-way ratio can be out of bounds on either side. A cgroup without
// a quota is always in bounds and may change its period freely, so the way leads
// through that.
func setQuotaV1(quotaFile, periodFile file, held, want bandwidth) error {
	if held.period == want.period {
		return quotaFile.write(strconv.FormatInt(want.quota, 10))
	}
	err := passUnlimited(quotaFile, periodFile, held.quota, want)
	if err != nil {
		// What held before was accepted once, so going back is; when even
		// that fails both errors are told.
		err = errors.Join(err, passUnlimited(quotaFile, periodFile, NoLimit, held))
	}
	return err
}

// passUnlimited takes a cgroup from a quota to another bandwidth.
func passUnlimited(quotaFile, periodFile file, from int64, to bandwidth) error {
	if from != NoLimit {
		if err := quotaFile.write("-1"); err != nil {
			return err
		}
	}
	if err := periodFile.write(strconv.FormatInt(to.period, 10)); err != nil {
		return err
	}
	if to.quota == NoLimit {
		return nil
	}
	return quotaFile.write(strconv.FormatInt(to.quota, 10))
}

// SetMemory limits the memory of the cgroup at path to so many bytes; NoLimit
// ends the limit. Lowering it below what is in use fails on v1 (EBUSY) and may
// kill processes on v2: ask MemoryInUse first.
func (t *Tree) SetMemory(path string, limit int64) error {
	err := checkLimit("memory limit", limit)
	if err == nil {
		err = t.setMemory(path, limit)
	}
	if err != nil {
		return fmt.Errorf("setting memory of cgroup %q: %w", path, err)
	}
	return nil
}

func (t *Tree) setMemory(path string, limit int64) error {
	held, err := t.readMemory(path)
	if err != nil || MemoryHolds(limit, held) {
		return err
	}
	f, err := t.memoryFile(path, t.memoryName())
	if err != nil {
		return err
	}
	if t.unified {
		return f.write(v2Limit(limit))
	}
	return setMemoryV1(f, held, limit)
}

// Reclaim has the kernel take so many bytes from the cgroup at path that can be
// had without harm: page cache, and what fits into swap. It takes what it can
// get, and nothing where the kernel offers no such thing: on v1, and on v2 before
// Linux 5.19. Whether it was enough MemoryInUse tells.
func (t *Tree) Reclaim(path string, bytes int64) error {
	if !t.unified {
		return nil
	}
	f, err := t.memoryFile(path, "memory.reclaim")
	if err == nil {
		err = f.write(strconv.FormatInt(bytes, 10))
	}
	if err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, fs.ErrNotExist) { // EAGAIN: less than asked for
		return fmt.Errorf("reclaiming memory of cgroup %q: %w", path, err)
	}
	return nil
}

// setMemoryV1 keeps the limit on memory plus swap, which must never be the
// smaller one, in step: so it is first when the limit goes up and second when it
// goes down. Where there is none it stays so, since that is how the kubelet makes
// a pod's cgroup, and how it expects it when it later raises the limit itself.
func setMemoryV1(f file, held, limit int64) error {
	memsw := file{dir: f.dir, name: memswName}
	limited, err := memsw.limited()
	if err != nil {
		return err
	}
	steps := []file{f}
	switch {
	case limited && raises(held, limit):
		steps = []file{memsw, f}
	case limited:
		steps = []file{f, memsw}
	}
	for _, step := range steps {
		if err := step.write(strconv.FormatInt(limit, 10)); err != nil {
			return err
		}
	}
	return nil
}

// limited reports whether the file is there and holds a limit.
func (f file) limited() (bool, error) {
	if exists, err := f.exists(); err != nil || !exists {
		return false, err
	}
	held, err := f.readInt()
	return held != NoLimit, err
}

func raises(from, to int64) bool {
	return from != NoLimit && (to == NoLimit || to > from)
}

func checkLimit(what string, limit int64) error {
	if limit == 0 || limit < NoLimit {
		return fmt.Errorf("%s %d is neither positive nor %d for none", what, limit, NoLimit)
	}
	return nil
}

func v2Limit(limit int64) string {
	if limit == NoLimit {
		return "max"
	}
	return strconv.FormatInt(limit, 10)
}
