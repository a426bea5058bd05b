// Command bench measures podresize on real clusters of this machine, side by side with kubectl, and writes the figures into
// docs/benchmarks.md, which explains the method. It judges nothing: figures of a busy machine are no reason to fail.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// options are the flags.
type options struct {
	output   string
	only     string
	resizes  int
	pods     int
	seed     uint64
	late     int
	updates  int
	restarts int
	kept     int
	idle     time.Duration
	crowd    int
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.output, "output", "../docs/benchmarks.md", "file whose figures are replaced")
	flags.IntVar(&o.resizes, "resizes", 50, "resizes of one pod, for each way")
	flags.IntVar(&o.pods, "pods", 200, "pods that are resized at once")
	flags.IntVar(&o.late, "untouched", 3, "resizes on 1.31 of a pod that is not touched, more than a minute each")
	flags.StringVar(&o.only, "only", "", "parts to measure, divided by commas, of "+strings.Join(partNames(), ", ")+"; the other figures stay as they are; empty: all")
	flags.IntVar(&o.updates, "updates", 200, "updates of one container through the runtime, by each program")
	flags.IntVar(&o.restarts, "restarts", 25, "containers that are killed, one after another")
	flags.IntVar(&o.kept, "kept", 100, "resized pods that the idle agent looks after")
	flags.DurationVar(&o.idle, "idle", 5*time.Minute, "how long the idle agent is looked at")
	flags.IntVar(&o.crowd, "crowd", 1000, "simulated pods of one agent")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the pauses between resizes")
}

// parts are those that are wanted, in the order in which they are measured.
func (o *options) parts() []string {
	if o.only == "" {
		return partNames()
	}
	return strings.Split(o.only, ",")
}

func (o *options) validate() error {
	if o.resizes < 1 {
		return fmt.Errorf("--resizes: %d is not at least 1", o.resizes)
	}
	if o.late < 1 {
		return fmt.Errorf("--untouched: %d is not at least 1", o.late)
	}
	for name, value := range map[string]int{"updates": o.updates, "restarts": o.restarts, "kept": o.kept, "crowd": o.crowd} {
		if value < 1 {
			return fmt.Errorf("--%s: %d is not at least 1", name, value)
		}
	}
	if o.kept > maxPods || o.restarts > maxPods {
		return fmt.Errorf("--kept and --restarts: no node runs more than %d pods", maxPods)
	}
	if o.idle < time.Second {
		return fmt.Errorf("--idle: %s is not at least 1s", o.idle)
	}
	for _, name := range o.parts() {
		if !slices.Contains(partNames(), name) {
			return fmt.Errorf("--only: no part %q, there are %s", name, strings.Join(partNames(), ", "))
		}
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
	ctrllog.SetLogger(logr.Discard()) // the informers have nothing to say
	err := run(ctx, o, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", strings.Join(strings.Fields(err.Error()), " "))
		os.Exit(1)
	}
}
