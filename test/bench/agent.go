package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	agentContainer = "agent"
	// atPeace is how long after the last resize an agent counts as idle.
	atPeace = 15 * time.Second
)

// kept is what the agent of a node needs that only keeps what it applied: without any pod, and with some.
type kept struct {
	setting     setting
	asked, pods int
	none, some  idling
}

// idling is what an agent used in some time.
type idling struct {
	took time.Duration
	// process is the CPU time of the agent's process, container that of its container, in which the probes run too.
	process, container time.Duration
	// memory is the most anonymous memory that the process had, of looks once a second, in bytes.
	memory int64
}

// agentProcess is an agent that runs in a container.
type agentProcess struct {
	site   *site
	pid    int
	cgroup string
}

func (b *bench) measureAgent(ctx context.Context) (*kept, error) {
	k := &kept{asked: b.kept}
	sites, err := b.openOnly(ctx, &k.setting, criRelease)
	if err != nil {
		return nil, err
	}
	s := sites[0]
	agent, err := s.findAgent(ctx)
	if err != nil {
		return nil, err
	}
	if k.none, err = b.watchIdle(ctx, agent, b.idle/5); err != nil {
		return nil, err
	}
	pods, err := b.runKept(ctx, s, b.kept)
	if err != nil {
		return nil, err
	}
	k.pods = len(pods)
	k.some, err = b.watchIdle(ctx, agent, b.idle)
	return k, err
}

// runKept starts pods and has them resized.
func (b *bench) runKept(ctx context.Context, s *site, n int) ([]*corev1.Pod, error) {
	b.say("Starting %d pods on one node", n)
	if err := s.createPods(ctx, n); err != nil {
		return nil, err
	}
	pods, err := b.awaitPods(ctx, s, n)
	if err != nil {
		return nil, err
	}
	b.say("Resizing %d pods", len(pods))
	group, ctx := errgroup.WithContext(ctx)
	for _, pod := range pods {
		group.Go(func() error { return s.controller.ask(pod.Name, burstHigh()).await(ctx) })
	}
	return pods, group.Wait()
}

// findAgent waits for the agent of the node.
func (s *site) findAgent(ctx context.Context) (agentProcess, error) {
	pods, err := s.Client().CoreV1().Pods(v1alpha1.AgentNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=podresize-agent"})
	if err != nil {
		return agentProcess{}, fmt.Errorf("finding the agent: %w", err)
	}
	if len(pods.Items) != 1 {
		return agentProcess{}, fmt.Errorf("finding the agent: there are %d pods, not one", len(pods.Items))
	}
	a := agentProcess{site: s}
	if a.cgroup, err = s.CgroupPath(ctx, &pods.Items[0], agentContainer); err != nil {
		return agentProcess{}, fmt.Errorf("finding the cgroup of the agent: %w", err)
	}
	pids, err := processesOf(a.cgroup)
	if err != nil {
		return agentProcess{}, err
	}
	i := slices.IndexFunc(pids, isAgent)
	if i < 0 {
		return agentProcess{}, fmt.Errorf("finding the agent: none of the processes %d is one", pids)
	}
	a.pid = pids[i]
	return a, nil
}

// isAgent tells the agent from its probes.
func isAgent(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(line), "\x00")
	return err == nil && strings.HasSuffix(args[0], "podresize-agent") && !slices.Contains(args, "probe")
}

func (b *bench) watchIdle(ctx context.Context, a agentProcess, d time.Duration) (idling, error) {
	b.say("Watching the idle agent for %s", d)
	if err := pause(ctx, atPeace); err != nil {
		return idling{}, err
	}
	before, err := a.used(ctx)
	if err != nil {
		return idling{}, err
	}
	began := time.Now()
	for time.Since(began) < d {
		if err := pause(ctx, time.Second); err != nil {
			return idling{}, err
		}
		memory, err := anonymousMemory(a.pid)
		if err != nil {
			return idling{}, err
		}
		before.memory = max(before.memory, memory)
	}
	after, err := a.used(ctx)
	return idling{time.Since(began), after.process - before.process, after.container - before.container, before.memory}, err
}

// used is what the agent has used so far.
func (a agentProcess) used(ctx context.Context) (idling, error) {
	own, _, err := cpuTime(a.pid)
	if err != nil {
		return idling{}, err
	}
	use, err := a.site.CPUUse(ctx, "n1", a.cgroup)
	return idling{process: own, container: use.Used}, err
}

// milli is a CPU time as a share of a CPU, in thousandths.
func (i idling) milli(of time.Duration) string {
	if i.took == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f mCPU", 1000*of.Seconds()/i.took.Seconds())
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func (k *kept) write(path string) error {
	return replace(path, marksOf("agent"), func(b *bytes.Buffer) {
		k.setting.report(b)
		line(b, "| what an idle agent uses | goal | with %d resized pods, over %s | without any, over %s |", k.pods, k.some.took.Round(time.Second), k.none.took.Round(time.Second))
		line(b, "|---|---|---|---|")
		line(b, "| anonymous memory of its process, the most seen | ≤ 20 MiB | %s | %s |", mebibytes(k.some.memory), mebibytes(k.none.memory))
		line(b, "| CPU time of its process | ≤ 1 mCPU | %s | %s |", k.some.milli(k.some.process), k.none.milli(k.none.process))
		line(b, "| CPU time of its container, so with the probes | – | %s | %s |", k.some.milli(k.some.container), k.none.milli(k.none.container))
		if k.pods < k.asked {
			line(b, "\n%d pods were asked for; the others did not run after %s.", k.asked, startPatience)
		}
	})
}
