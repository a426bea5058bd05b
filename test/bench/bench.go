package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/podresize/podresize/test/cluster"
)

// figures is all that one run measures.
type figures struct {
	setting setting
	ways    []*way
	decide  decision
	burst   burst
}

// part is something that is measured by itself and has its own place in the report.
type part struct {
	name    string
	measure func(*bench, context.Context) (reporter, error)
}

// reporter writes what was measured between the marks of its part.
type reporter interface{ write(path string) error }

// allParts are in the order in which they are measured. The first two have the clusters for themselves alone; those about the agent
// follow on the oldest.
func allParts() []part {
	return []part{
		{"update", func(b *bench, ctx context.Context) (reporter, error) { return b.measureUpdates(ctx) }},
		{"figures", func(b *bench, ctx context.Context) (reporter, error) { return b.measure(ctx) }},
		{"agent", func(b *bench, ctx context.Context) (reporter, error) { return b.measureAgent(ctx) }},
		{"restart", func(b *bench, ctx context.Context) (reporter, error) { return b.measureRestarts(ctx) }},
		{"crowd", func(b *bench, ctx context.Context) (reporter, error) { return b.measureCrowd(ctx) }},
		{"late", func(b *bench, ctx context.Context) (reporter, error) { return b.measureLate(ctx) }},
	}
}

func partNames() []string {
	var names []string
	for _, p := range allParts() {
		names = append(names, p.name)
	}
	return names
}

func run(ctx context.Context, o options, progress io.Writer) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	for _, name := range o.parts() { // now, not after ten minutes
		if _, err := splitReport(o.output, marksOf(name)); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "podresize-bench-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, dir: dir, progress: progress}
	defer func() { err = errors.Join(err, b.cleanUp(context.WithoutCancel(ctx))) }()
	if err := b.cleanUp(ctx); err != nil { // of a run that was killed
		return err
	}
	for _, p := range allParts() {
		if !slices.Contains(o.parts(), p.name) {
			continue
		}
		measured, err := p.measure(b, ctx)
		if err == nil {
			err = measured.write(o.output)
		}
		if err != nil {
			return fmt.Errorf("measuring part %q: %w", p.name, err)
		}
	}
	return nil
}

// bench is one run.
type bench struct {
	options

	dir      string
	progress io.Writer
	sites    []*site // those that are open
}

// criRelease is the one on which the CRI path is measured.
const criRelease = "1.26"

// releases are the clusters of a run.
func releases() []string { return []string{criRelease, "1.33", "1.37"} }

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, format+"\n", args...) // a reader that went away is no reason to stop
}

func (b *bench) cleanUp(ctx context.Context) error {
	for _, s := range b.sites {
		s.close()
	}
	b.sites = nil
	var errs []error
	for _, name := range append(releases(), lateRelease) {
		errs = append(errs, cluster.Down(ctx, siteName(name), b.progress))
	}
	return errors.Join(errs...)
}

// openOnly gives these clusters, and none besides runs then. They are new: what one part leaves is no matter of the next.
func (b *bench) openOnly(ctx context.Context, in *setting, names ...string) ([]*site, error) {
	if err := b.cleanUp(ctx); err != nil {
		return nil, err
	}
	if err := in.look(ctx, b.options); err != nil {
		return nil, err
	}
	for _, name := range names {
		s, err := b.openSite(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("setting up Kubernetes %s: %w", name, err)
		}
		b.sites = append(b.sites, s)
		in.releases = append(in.releases, s.release)
	}
	return b.sites, in.readPrograms(ctx)
}

func (b *bench) measure(ctx context.Context) (*figures, error) {
	f := &figures{}
	kubectl, err := cluster.Kubectl(ctx, b.progress)
	if err != nil {
		return nil, err
	}
	if _, err := b.openOnly(ctx, &f.setting, releases()...); err != nil {
		return nil, err
	}
	if f.ways, err = b.openWays(ctx, kubectl); err != nil {
		return nil, err
	}
	if err := b.latencies(ctx, f.ways); err != nil {
		return nil, err
	}
	newest := b.sites[len(b.sites)-1]
	b.say("Deciding for one cached pod")
	if f.decide, err = decide(ctx, newest); err != nil {
		return nil, err
	}
	f.burst, err = b.measureBurst(ctx, newest)
	return f, err
}

// openWays: podresize on every release, and kubectl where there is a subresource for it.
func (b *bench) openWays(ctx context.Context, kubectl string) ([]*way, error) {
	var all []*way
	for _, s := range b.sites {
		w, err := openWay(ctx, s, "podresize", &library{site: s})
		if err != nil {
			return nil, err
		}
		all = append(all, w)
		if s.inPlace {
			k, err := newKubectl(s, kubectl, b.dir)
			if err != nil {
				return nil, err
			}
			if w, err = openWay(ctx, s, "kubectl", k); err != nil {
				return nil, err
			}
			all = append(all, w)
		}
	}
	return all, nil
}

// latencies takes turns between the ways, one resize each, with a pause of random length before each: kubelets do part of their
// work once a second.
func (b *bench) latencies(ctx context.Context, ways []*way) error {
	pauses := rand.New(rand.NewPCG(b.seed, b.seed)) //nolint:gosec // repeatable, not secret
	began := time.Now()
	for i := range b.resizes {
		if i%10 == 0 {
			b.say("Resizing one pod in %d ways: %d of %d each … %s", len(ways), i, b.resizes, time.Since(began).Round(time.Second))
		}
		for _, w := range ways {
			if err := pause(ctx, time.Duration(pauses.Int64N(int64(time.Second)))); err != nil {
				return err
			}
			if err := w.once(ctx, i); err != nil {
				return fmt.Errorf("resizing by %s on Kubernetes %s: %w", w.name, w.site.release, err)
			}
		}
	}
	for _, w := range ways {
		if err := w.countRequests(ctx); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
