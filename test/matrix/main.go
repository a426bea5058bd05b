// Command matrix runs the suites of test/e2e on one cluster after the other and writes what came of it into docs/matrix.md, one row for
// each cluster: a run on some of them leaves the rows of the others as they are.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/podresize/podresize/test/setting"
)

// options are the flags; the arguments are the clusters, as package setting names them.
type options struct {
	output string
	logs   string
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.output, "output", "../docs/matrix.md", "file with the table")
	flags.StringVar(&o.logs, "logs", "../bin/matrix", "directory for what the tests say")
}

func main() {
	var o options
	o.addFlags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, o, flag.Args(), os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// run tests on all clusters, whatever comes of one, and fails if any of them failed.
func run(ctx context.Context, o options, names []string, progress io.Writer) error {
	if len(names) == 0 {
		names = setting.All()
	}
	settings, err := setting.ParseAll(strings.Join(names, " "))
	if err != nil {
		return err
	}
	if _, err := readTable(o.output); err != nil { // now, not after hours
		return err
	}
	commit, err := describe(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.logs, 0o755); err != nil {
		return fmt.Errorf("making the directory for logs: %w", err)
	}
	var failed []string
	for i, s := range settings {
		say(progress, "%d of %d: the suites on %s", i+1, len(settings), s.Name)
		r, err := o.test(ctx, s)
		if err != nil {
			return err
		}
		say(progress, "%d of %d: %s %s, %d tests in %s", i+1, len(settings), s.Name, r.verdict(), r.tests, r.took)
		if !r.passed() {
			failed = append(failed, s.Name)
		}
		r.commit, r.date = commit, time.Now().UTC().Format(time.DateOnly)
		if err := writeRow(o.output, s, r); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s; see %s", strings.Join(failed, ", "), o.logs)
	}
	return nil
}

func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...) // a reader that went away is no reason to stop
}

func describe(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty=, with changes").Output()
	if err != nil {
		return "", fmt.Errorf("asking git for the commit: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// test runs the suites on one cluster. Tests that fail are a result; tests that cannot be run are an error.
func (o options) test(ctx context.Context, s setting.Setting) (result, error) {
	path := o.logs + "/" + s.Config.Name + ".log"
	log, err := os.Create(path)
	if err != nil {
		return result{}, fmt.Errorf("writing the log: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "go", "test", "-tags=e2e", "-json", "-count=1", "-vet=off", "-timeout=90m", "./e2e")
	cmd.Env = append(os.Environ(), "PODRESIZE_KUBERNETES="+s.Name)
	// The tests themselves must hear of an interrupt, not go test alone: they take their cluster down.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, fmt.Errorf("running the tests: %w", err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return result{}, fmt.Errorf("running the tests: %w", err)
	}
	r, readErr := read(out, log)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || readErr != nil {
		return result{}, fmt.Errorf("running the tests on %s: %w", s.Name, errors.Join(err, readErr))
	}
	r.exit = cmd.ProcessState.ExitCode()
	r.took = time.Since(began).Round(time.Second)
	return r, nil
}
