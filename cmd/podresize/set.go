package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
)

const (
	firstPoll = 50 * time.Millisecond
	lastPoll  = 2 * time.Second
	// tellEvery is how often a wait says that it still waits.
	tellEvery = 2 * time.Second
)

// set is `podresize set`.
type set struct {
	asked

	cluster *cluster
	wait    bool
	timeout time.Duration
	output  string
}

func newSet(c *cluster) *cobra.Command {
	s := &set{cluster: c}
	cmd := &cobra.Command{
		Use:   "set POD [-c CONTAINER] [--cpu QUANTITY] [--memory QUANTITY] [--wait]",
		Short: "Change the CPU and memory of a container of a running pod",
		Long: `Change the CPU and memory of a container of a running pod, without a restart.

` + askedHelp,
		Example: `  podresize set web-0 --cpu 500m --memory 256Mi --wait
  podresize set web-0 -c app --cpu-limit 2`,
		Args: onePod,
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	s.addFlags(flags)
	flags.BoolVar(&s.wait, "wait", false, "Wait until the change is proved to be in force")
	flags.DurationVar(&s.timeout, "timeout", 5*time.Minute, "How long --wait waits")
	c.addPlanFlags(flags)
	flags.StringVarP(&s.output, "output", "o", "", "Output format: json, or empty for text")
	return cmd
}

func (s *set) run(cmd *cobra.Command, podName string) error {
	quantities, err := s.quantities()
	if err != nil {
		return err
	}
	if err := checkOutput(s.output); err != nil {
		return err
	}
	ctx := cmd.Context()
	session, pod, err := s.cluster.open(ctx, podName)
	if err != nil {
		return err
	}
	now, err := session.look(ctx, pod)
	if err != nil {
		return err
	}
	name, err := s.pick(now)
	if err != nil {
		return err
	}
	want := wanted(now, name, quantities)
	if err := noChange(session, podName, name, now, want); err != nil {
		return err
	}
	res, err := s.ask(ctx, cmd, session, pod, resize.Resources{Containers: map[string]resize.Requirements{name: want}})
	if err != nil {
		return err
	}
	return answer(cmd.OutOrStdout(), s.output, pod, res)
}

// ask resizes once, or with --wait until there is nothing to wait for.
func (s *set) ask(ctx context.Context, cmd *cobra.Command, session *session, pod *corev1.Pod, want resize.Resources) (resize.Result, error) {
	res, err := session.resizer.Resize(ctx, pod, want)
	if err != nil {
		return res, fromFailure(err)
	}
	if !s.wait {
		return res, nil
	}
	last, err := s.await(ctx, cmd, session, pod, want, res)
	if len(last.Warnings) == 0 {
		last.Warnings = res.Warnings // what was said of the change holds for its end too
	}
	return last, err
}

func (s *set) await(ctx context.Context, cmd *cobra.Command, session *session, pod *corev1.Pod, want resize.Resources, res resize.Result) (resize.Result, error) {
	asked := ctx
	ctx, cancel := context.WithTimeout(asked, s.timeout)
	defer cancel()
	began, told, pause := time.Now(), time.Now(), firstPoll
	for res.RetryAfter > 0 {
		if time.Since(told) >= tellEvery {
			cmd.PrintErrf("%s: %s (%s): %s\n", time.Since(began).Round(time.Second), res.State, res.Reason, res.Message)
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			if asked.Err() == nil {
				return res, notWithin(s.timeout, res)
			}
			return res, &commandError{code: exitInterrupted, reason: "Interrupted", err: fmt.Errorf("the change stays asked for; see podresize status %s", pod.Name)}
		case <-time.After(pause):
		}
		pause = min(pause*2, lastPoll)
		latest, err := session.pod(ctx, pod.Name)
		if ctx.Err() != nil {
			continue // ends above
		}
		if err != nil {
			return res, err
		}
		if latest.UID != pod.UID {
			return res, &commandError{code: exitPodNotFound, reason: string(resize.ReasonPodNotFound), err: fmt.Errorf("pod %q was replaced while waiting", pod.Name)}
		}
		next, err := session.resizer.Resize(ctx, latest, want)
		if ctx.Err() != nil {
			continue // ends above
		}
		var failure *resize.Error
		switch {
		case err == nil:
			res = next
		case errors.As(err, &failure) && failure.Retryable:
			res.Message = oneLine(err)
		default:
			return res, fromFailure(err)
		}
	}
	return res, nil
}

// notWithin ends a wait: with the code of what it waited for.
func notWithin(timeout time.Duration, res resize.Result) error {
	code := exitNotConfirmed
	var state *commandError
	if errors.As(fromResult(res), &state) {
		code = state.code
	}
	return &commandError{code: code, reason: string(res.Reason), err: fmt.Errorf("not done after %s: %s", timeout, res.Message)}
}
