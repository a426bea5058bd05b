package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/podresize/podresize/resize"
)

// plan is `podresize plan`.
type plan struct {
	asked

	cluster *cluster
	output  string
}

func newPlan(c *cluster) *cobra.Command {
	p := &plan{cluster: c}
	cmd := &cobra.Command{
		Use:   "plan POD [-c CONTAINER] [--cpu QUANTITY] [--memory QUANTITY]",
		Short: "Tell what set would do, and what stands against it; change nothing",
		Long: `Tell what set would do, and what stands against it, without changing anything.
The exit code is the one that set would end with.

` + askedHelp,
		Args: onePod,
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	p.addFlags(flags)
	c.addPlanFlags(flags)
	flags.StringVarP(&p.output, "output", "o", "", "Output format: json, or empty for text")
	return cmd
}

func (p *plan) run(cmd *cobra.Command, podName string) error {
	quantities, err := p.quantities()
	if err != nil {
		return err
	}
	if err := checkOutput(p.output); err != nil {
		return err
	}
	ctx := cmd.Context()
	session, pod, err := p.cluster.open(ctx, podName)
	if err != nil {
		return err
	}
	now, err := session.look(ctx, pod)
	if err != nil {
		return err
	}
	name, err := p.pick(now)
	if err != nil {
		return err
	}
	want := resize.Resources{Containers: map[string]resize.Requirements{name: wanted(now, name, quantities)}}
	if err := noChange(session, podName, name, now, want.Containers[name]); err != nil {
		return err
	}
	forecast, err := session.resizer.Plan(ctx, pod, want)
	if err != nil {
		return fromFailure(err)
	}
	if err := showForecast(cmd.OutOrStdout(), p.output, forecast); err != nil {
		return err
	}
	stops := resize.Stops(forecast.Findings)
	if len(stops) == 0 {
		return nil
	}
	err = fromResult(resize.Result{State: stops[0].State, Reason: stops[0].Reason, Message: stops[0].Message})
	return &commandError{code: exitCode(err), reason: string(stops[0].Reason), err: err, said: true}
}

func showForecast(w io.Writer, output string, f resize.Forecast) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(f)
	}
	_, err := fmt.Fprintf(w, "Path: %s\n", orNone(string(f.Path)))
	line := func(format string, args ...any) {
		_, lineErr := fmt.Fprintf(w, format+"\n", args...)
		err = errors.Join(err, lineErr)
	}
	for name, r := range f.Changes.Containers {
		line("Change: container %q gets %s", name, describe(r))
		line("Back:   container %q had %s", name, describe(f.Previous.Containers[name]))
	}
	for _, finding := range f.Findings {
		if finding.State == "" {
			line("Advice: %s: %s", finding.Reason, finding.Message)
		} else {
			line("%s: %s: %s", finding.State, finding.Reason, finding.Message)
		}
	}
	for _, warning := range f.Warnings {
		line("Warning: %s", warning)
	}
	return err
}
