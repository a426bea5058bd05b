// Command cluster starts and stops Kubernetes clusters on this machine; see
// package cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/podresize/podresize/test/cluster"
)

const usage = `usage:
  cluster up    [--name dev] [--kubernetes 1.37] [--gates A=true,B=false] [--nodes n1,n2=1.33,n3=1.31:A=true]
                start a cluster, wait for Ready, print "export KUBECONFIG=..." on stdout
  cluster down  [--name dev | --all]
                take it down and leave nothing behind
  cluster list  the clusters of this machine
  cluster build [1.26 1.37 ...]
                build the binaries (all releases without an argument)
  cluster images --output DIR
                write the images of the agent and of test containers as archives
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("what to do?\n%s", strings.TrimSpace(usage))
	}
	switch verb, args := args[0], args[1:]; verb {
	case "up":
		return up(ctx, args, stdout, stderr)
	case "down":
		return down(ctx, args, stderr)
	case "list":
		return list(stdout)
	case "build":
		return build(ctx, args, stderr)
	case "images":
		return images(ctx, args, stderr)
	case "help", "-h", "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	default:
		return fmt.Errorf("unknown verb %q\n%s", verb, strings.TrimSpace(usage))
	}
}

func up(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("up", stderr)
	name := flags.String("name", "", "name of the cluster (default dev)")
	release := flags.String("kubernetes", newest(), "release of the control plane, and of nodes that name none")
	gates := flags.String("gates", "", "feature gates of the control plane and of nodes of the same release: A=true,B=false")
	nodes := flags.String("nodes", "", "NAME[=RELEASE][:vm=cgroupfs|systemd][:runtime=crun|containerd2][:GATE=true|false]..., separated by commas: n1,n2=1.33,n3=1.31:A=true,n4:vm=systemd (default n1)")
	if err := parse(flags, args); err != nil {
		return err
	}
	config := cluster.Config{Name: *name, Kubernetes: *release, Progress: stderr}
	var err error
	if config.Gates, err = cluster.ParseGates(*gates); err != nil {
		return fmt.Errorf("--gates: %w", err)
	}
	if config.Nodes, err = cluster.ParseNodes(*nodes); err != nil {
		return fmt.Errorf("--nodes: %w", err)
	}
	c, err := cluster.Start(ctx, config)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "export KUBECONFIG=%s\n", c.Kubeconfig())
	return err
}

func down(ctx context.Context, args []string, stderr io.Writer) error {
	flags := newFlags("down", stderr)
	name := flags.String("name", "dev", "name of the cluster")
	all := flags.Bool("all", false, "take down every cluster of this machine")
	if err := parse(flags, args); err != nil {
		return err
	}
	names := []string{*name}
	if *all {
		var err error
		if names, err = cluster.Names(); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := cluster.Down(ctx, name, stderr); err != nil {
			return err
		}
	}
	return nil
}

func list(stdout io.Writer) error {
	names, err := cluster.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := fmt.Fprintln(stdout, name); err != nil {
			return err
		}
	}
	return nil
}

func build(ctx context.Context, args []string, stderr io.Writer) error {
	versions := cluster.Versions()
	if len(args) > 0 {
		versions = nil
	}
	for _, arg := range args {
		version, err := cluster.ParseVersion(arg)
		if err != nil {
			return err
		}
		versions = append(versions, version)
	}
	for _, version := range versions {
		if _, err := cluster.Binaries(ctx, version, stderr); err != nil {
			return err
		}
	}
	return nil
}

func images(ctx context.Context, args []string, stderr io.Writer) error {
	flags := newFlags("images", stderr)
	output := flags.String("output", "", "directory to write to")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *output == "" {
		return errors.New("--output: must name a directory")
	}
	if err := os.MkdirAll(*output, 0o755); err != nil {
		return fmt.Errorf("making the output directory: %w", err)
	}
	for image, dir := range map[string]string{cluster.WorkloadImage: cluster.WorkloadDir, cluster.AgentImage: cluster.AgentDir} {
		archive := filepath.Join(*output, filepath.Base(dir)+".tar")
		if err := cluster.WriteImage(ctx, image, dir, archive); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stderr, "%s: %s\n", archive, image); err != nil {
			return err
		}
	}
	return nil
}

func newest() string {
	all := cluster.Versions()
	return all[len(all)-1].String()
}

func newFlags(verb string, stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("cluster "+verb, flag.ContinueOnError)
	flags.SetOutput(stderr)
	return flags
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s takes no argument %q", flags.Name(), flags.Arg(0))
	}
	return nil
}
