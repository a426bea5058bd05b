package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	// beatEvery is how often the heartbeat is written, beatSoon while the agent is not ready, and staleAfter how old it may be in
	// an agent that lives.
	beatEvery  = 10 * time.Second
	beatSoon   = time.Second
	staleAfter = 60 * time.Second
	// stuckAfter is longer than any look takes, whose every call has a deadline.
	stuckAfter = 5 * time.Minute
	ready      = "ready"
)

// beat writes the heartbeat for as long as no look is stuck: whether the agent can work now, or why not.
func (a *Agent) beat(ctx context.Context) error {
	if a.opts.Heartbeat == "" {
		return nil
	}
	for {
		state := a.state(ctx)
		if began := a.pods.oldest(); began.IsZero() || a.clock.Since(began) < stuckAfter {
			if err := writeFile(a.opts.Heartbeat, state); err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "Heartbeat not written")
			}
		}
		next := beatEvery
		if state != ready {
			next = beatSoon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
	}
}

// state is what keeps the agent from its work. One that waits for another agent to go is ready: that one does the work.
func (a *Agent) state(ctx context.Context) string {
	if err := a.runtime.Check(ctx); err != nil {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	switch heard := a.lock.heard.Load(); {
	case heard == 0:
		return "the API server has not answered yet"
	case a.opts.Sidecar: // the heartbeat in the status of its CRIResize tells callers the rest
	case a.clock.Since(time.Unix(0, heard)) > v1alpha1.AgentLeaseDuration:
		return "the API server does not answer"
	}
	return ready
}

// writeFile replaces the file in one step.
func writeFile(path, content string) error {
	next := path + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// Probe tells by an agent's heartbeat file why that agent does not live or, when asked, cannot work now. An agent lives as long as it
// goes on by itself: a runtime or an API server that does not answer is no reason to restart it.
func Probe(heartbeat string, canWork bool) error {
	info, err := os.Stat(heartbeat)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	if age := time.Since(info.ModTime()); age > staleAfter {
		return fmt.Errorf("heartbeat: %q was last written %s ago", heartbeat, age.Round(time.Second))
	}
	if !canWork {
		return nil
	}
	state, err := os.ReadFile(heartbeat)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	if string(state) != ready {
		return errors.New(string(state))
	}
	return nil
}
