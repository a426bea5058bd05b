package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// burst is many pods of one node that are resized at the same moment.
type burst struct {
	asked, pods int
	started     time.Duration // until they ran
	toDone      durations
	requests    requests
	// unproved is for how many pods the kernel did not hold what was wanted when Done was said.
	unproved int
}

// startPatience is how long the pods may take to start; those that run by then are resized.
const startPatience = 4 * time.Minute

// The requests of 200 pods must fit a node of two CPUs; the limit is for the start.
func burstLow() amount  { return amount{5, 100} }
func burstHigh() amount { return amount{7, 140} }

func (b *bench) measureBurst(ctx context.Context, s *site) (burst, error) {
	result := burst{asked: b.pods}
	began := time.Now()
	b.say("Starting %d pods on one node", b.pods)
	if err := s.createPods(ctx, b.pods); err != nil {
		return result, err
	}
	pods, err := b.awaitPods(ctx, s, b.pods)
	if err != nil {
		return result, err
	}
	result.pods, result.started = len(pods), time.Since(began)
	b.say("Resizing %d pods at once", len(pods))
	before, err := s.requestsOf(ctx, libraryUser)
	if err != nil {
		return result, err
	}
	if err := result.resize(ctx, s, pods); err != nil {
		return result, err
	}
	after, err := s.requestsOf(ctx, libraryUser)
	result.requests = after.minus(before)
	return result, err
}

func burstName(i int) string { return fmt.Sprintf("burst-%03d", i) }

// createPods runs the first one alone: it needs a namespace.
func (s *site) createPods(ctx context.Context, n int) error {
	if _, err := s.RunPod(ctx, newPod(burstName(0), burstLow())); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := 1; i < n; i++ {
		group.Go(func() error {
			_, err := s.Client().CoreV1().Pods(namespace).Create(ctx, newPod(burstName(i), burstLow()), metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

// awaitPods returns the pods when all run, or those that do after startPatience.
func (b *bench) awaitPods(ctx context.Context, s *site, n int) ([]*corev1.Pod, error) {
	began, told := time.Now(), time.Now()
	for {
		pods := s.runningBurst(n)
		if len(pods) == n || time.Since(began) > startPatience {
			return pods, nil
		}
		if time.Since(told) > 15*time.Second {
			told = time.Now()
			b.say("Starting %d pods on one node: %d run … %s", n, len(pods), time.Since(began).Round(time.Second))
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (s *site) runningBurst(n int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		pod, err := s.controller.pods.Pods(namespace).Get(burstName(i))
		if err == nil && pod.Status.Phase == corev1.PodRunning {
			pods = append(pods, pod)
		}
	}
	return pods
}

// resize asks for all pods, and looks at the kernel the moment each is Done.
func (r *burst) resize(ctx context.Context, s *site, pods []*corev1.Pod) error {
	files := make([][]string, len(pods))
	for i, pod := range pods {
		var err error
		if files[i], err = s.quotaFiles(ctx, pod); err != nil {
			return err
		}
	}
	times, proved := make(durations, len(pods)), make([]bool, len(pods))
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i, pod := range pods {
		group.Go(func() error {
			if err := s.controller.ask(pod.Name, burstHigh()).await(ctx); err != nil {
				return err
			}
			times[i] = time.Since(began)
			var err error
			proved[i], err = kernelHolds(files[i], burstHigh().quota())
			return err
		})
	}
	err := group.Wait()
	r.toDone = times
	for _, ok := range proved {
		if !ok {
			r.unproved++
		}
	}
	return err
}
