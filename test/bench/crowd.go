package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/fallback"
	kubelet "github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
	"github.com/podresize/podresize/test/cluster"
)

const (
	crowdNode = "crowd"
	agentUser = "bench-agent"
	// crowdWriters ask for resizes at the same time.
	crowdWriters = 16
	// crowdPatience bounds one round of resizes.
	crowdPatience = 10 * time.Minute
	crowdIdle     = time.Minute
)

// crowd is one agent with very many pods, which are simulated.
type crowd struct {
	setting        setting
	pods           int
	created        round
	changed        round
	idle           time.Duration // CPU time
	idleFor        time.Duration
	memory, before int64 // anonymous, bytes
}

// round is a resize of all pods.
type round struct {
	generation int64     // of all CRIResizes then
	applied    durations // since the first was asked for
	asked      time.Duration
	cpu        time.Duration
	requests   requests
}

// crowdBed is the API server's part of it.
type crowdBed struct {
	site   *site
	client client.WithWatch
	node   *fakeNode
	agent  *exec.Cmd
	uids   []string
}

func (b *bench) measureCrowd(ctx context.Context) (_ *crowd, err error) {
	c := &crowd{pods: b.crowd}
	sites, err := b.openOnly(ctx, &c.setting, criRelease)
	if err != nil {
		return nil, err
	}
	bed, err := b.newCrowdBed(ctx, sites[0])
	if err != nil {
		return nil, err
	}
	stop, err := bed.node.serve(ctx, filepath.Join(b.dir, "cri"))
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := b.startAgent(ctx, bed); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.stopAgent()) }()
	if c.before, err = anonymousMemory(bed.agent.Process.Pid); err != nil {
		return nil, err
	}
	b.say("Creating %d CRIResizes for one agent", c.pods)
	if c.created, err = bed.round(ctx, 1, bed.create); err != nil {
		return nil, err
	}
	b.say("Changing all of them")
	if c.changed, err = bed.round(ctx, 2, bed.change); err != nil {
		return nil, err
	}
	return c, c.watchIdle(ctx, b, bed.agent.Process.Pid)
}

func (c *crowd) watchIdle(ctx context.Context, b *bench, pid int) error {
	b.say("Watching the agent for %s", crowdIdle)
	if err := pause(ctx, atPeace); err != nil {
		return err
	}
	before, _, err := cpuTime(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, crowdIdle); err != nil {
		return err
	}
	after, _, err := cpuTime(pid)
	if err != nil {
		return err
	}
	c.idle, c.idleFor = after-before, time.Since(began)
	c.memory, err = anonymousMemory(pid)
	return err
}

// newCrowdBed makes the node, which is none but in name, and the pods that it seems to have.
func (b *bench) newCrowdBed(ctx context.Context, s *site) (*crowdBed, error) {
	bed := &crowdBed{site: s, node: &fakeNode{root: filepath.Join(b.dir, "cgroup"), pods: map[string]bool{}}}
	var err error
	if bed.node.info, bed.node.realPath, err = s.realInfo(ctx); err != nil {
		return nil, err
	}
	if bed.client, err = s.newClient(); err != nil {
		return nil, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: crowdNode}}
	if err := bed.client.Create(ctx, node); err != nil {
		return nil, fmt.Errorf("creating node %q: %w", crowdNode, err)
	}
	before := client.MergeFrom(node.DeepCopy())
	size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1Ti")}
	node.Status.Capacity, node.Status.Allocatable = size, size
	if err := bed.client.Status().Patch(ctx, node, before); err != nil {
		return nil, fmt.Errorf("sizing node %q: %w", crowdNode, err)
	}
	for i := range b.crowd {
		uid := fmt.Sprintf("crowd-%04d", i)
		bed.uids = append(bed.uids, uid)
		if err := bed.node.add(uid, kubelet.Before(&crowdObject(uid).Spec)); err != nil {
			return nil, err
		}
	}
	return bed, nil
}

func (s *site) newClient() (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := fallback.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config, err := s.RESTConfigAs("bench-crowd", admins)
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// crowdObject asks for the larger size. It has no owner: there is no pod, and what belongs to one that is not there is collected.
func crowdObject(uid string) *v1alpha1.CRIResize {
	return &v1alpha1.CRIResize{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: uid,
			Labels: map[string]string{v1alpha1.LabelNode: v1alpha1.NodeLabelValue(crowdNode)},
		},
		Spec: v1alpha1.CRIResizeSpec{
			PodName: uid, PodUID: uid, NodeName: crowdNode, QOSClass: corev1.PodQOSBurstable,
			Containers: []v1alpha1.Container{{Name: container, Before: crowdResources(low()), Wanted: crowdResources(high())}},
		},
	}
}

func crowdResources(a amount) v1alpha1.Requirements {
	r := newPod("", a).Spec.Containers[0].Resources
	return v1alpha1.Requirements{Requests: r.Requests, Limits: r.Limits}
}

