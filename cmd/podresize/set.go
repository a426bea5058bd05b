package main

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
	cluster   *cluster
	container string
	given     map[string]*string // flag to quantity
	wait      bool
	timeout   time.Duration
	output    string
}

func newSet(c *cluster) *cobra.Command {
	s := &set{cluster: c, given: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "set POD [-c CONTAINER] [--cpu QUANTITY] [--memory QUANTITY] [--wait]",
		Short: "Change the CPU and memory of a container of a running pod",
		Long: `Change the CPU and memory of a container of a running pod, without a restart.

--cpu and --memory give the request; a limit, where there is one, keeps its ratio
to it, so that the pod keeps its QoS class. --cpu-limit and its like give one
figure alone.`,
		Example: `  podresize set web-0 --cpu 500m --memory 256Mi --wait
  podresize set web-0 -c app --cpu-limit 2`,
		Args: onePod,
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&s.container, "container", "c", "", "Container to change (default: the only one)")
	for _, f := range []struct{ name, help string }{
		{"cpu", "CPU request, such as 500m or 2; the limit keeps its ratio to it"},
		{"memory", "Memory request, such as 256Mi; the limit keeps its ratio to it"},
		{"cpu-request", "CPU request alone"},
		{"cpu-limit", "CPU limit alone"},
		{"memory-request", "Memory request alone"},
		{"memory-limit", "Memory limit alone"},
	} {
		s.given[f.name] = flags.String(f.name, "", f.help)
	}
	flags.BoolVar(&s.wait, "wait", false, "Wait until the change is proved to be in force")
	flags.DurationVar(&s.timeout, "timeout", 5*time.Minute, "How long --wait waits")
	flags.BoolVar(&c.plan.AllowRestart, "allow-restart", false, "Allow a change that the container's resizePolicy turns into a restart")
	flags.StringVarP(&s.output, "output", "o", "", "Output format: json, or empty for text")
	return cmd
}

func onePod(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &commandError{code: exitUsage, reason: "Usage", err: fmt.Errorf("want the name of one pod, got %d arguments", len(args))}
	}
	return nil
}

func (s *set) run(cmd *cobra.Command, podName string) error {
	quantities, err := s.quantities()
	if err != nil {
		return err
	}
	if err := checkOutput(s.output); err != nil {
		return err
	}
	session, err := s.cluster.connect()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	pod, err := session.pod(ctx, podName)
	if err != nil {
		return err
	}
	now, err := session.resizer.Resize(ctx, pod, resize.Resources{})
	if err != nil {
		return fromFailure(err)
	}
	name, err := s.pick(now)
	if err != nil {
		return err
	}
	want := wanted(now, name, quantities)
	if now.State == resize.StateDone && has(now, name, want) {
		return &commandError{code: exitNoChange, reason: reasonNoChange, err: fmt.Errorf("container %q of pod %q already has %s", name, session.namespace+"/"+podName, describe(want))}
	}
	res, err := s.ask(ctx, cmd, session, pod, resize.Resources{Containers: map[string]resize.Requirements{name: want}})
	if err != nil {
		return err
	}
	return answer(cmd.OutOrStdout(), s.output, pod, res)
}

// quantities parses the flags, before anybody is asked.
func (s *set) quantities() (map[string]resource.Quantity, error) {
	out := map[string]resource.Quantity{}
	for flag, text := range s.given {
		if *text == "" {
			continue
		}
		q, err := resource.ParseQuantity(*text)
		if err != nil || q.Sign() < 0 {
			return nil, &commandError{code: exitInvalidQuantity, reason: reasonInvalidQuantity, err: fmt.Errorf("--%s: %q is not a quantity such as 500m, 2 or 256Mi", flag, *text)}
		}
		out[flag] = q
	}
	if len(out) == 0 {
		return nil, &commandError{code: exitNoChange, reason: reasonNoChange, err: errors.New("nothing to change: give at least one of --cpu, --memory, --cpu-request, --cpu-limit, --memory-request, --memory-limit")}
	}
	for _, res := range []string{"cpu", "memory"} {
		_, both := out[res]
		_, request := out[res+"-request"]
		_, limit := out[res+"-limit"]
		if both && (request || limit) {
			return nil, &commandError{code: exitUsage, reason: "Usage", err: fmt.Errorf("--%s gives request and limit: it does not go with --%s-request or --%s-limit", res, res, res)}
		}
	}
	return out, nil
}

