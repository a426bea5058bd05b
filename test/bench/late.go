package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/podresize/podresize/resize"
)

// lateRelease has kubelets that report a resize only at their next sync of the pod, unless the pod is touched.
const lateRelease = "1.31:on"

// late is how long a resize takes there: with touches, and without.
type late struct {
	setting            setting
	touched, untouched *way
}

func (b *bench) measureLate(ctx context.Context) (*late, error) {
	l := &late{}
	sites, err := b.openOnly(ctx, &l.setting, lateRelease)
	if err != nil {
		return nil, err
	}
	s := sites[0]
	if l.touched, err = openWay(ctx, s, "touched", &library{site: s}); err != nil {
		return nil, err
	}
	if err := b.repeat(ctx, l.touched, b.resizes); err != nil {
		return nil, err
	}
	alone := *s
	if alone.controller, err = newController(ctx, s, resize.InPlaceOptions{NoTouch: true}); err != nil {
		return nil, err
	}
	b.sites = append(b.sites, &alone)
	if l.untouched, err = newWay(ctx, &alone, "untouched", &library{site: &alone}); err != nil {
		return nil, err
	}
	return l, b.repeat(ctx, l.untouched, b.late)
}

// atRest is after how long a kubelet has nothing more to do for the resize before: its next sync waits for a look at the containers,
// once a second.
const atRest = 3 * time.Second

// repeat resizes the pod of one way, each time at a random moment after its kubelet has come to rest.
func (b *bench) repeat(ctx context.Context, w *way, times int) error {
	pauses := rand.New(rand.NewPCG(b.seed, b.seed)) //nolint:gosec // repeatable, not secret
	began := time.Now()
	for i := range times {
		if i%10 == 0 || w.name == "untouched" {
			b.say("Resizing one pod on Kubernetes %s, %s: %d of %d … %s", w.site.release, w.name, i, times, time.Since(began).Round(time.Second))
		}
		if err := pause(ctx, atRest+time.Duration(pauses.Int64N(int64(time.Second)))); err != nil {
			return err
		}
		if err := w.once(ctx, i); err != nil {
			return fmt.Errorf("resizing by %s on Kubernetes %s: %w", w.name, w.site.release, err)
		}
	}
	return w.countRequests(ctx)
}

func (l *late) write(path string) error {
	return replace(path, marksOf("late"), func(b *bytes.Buffer) {
		l.setting.report(b)
		line(b, "| Kubernetes %s, gate on | resizes | until the kernel holds it, p50 / p99 | until Done, p50 / worst | goal | requests per resize: on the pod, others |", l.touched.site.release)
		line(b, "|---|---|---|---|---|---|")
		for _, w := range []*way{l.touched, l.untouched} {
			goal := "–"
			if w == l.touched {
				goal = "≤ 0.5 s / ≤ 1.1 s"
			}
			n := float64(len(w.toDone))
			line(b, "| %s | %d | %s | %.2f / %.2f s | %s | %.2f, %.2f |", w.name, len(w.toDone), both(w.toKernel),
				w.toDone.percentile(50).Seconds(), w.toDone.percentile(100).Seconds(), goal, float64(w.requests.onPods)/n, float64(w.requests.others)/n)
		}
	})
}
