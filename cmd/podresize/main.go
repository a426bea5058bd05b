// podresize changes the CPU and memory of a running pod without restarting it, and shows how far a change has got.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	os.Exit(run())
}

func run() int {
	klog.SetLogger(logr.Discard()) // what client-go logs, all errors tell
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cmd, err := newCommand(os.Stdout, os.Stderr)
	if err == nil {
		err = cmd.ExecuteContext(ctx)
	}
	var command *commandError
	if err != nil && (!errors.As(err, &command) || !command.said) {
		fmt.Fprintln(os.Stderr, "podresize:", oneLine(err))
	}
	return exitCode(err)
}