func (s *set) pick(now resize.Result) (string, error) {
	if s.container != "" {
		return s.container, nil
	}
	if len(now.Containers) == 1 {
		return now.Containers[0].Name, nil
	}
	names := make([]string, 0, len(now.Containers))
	for _, c := range now.Containers {
		names = append(names, c.Name)
	}
	return "", &commandError{code: exitUsage, reason: "Usage", err: fmt.Errorf("--container: choose one of %s", strings.Join(names, ", "))}
}

// wanted turns flags into resources, from what the container has now.
func wanted(now resize.Result, name string, quantities map[string]resource.Quantity) resize.Requirements {
	have := desired(now, name)
	want := resize.Requirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, ok := quantities[string(res)]; ok {
			want.Requests[res] = q
			if limit, limited := have.Limits[res]; limited {
				want.Limits[res] = scale(res, limit, have.Requests[res], q)
			}
		}
		if q, ok := quantities[string(res)+"-request"]; ok {
			want.Requests[res] = q
		}
		if q, ok := quantities[string(res)+"-limit"]; ok {
			want.Limits[res] = q
		}
	}
	return want
}

// scale keeps the ratio of a limit to its request when the request becomes another one, rounded up to a milli-CPU or a byte.
func scale(res corev1.ResourceName, limit, request, to resource.Quantity) resource.Quantity {
	switch {
	case request.IsZero() || limit.Cmp(request) == 0:
		return to
	case res == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(ceilRatio(to.MilliValue(), limit.MilliValue(), request.MilliValue()), resource.DecimalSI)
	default:
		return *resource.NewQuantity(ceilRatio(to.Value(), limit.Value(), request.Value()), to.Format)
	}
}

func ceilRatio(to, limit, request int64) int64 {
	product := new(big.Int).Mul(big.NewInt(to), big.NewInt(limit))
	product.Add(product, big.NewInt(request-1))
	return product.Div(product, big.NewInt(request)).Int64()
}

func desired(res resize.Result, name string) resize.Requirements {
	for _, c := range res.Containers {
		if c.Name == name {
			return c.Desired
		}
	}
	return resize.Requirements{}
}

func has(res resize.Result, name string, want resize.Requirements) bool {
	have := desired(res, name)
	return within(want.Requests, have.Requests) && within(want.Limits, have.Limits)
}

func within(want, have corev1.ResourceList) bool {
	for res, q := range want {
		if h, ok := have[res]; !ok || h.Cmp(q) != 0 {
			return false
		}
	}
	return true
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
	return s.await(ctx, cmd, session, pod, want, res)
}

func (s *set) await(ctx context.Context, cmd *cobra.Command, session *session, pod *corev1.Pod, want resize.Resources, res resize.Result) (resize.Result, error) {
	began, told, pause := time.Now(), time.Now(), firstPoll
	for res.RetryAfter > 0 {
		if time.Since(began) > s.timeout {
			return res, notWithin(s.timeout, res)
		}
		if time.Since(told) >= tellEvery {
			cmd.PrintErrf("%s: %s (%s): %s\n", time.Since(began).Round(time.Second), res.State, res.Reason, res.Message)
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			return res, &commandError{code: exitInterrupted, reason: "Interrupted", err: fmt.Errorf("the change stays asked for; see podresize status %s", pod.Name)}
		case <-time.After(pause):
		}
		pause = min(pause*2, lastPoll)
		latest, err := session.pod(ctx, pod.Name)
		if err != nil {
			return res, err
		}
		if latest.UID != pod.UID {
			return res, &commandError{code: exitPodNotFound, reason: string(resize.ReasonPodNotFound), err: fmt.Errorf("pod %q was replaced while waiting", pod.Name)}
		}
		next, err := session.resizer.Resize(ctx, latest, want)
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

func describe(r resize.Requirements) string {
	var parts []string
	for _, list := range []struct {
		kind string
		of   corev1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		for _, res := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := list.of[res]; ok {
				parts = append(parts, fmt.Sprintf("%s.%s %s", list.kind, res, q.String()))
			}
		}
	}
	return strings.Join(parts, ", ")
}
