package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/fallback/cri"
)

// restarts is how long the containers of resized pods have what their spec says after a restart.
type restarts struct {
	setting setting
	// fromSight counts from the moment at which the new container's cgroup was seen, fromStart from that at which the runtime says
	// it started.
	fromSight, fromStart durations
}

func (b *bench) measureRestarts(ctx context.Context) (*restarts, error) {
	r := &restarts{}
	sites, err := b.openOnly(ctx, &r.setting, criRelease)
	if err != nil {
		return nil, err
	}
	s := sites[0]
	pods, err := b.runKept(ctx, s, b.restarts)
	if err != nil {
		return nil, err
	}
	socket, err := s.Socket("n1")
	if err != nil {
		return nil, err
	}
	runtime, err := cri.Dial(socket, cri.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = runtime.Close() }() // nothing is in flight any more
	for i, pod := range pods {
		if i%10 == 0 {
			b.say("Killing one container after another: %d of %d", i, len(pods))
		}
		if err := r.once(ctx, s, runtime, pod); err != nil {
			return nil, fmt.Errorf("restarting the container of pod %q: %w", pod.Name, err)
		}
	}
	return r, nil
}

// once kills the container: the kubelet starts a container for the second time at once.
func (r *restarts) once(ctx context.Context, s *site, runtime *cri.Client, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, kernelPatience)
	defer cancel()
	old, err := s.CgroupPath(ctx, pod, container)
	if err != nil {
		return err
	}
	dir := filepath.Dir(filepath.Dir(quotaFile(old)))
	known, err := children(dir)
	if err != nil {
		return err
	}
	if err := s.KillContainer(ctx, pod, container); err != nil {
		return err
	}
	id, err := newChild(ctx, dir, known)
	if err != nil {
		return err
	}
	seen := time.Now()
	held := <-watchKernel(ctx, []string{quotaFile(path.Join(path.Dir(old), id))}, burstHigh().quota())
	if held.err != nil {
		return held.err
	}
	now, err := runtime.Pod(ctx, string(pod.UID))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(now.Containers, func(c cri.Container) bool { return c.ID == id })
	if i < 0 {
		return fmt.Errorf("container %q does not run any more", id)
	}
	r.fromSight = append(r.fromSight, held.at.Sub(seen))
	r.fromStart = append(r.fromStart, held.at.Sub(now.Containers[i].StartedAt))
	return nil
}

// children are the cgroups in one.
func children(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("looking into a cgroup: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// newChild waits for a cgroup that was not known.
func newChild(ctx context.Context, dir string, known []string) (string, error) {
	for {
		now, err := children(dir)
		if err != nil {
			return "", err
		}
		for _, name := range now {
			if !slices.Contains(known, name) {
				return name, nil
			}
		}
		if err := pause(ctx, kernelPoll); err != nil {
			return "", fmt.Errorf("waiting for the new container: %w", err)
		}
	}
}

func (r *restarts) write(path string) error {
	return replace(path, marksOf("restart"), func(b *bytes.Buffer) {
		r.setting.report(b)
		line(b, "| %d restarts: until the new container's cgroup holds what was resized to | p50 / p99 |", len(r.fromSight))
		line(b, "|---|---|")
		line(b, "| from the first sight of that cgroup, which the runtime makes before it starts the container | %s |", both(r.fromSight))
		line(b, "| from the start, by the runtime's word | %s |", both(r.fromStart))
	})
}
