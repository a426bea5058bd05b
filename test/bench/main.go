// Command bench measures podresize on real clusters of this machine, side by side with kubectl, and writes the figures into
// docs/benchmarks.md, which explains the method. It judges nothing: figures of a busy machine are no reason to fail.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// options are the flags.
type options struct {
	output   string
	resizes  int
	pods     int
	seed     uint64
	late     int
	lateOnly bool
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.output, "output", "../docs/benchmarks.md", "file whose figures are replaced")
	flags.IntVar(&o.resizes, "resizes", 50, "resizes of one pod, for each way")
	flags.IntVar(&o.pods, "pods", 200, "pods that are resized at once")
	flags.IntVar(&o.late, "untouched", 3, "resizes on 1.31 of a pod that is not touched, more than a minute each")
	flags.BoolVar(&o.lateOnly, "late-only", false, "measure 1.31 alone, and leave the other figures as they are")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the pauses between resizes")
}

func (o *options) validate() error {
	if o.resizes < 1 {
		return fmt.Errorf("--resizes: %d is not at least 1", o.resizes)
	}
	if o.late < 1 {
		return fmt.Errorf("--untouched: %d is not at least 1", o.late)
	}
	if o.pods < 1 || o.pods > maxPods {
		return fmt.Errorf("--pods: %d is not between 1 and %d", o.pods, maxPods)
	}
	return nil
}

func main() {
	var o options
	o.addFlags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := run(ctx, o, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", strings.Join(strings.Fields(err.Error()), " "))
		os.Exit(1)
	}
}
