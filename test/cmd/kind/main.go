// Command kind starts and stops clusters by kind and writes their configurations; see package kind.
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

	"github.com/podresize/podresize/test/kind"
	"github.com/podresize/podresize/test/setting"
)

const usage = `usage:
  kind up   [--name dev] SETTING   start a cluster (1.29, 1.29:on, mixed:nodes, ...), print "export KUBECONFIG=..." on stdout
  kind down [--name dev]           remove it
  kind configs --output DIR        write the configurations of all settings
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kind:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("what to do?\n%s", strings.TrimSpace(usage))
	}
	flags := flag.NewFlagSet("kind "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	name := flags.String("name", "dev", "name of the cluster")
	output := flags.String("output", "", "directory to write to")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return up(ctx, *name, flags.Args(), stdout, stderr)
	case "down":
		return kind.Stop(*name, stderr)
	case "configs":
		return configs(*output)
	default:
		return fmt.Errorf("unknown verb %q\n%s", args[0], strings.TrimSpace(usage))
	}
}

func up(ctx context.Context, name string, settings []string, stdout, stderr io.Writer) error {
	if len(settings) != 1 {
		return fmt.Errorf("settings %q: name one", settings)
	}
	s, err := setting.Parse(settings[0])
	if err != nil {
		return err
	}
	config := s.Config
	config.Name, config.Progress = name, stderr
	c, err := kind.Start(ctx, config)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "export KUBECONFIG=%s\n", c.Kubeconfig())
	return err
}

// configs writes all files, and leaves none that is not among them.
func configs(dir string) error {
	if dir == "" {
		return errors.New("--output: name a directory")
	}
	files, err := kind.Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing configurations: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return fmt.Errorf("looking for old configurations: %w", err)
	}
	for _, path := range old {
		if _, found := files[filepath.Base(path)]; found {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing an old configuration: %w", err)
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("writing a configuration: %w", err)
		}
	}
	return nil
}
