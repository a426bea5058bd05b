// podresize-agent resizes the pods of one node where the kubelet cannot: see package fallback/agent.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/podresize/podresize/fallback/agent"
	"github.com/podresize/podresize/internal/gates"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const usage = `podresize-agent applies the CRIResizes of one node, keeps them applied and proves it.

It needs the directory of the container runtime's socket and the host's cgroup
tree mounted, and opens no port. It runs as the DaemonSet in manifests/base, or
with --sidecar as a container of the one pod that it then resizes.

podresize-agent probe [--ready] --heartbeat=FILE fails if the agent that writes
FILE does not live or, with --ready, if it cannot work now, and says why.

Flags:
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "podresize-agent:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 && args[0] == "probe" {
		return probe(args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	flags := pflag.NewFlagSet("podresize-agent", pflag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage, flags.FlagUsages()) }
	opts := agent.Options{}
	flags.StringVar(&opts.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node; default: the environment variable NODE_NAME")
	flags.StringVar(&opts.RuntimeEndpoint, "runtime-endpoint", "unix:///run/containerd/containerd.sock", "CRI socket of the container runtime")
	flags.StringVar(&opts.CgroupRoot, "cgroup-root", "/sys/fs/cgroup", "where the host's cgroup file system is mounted")
	flags.StringVar(&opts.SystemdSocket, "systemd-socket", "/run/systemd/private", "private socket of systemd, for nodes with the systemd cgroup driver")
	flags.StringVar(&opts.Namespace, "namespace", v1alpha1.AgentNamespace, "namespace of the Lease that makes this the one agent of its node")
	flags.StringSliceVar(&opts.Namespaces, "namespaces", nil, "namespaces whose CRIResizes are acted on, separated by commas; the agent needs no right in others (default: all)")
	flags.StringVar(&opts.PodSelector, "pod-selector", "", "label selector: pods that did not match it when they were made are left alone (default: all match)")
	flags.StringVar(&opts.Identity, "identity", "", "name of this agent in the Lease, which the next container of the same pod must have again; default: the host's name and a random number")
	flags.BoolVar(&opts.Sidecar, "sidecar", false, "act on the CRIResize of the pod that this is a container of, and on no other")
	flags.StringVar(&opts.PodUID, "pod-uid", os.Getenv("POD_UID"), "UID of the sidecar's pod; default: the environment variable POD_UID")
	flags.StringVar(&opts.PodNamespace, "pod-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the sidecar's pod; default: the environment variable POD_NAMESPACE")
	flags.StringVar(&opts.Heartbeat, "heartbeat", "", "file in which the agent shows that it lives, for the command probe")
	switches, err := gates.New(gates.Table(), gates.Removed())
	if err != nil {
		return err
	}
	switches.AddFlag(flags)
	verbose := flags.BoolP("verbose", "v", false, "log every look at a pod")
	flags.AddGoFlag(flag.CommandLine.Lookup("kubeconfig")) // registered by controller-runtime's config package
	if err := flags.Parse(args); err != nil {
		if err == pflag.ErrHelp { //nolint:errorlint // pflag returns it as it is
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err := narrowed(flags, opts); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctrl.SetLogger(log)
	for _, warning := range switches.Warnings() {
		log.Info("A feature gate is left as it is", "warning", warning)
	}
	opts.NoReclaim = !switches.Enabled(gates.MemoryReclaim)
	return agent.Run(logr.NewContext(ctx, log), cfg, opts)
}

// narrowed refuses flags that are to narrow what the agent acts on and are empty, as an unset variable makes them: that would be all.
func narrowed(flags *pflag.FlagSet, opts agent.Options) error {
	if flags.Changed("namespaces") && len(opts.Namespaces) == 0 {
		return errors.New("namespaces: must not be empty; without the flag all namespaces are meant")
	}
	if flags.Changed("pod-selector") && opts.PodSelector == "" {
		return errors.New("pod-selector: must not be empty; without the flag all pods are meant")
	}
	return opts.Validate()
}

func probe(args []string) error {
	flags := pflag.NewFlagSet("podresize-agent probe", pflag.ContinueOnError)
	heartbeat := flags.String("heartbeat", "", "file that the agent writes")
	ready := flags.Bool("ready", false, "also fail if the agent cannot work now")
	if err := flags.Parse(args); err != nil {
		if err == pflag.ErrHelp { //nolint:errorlint // pflag returns it as it is
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *heartbeat == "" {
		return errors.New("heartbeat: must be the file that the agent writes")
	}
	return agent.Probe(*heartbeat, *ready)
}
