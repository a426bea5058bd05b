package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
)

func newStatus(c *cluster) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status POD",
		Short: "Show what the containers of a pod have, and how far a change has got",
		Args:  onePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			session, pod, err := c.open(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			res, err := session.look(cmd.Context(), pod)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output, pod, res)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "Output format: json, or empty for text")
	return cmd
}

func checkOutput(output string) error {
	if output != "" && output != "json" {
		return &commandError{code: exitUsage, reason: "Usage", err: fmt.Errorf("--output: %q is neither json nor empty", output)}
	}
	return nil
}

// answer prints a result; one that is an error is its error line alone, but for programs.
func answer(w io.Writer, output string, pod *corev1.Pod, res resize.Result) error {
	err := fromResult(res)
	if err == nil || output == "json" {
		if showErr := show(w, output, pod, res); showErr != nil {
			return showErr
		}
	}
	return err
}

func show(w io.Writer, output string, pod *corev1.Pod, res resize.Result) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(res)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	write := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format, args...) } // Flush tells of errors
	write("Pod:\t%s/%s on node %q\n", pod.Namespace, pod.Name, pod.Spec.NodeName)
	write("Path:\t%s\n", orNone(string(res.Path)))
	write("State:\t%s (%s): %s\n", res.State, res.Reason, res.Message)
	for _, warning := range res.Warnings {
		write("Warning:\t%s\n", warning)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	write("CONTAINER\tCPU\tMEMORY\tRESTARTS\tKERNEL: SHARES OR WEIGHT\tQUOTA\tMEMORY\n")
	for _, c := range res.Containers {
		write("%s\t%s\t%s\t%d\t%s\n", c.Name, pair(c.Desired, corev1.ResourceCPU), pair(c.Desired, corev1.ResourceMemory), c.RestartCount, kernel(c.Kernel))
	}
	if res.Pod != nil {
		write("(pod)\t\t\t\t%s\n", kernel(res.Pod))
	}
	return t.Flush()
}

// pair is request/limit.
func pair(r resize.Requirements, res corev1.ResourceName) string {
	one := func(list corev1.ResourceList) string {
		if q, ok := list[res]; ok {
			return q.String()
		}
		return "-"
	}
	return one(r.Requests) + "/" + one(r.Limits)
}

func kernel(k *resize.Kernel) string {
	if k == nil {
		return "-\t-\t-"
	}
	weight := "-"
	switch {
	case k.CPUShares != nil:
		weight = strconv.FormatInt(*k.CPUShares, 10)
	case k.CPUWeight != nil:
		weight = strconv.FormatInt(*k.CPUWeight, 10)
	}
	quota := "none"
	if k.CPUQuotaMicroseconds >= 0 {
		quota = fmt.Sprintf("%d/%d", k.CPUQuotaMicroseconds, k.CPUPeriodMicroseconds)
	}
	memory := "none"
	if k.MemoryLimitBytes >= 0 {
		memory = strconv.FormatInt(k.MemoryLimitBytes, 10)
	}
	return weight + "\t" + quota + "\t" + memory
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
