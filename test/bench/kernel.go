package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	kernelPoll = time.Millisecond
	// kernelPatience is longer than any resize should take.
	kernelPatience = 2 * time.Minute
)

// quotaFiles are the files with the CPU quota of a pod and of its container.
func (s *site) quotaFiles(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	var files []string
	for _, name := range []string{"", container} {
		path, err := s.CgroupPath(ctx, pod, name)
		if err != nil {
			return nil, fmt.Errorf("finding the cgroup of pod %q: %w", pod.Name, err)
		}
		files = append(files, quotaFile(path))
	}
	return files, nil
}

func quotaFile(path string) string {
	v1 := filepath.Join("/sys/fs/cgroup/cpu", path, "cpu.cfs_quota_us")
	if _, err := os.Stat(v1); errors.Is(err, fs.ErrNotExist) {
		return filepath.Join("/sys/fs/cgroup", path, "cpu.max")
	}
	return v1
}

// kernelHolds says whether all files hold this quota.
func kernelHolds(files []string, quota int64) (bool, error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return false, fmt.Errorf("reading the kernel: %w", err)
		}
		fields := strings.Fields(string(text)) // cpu.max has the period too
		if len(fields) == 0 || fields[0] != strconv.FormatInt(quota, 10) {
			return false, nil
		}
	}
	return true, nil
}

// sighting is when the kernel was first seen to hold what was asked for.
type sighting struct {
	at  time.Time
	err error
}

// watchKernel looks every millisecond; the answer comes on the channel.
func watchKernel(ctx context.Context, files []string, quota int64) <-chan sighting {
	seen := make(chan sighting, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, kernelPatience)
		defer cancel()
		tick := time.NewTicker(kernelPoll)
		defer tick.Stop()
		for {
			held, err := kernelHolds(files, quota)
			if held || err != nil {
				seen <- sighting{time.Now(), err}
				return
			}
			select {
			case <-ctx.Done():
				seen <- sighting{err: fmt.Errorf("waiting for quota %d in %q: %w", quota, files, ctx.Err())}
				return
			case <-tick.C:
			}
		}
	}()
	return seen
}