// startAgent runs the agent for that node, and returns when it holds the node's Lease.
func (b *bench) startAgent(ctx context.Context, bed *crowdBed) error {
	dir, err := cluster.SourceDir(ctx, cluster.AgentDir)
	if err != nil {
		return err
	}
	program := filepath.Join(b.dir, "podresize-agent")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the agent: %w: %s", err, out)
	}
	kubeconfig, err := bed.site.writeKubeconfig(agentUser, b.dir)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(b.dir, "agent.log"))
	if err != nil {
		return fmt.Errorf("logging what the agent says: %w", err)
	}
	defer log.Close()
	bed.agent = exec.CommandContext(ctx, program, "--kubeconfig="+kubeconfig, "--node-name="+crowdNode,
		"--runtime-endpoint=unix://"+filepath.Join(b.dir, "cri"), "--cgroup-root="+bed.node.root, "--heartbeat="+filepath.Join(b.dir, "heartbeat"))
	bed.agent.Stderr = log
	if err := bed.agent.Start(); err != nil {
		return fmt.Errorf("starting the agent: %w", err)
	}
	return bed.site.awaitLease(ctx, crowdNode)
}

func (bed *crowdBed) stopAgent() error {
	if err := bed.agent.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("ending the agent: %w", err)
	}
	if err := bed.agent.Wait(); err != nil {
		return fmt.Errorf("ending the agent: %w", err)
	}
	return nil
}

// round asks for a resize of all pods and waits until the agent says of each that it is applied.
func (bed *crowdBed) round(ctx context.Context, generation int64, ask func(ctx context.Context, uid string) error) (round, error) {
	ctx, cancel := context.WithTimeout(ctx, crowdPatience)
	defer cancel()
	r := round{generation: generation}
	requestsBefore, err := bed.site.requestsOf(ctx, agentUser)
	if err != nil {
		return r, err
	}
	cpuBefore, _, err := cpuTime(bed.agent.Process.Pid)
	if err != nil {
		return r, err
	}
	began := time.Now()
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(crowdWriters)
	asked := make(chan error, 1)
	go func() {
		for _, uid := range bed.uids {
			group.Go(func() error { return ask(asking, uid) })
		}
		err := group.Wait()
		r.asked = time.Since(began)
		asked <- err
	}()
	err = r.await(ctx, bed, began)
	if err = errors.Join(err, <-asked); err != nil {
		return r, err
	}
	cpuAfter, _, err := cpuTime(bed.agent.Process.Pid)
	if err != nil {
		return r, err
	}
	r.cpu = cpuAfter - cpuBefore
	requestsAfter, err := bed.site.requestsOf(ctx, agentUser)
	r.requests = requestsAfter.minus(requestsBefore)
	return r, err
}

// await notes when each CRIResize was first seen to be applied since the round began.
func (r *round) await(ctx context.Context, bed *crowdBed, began time.Time) error {
	done := map[string]bool{}
	for len(done) < len(bed.uids) { // the API server may end a watch: a new one begins with all that there is
		events, err := bed.client.Watch(ctx, &v1alpha1.CRIResizeList{}, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelNode: crowdNode})
		if err != nil {
			return fmt.Errorf("watching the CRIResizes, with %d of %d applied: %w", len(done), len(bed.uids), err)
		}
		r.note(events, done, began, len(bed.uids))
		events.Stop()
	}
	return nil
}

// note does so until all are done, or the watch ends.
func (r *round) note(events watch.Interface, done map[string]bool, began time.Time, n int) {
	for e := range events.ResultChan() {
		if object, ok := e.Object.(*v1alpha1.CRIResize); ok && !done[object.Name] && appliedNow(object, r.generation) {
			done[object.Name] = true
			r.applied = append(r.applied, time.Since(began))
		}
		if len(done) == n {
			return
		}
	}
}

// appliedNow says whether the agent has applied what the object asks for in this round.
func appliedNow(object *v1alpha1.CRIResize, generation int64) bool {
	c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionApplied)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
}

func (bed *crowdBed) create(ctx context.Context, uid string) error {
	if err := bed.client.Create(ctx, crowdObject(uid)); err != nil {
		return fmt.Errorf("creating CRIResize %q: %w", uid, err)
	}
	return nil
}

func (bed *crowdBed) change(ctx context.Context, uid string) error {
	before, after := crowdObject(uid), crowdObject(uid)
	after.Spec.Containers[0].Wanted = crowdResources(amount{150, 300})
	if err := bed.client.Patch(ctx, after, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing CRIResize %q: %w", uid, err)
	}
	return nil
}

func (c *crowd) write(path string) error {
	return replace(path, marksOf("crowd"), func(b *bytes.Buffer) {
		c.setting.report(b)
		line(b, "| %d CRIResizes of one agent, simulated pods | all created | all changed |", c.pods)
		line(b, "|---|---|---|")
		row := func(what string, of func(round) string) {
			line(b, "| %s | %s | %s |", what, of(c.created), of(c.changed))
		}
		row("until the last was asked for", func(r round) string { return fmt.Sprintf("%.1f s", r.asked.Seconds()) })
		row("until half / all are applied", func(r round) string {
			return fmt.Sprintf("%.1f / %.1f s", r.applied.percentile(50).Seconds(), r.applied.percentile(100).Seconds())
		})
		n := float64(max(c.pods, 1))
		row("requests of the agent for each: that change it, others", func(r round) string {
			return fmt.Sprintf("%.2f, %.2f", float64(r.requests.onCRIResizes)/n, float64(r.requests.others)/n)
		})
		row("CPU time of the agent for each", func(r round) string { return milliseconds(r.cpu/time.Duration(max(c.pods, 1))) + " ms" })
		line(b, "\nAnonymous memory of the agent: %s before, %s afterwards. Idle afterwards, over %s: %.2f mCPU.",
			mebibytes(c.before), mebibytes(c.memory), c.idleFor.Round(time.Second), 1000*c.idle.Seconds()/max(c.idleFor.Seconds(), 1))
	})
}
