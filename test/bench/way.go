package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/test/cluster"
)

// resizer resizes one pod and returns when it knows that it is done.
type resizer interface {
	resize(ctx context.Context, pod *corev1.Pod, to amount) error
	// user is the one that the API server sees.
	user() string
}

// way is one way of resizing on one cluster, with a pod of its own and what was measured.
type way struct {
	name    string
	site    *site
	resizer resizer

	pod   *corev1.Pod
	files []string

	toKernel, toDone durations
	requests         requests
	before           requests
}

// A way's pod goes back and forth between these.
func low() amount  { return amount{100, 200} }
func high() amount { return amount{200, 400} }

// openWay makes a way, and resizes its pod once up and down, so that what is only needed once does not count.
func openWay(ctx context.Context, s *site, name string, r resizer) (*way, error) {
	w, err := newWay(ctx, s, name, r)
	if err != nil {
		return nil, err
	}
	for i := range 2 {
		if err := w.once(ctx, i); err != nil {
			return nil, fmt.Errorf("warming up %s on Kubernetes %s: %w", name, s.release, err)
		}
	}
	w.toKernel, w.toDone = nil, nil
	if l, ok := r.(*library); ok {
		l.overhead = nil
	}
	w.before, err = s.requestsOf(ctx, r.user())
	return w, err
}

// newWay runs the pod.
func newWay(ctx context.Context, s *site, name string, r resizer) (*way, error) {
	w := &way{name: name, site: s, resizer: r}
	var err error
	if w.pod, err = s.RunPod(ctx, newPod(name, low())); err != nil {
		return nil, err
	}
	if w.files, err = s.quotaFiles(ctx, w.pod); err != nil {
		return nil, err
	}
	w.before, err = s.requestsOf(ctx, r.user())
	return w, err
}

// once resizes the pod to its other size.
func (w *way) once(ctx context.Context, i int) error {
	to := high()
	if i%2 == 1 {
		to = low()
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	kernel := watchKernel(watching, w.files, to.quota())
	if err := w.resizer.resize(ctx, w.pod, to); err != nil {
		return err
	}
	w.toDone = append(w.toDone, time.Since(began))
	seen := <-kernel
	w.toKernel = append(w.toKernel, seen.at.Sub(began))
	return seen.err
}

// library is podresize in a controller.
type library struct {
	site     *site
	overhead durations
}

func (l *library) user() string { return libraryUser }

// resize also takes down what the library costs: all the time that goes neither into requests nor into waiting, after the
// first call, for a pod that shows the change.
func (l *library) resize(ctx context.Context, pod *corev1.Pod, to amount) error {
	c := l.site.controller
	inHTTP, began := c.inHTTP.Load(), time.Now()
	j := c.ask(pod.Name, to)
	if err := j.await(ctx); err != nil {
		return err
	}
	took := time.Since(began) - time.Duration(c.inHTTP.Load()-inHTTP)
	if j.proved.After(j.sent) {
		took -= j.proved.Sub(j.sent)
	}
	l.overhead = append(l.overhead, took)
	return nil
}

// requests are those of one user, without those that only watch.
type requests struct{ onPods, onCRIResizes, others int }

func (r requests) minus(other requests) requests {
	return requests{r.onPods - other.onPods, r.onCRIResizes - other.onCRIResizes, r.others - other.others}
}

// requestsOf counts in the audit log: what changes pods and CRIResizes, and everything else.
func (s *site) requestsOf(ctx context.Context, user string) (requests, error) {
	events, err := s.Audit(ctx, func(e cluster.AuditEvent) bool { return e.User.Username == user })
	if err != nil {
		return requests{}, err
	}
	var r requests
	for _, e := range events {
		switch {
		case e.Mutating() && e.ObjectRef.Resource == "pods":
			r.onPods++
		case e.Mutating() && e.ObjectRef.Resource == "criresizes":
			r.onCRIResizes++
		default:
			r.others++
		}
	}
	return r, nil
}

func (w *way) countRequests(ctx context.Context) error {
	after, err := w.site.requestsOf(ctx, w.resizer.user())
	w.requests = after.minus(w.before)
	return err
}

type durations []time.Duration

// percentile is the smallest value that p percent of all do not exceed; of 50 values the 99th is the largest.
func (d durations) percentile(p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return sorted[(len(sorted)*p+99)/100-1]
}
