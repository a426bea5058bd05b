package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"
)

// marks surround what is written into the file.
type marks struct{ begin, end string }

func marksOf(part string) marks {
	return marks{"<!-- " + part + ": written by make bench -->\n", "<!-- end of " + part + " -->\n"}
}

// splitReport gives what surrounds the marks in the file.
func splitReport(path string, m marks) ([2]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return [2]string{}, fmt.Errorf("reading the report: %w", err)
	}
	head, rest, begins := strings.Cut(string(text), m.begin)
	_, tail, ends := strings.Cut(rest, m.end)
	if !begins || !ends {
		return [2]string{}, fmt.Errorf("the report %q lacks the lines %q and %q, between which the figures go", path, strings.TrimSpace(m.begin), strings.TrimSpace(m.end))
	}
	return [2]string{head, tail}, nil
}

// write replaces the figures in the file.
func (f *figures) write(path string) error {
	return replace(path, marksOf("figures"), func(b *bytes.Buffer) {
		f.setting.report(b)
		f.reportLatencies(b)
		f.reportGoals(b)
	})
}

// replace writes what is between the marks anew.
func replace(path string, m marks, write func(*bytes.Buffer)) error {
	around, err := splitReport(path, m)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString(around[0] + m.begin + "\n")
	write(&b)
	b.WriteString("\n" + m.end + around[1])
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func line(b *bytes.Buffer, format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }

func (f *figures) reportLatencies(b *bytes.Buffer) {
	line(b, "## One pod, %d resizes each\n", len(f.ways[0].toDone))
	line(b, "| Kubernetes | by | until the kernel holds it, p50 / p99 | until Done, p50 / p99 | requests per resize: on the pod, on the CRIResize, others |")
	line(b, "|---|---|---|---|---|")
	for _, w := range f.ways {
		line(b, "| %s | %s | %s | %s | %s |", w.site.release, w.says(), both(w.toKernel), both(w.toDone), w.perResize())
	}
}

func (w *way) says() string {
	switch {
	case w.name == "kubectl":
		return "`kubectl patch --subresource resize`, then polling"
	case w.site.inPlace:
		return "podresize, in place"
	default:
		return "podresize, through the CRI"
	}
}

func (w *way) perResize() string {
	n := float64(len(w.toDone))
	return fmt.Sprintf("%.2f, %.2f, %.2f", float64(w.requests.onPods)/n, float64(w.requests.onCRIResizes)/n, float64(w.requests.others)/n)
}

func both(d durations) string {
	return milliseconds(d.percentile(50)) + " / " + milliseconds(d.percentile(99)) + " ms"
}

func milliseconds(d time.Duration) string {
	ms := float64(d.Microseconds()) / 1000
	if ms < 10 {
		return fmt.Sprintf("%.2f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}

// find is the way of this name on a release "v1.N".
func (f *figures) find(minor, name string) *way {
	for _, w := range f.ways {
		if w.name == name && strings.HasPrefix(w.site.release, minor+".") {
			return w
		}
	}
	return &way{resizer: &library{}}
}

func ratio(a, b durations) string {
	if b.percentile(50) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(a.percentile(50))/float64(b.percentile(50)))
}

func (f *figures) reportGoals(b *bytes.Buffer) {
	newest, kubectl, cri := f.find("v1.37", "podresize"), f.find("v1.37", "kubectl"), f.find("v1.26", "podresize")
	older, olderKubectl := f.find("v1.33", "podresize"), f.find("v1.33", "kubectl")
	line(b, "\n## Against the goals\n")
	line(b, "Ratios are of the p50 of this run.\n")
	line(b, "| what | goal | measured |")
	line(b, "|---|---|---|")
	row := func(what, goal, measured string) { line(b, "| %s | %s | %s |", what, goal, measured) }
	row("until the kernel holds it: CRI on 1.26 / in place on 1.37", "< 1", ratio(cri.toKernel, newest.toKernel))
	row("until Done: CRI on 1.26 / in place on 1.37", "–", ratio(cri.toDone, newest.toDone))
	row("until Done on 1.37: podresize / kubectl and polling", "–", ratio(newest.toDone, kubectl.toDone))
	row("until Done on 1.33: podresize / kubectl and polling", "≤ 1", ratio(older.toDone, olderKubectl.toDone))
	row("what the library adds on 1.37, p50 / p99", "< 5 ms", overhead(newest))
	row("what the library adds on 1.33, p50 / p99", "–", overhead(older))
	row("requests that change the pod, per resize in place, 1.37 and 1.33", "1", perResize(newest, func(r requests) int { return r.onPods })+" and "+perResize(older, func(r requests) int { return r.onPods }))
	row("any other request, so also while waiting, per resize in place, 1.37 and 1.33", "0", perResize(newest, func(r requests) int { return r.others })+" and "+perResize(older, func(r requests) int { return r.others }))
	const quick = "< 2 µs, no allocation worth naming"
	row("deciding for a cached pod: done, looked at before", quick, f.decide.again.String())
	row("done, the object changed otherwise since", quick, f.decide.changed.String())
	row("not done yet", quick, f.decide.waiting.String())
	f.burst.report(row)
}

func overhead(w *way) string {
	l, ok := w.resizer.(*library)
	if !ok {
		return "–"
	}
	return both(l.overhead)
}

func perResize(w *way, of func(requests) int) string {
	return fmt.Sprintf("%.2f", float64(of(w.requests))/float64(max(len(w.toDone), 1)))
}

func (c cost) String() string {
	return fmt.Sprintf("%.2f µs, %d allocations, %d B", float64(c.time.Nanoseconds())/1000, c.allocs, c.bytes)
}

func (r burst) report(row func(what, goal, measured string)) {
	of := fmt.Sprintf("%d pods of one node at once, 1.37", r.pods)
	if r.pods < r.asked {
		of += fmt.Sprintf(" (of %d asked for: the others did not run after %s)", r.asked, startPatience)
	}
	row(of+": until half / all are Done", "–", fmt.Sprintf("%.1f / %.1f s", r.toDone.percentile(50).Seconds(), r.toDone.percentile(100).Seconds()))
	row("requests for them: on pods, others", fmt.Sprintf("%d, 0", r.pods), fmt.Sprintf("%d, %d", r.requests.onPods, r.requests.others))
	row("of them, Done before the kernel held it", "0", fmt.Sprint(r.unproved))
}
