// Command demo shows the main job of podresize on this machine: the same command changes CPU and memory of a running pod
// without a restart, on the newest Kubernetes, whose kubelet does it in place, and on 1.26, where podresize-agent does. It
// starts both clusters, checks what the kernel holds after each command, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	// SIGPIPE too: with it ignored here, `make demo | head` is cleaned up after like any other.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := run(ctx, os.Stdout)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "demo:", strings.Join(strings.Fields(err.Error()), " "))
	if errors.Is(err, errInterrupted) {
		os.Exit(130)
	}
	os.Exit(1)
}
