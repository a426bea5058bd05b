package main

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podresize/podresize/resize"
)

// asked is what the flags of set and plan ask for.
type asked struct {
	container string
	given     map[string]*string // flag to quantity
}

const askedHelp = `--cpu and --memory give the request; a limit, where there is one, keeps its ratio
to it, so that the pod keeps its QoS class. --cpu-limit and its like give one
figure alone.`

func (a *asked) addFlags(flags *pflag.FlagSet) {
	a.given = map[string]*string{}
	flags.StringVarP(&a.container, "container", "c", "", "Container to change (default: the only one)")
	for _, f := range []struct{ name, help string }{
		{"cpu", "CPU request, such as 500m or 2; the limit keeps its ratio to it"},
		{"memory", "Memory request, such as 256Mi; the limit keeps its ratio to it"},
		{"cpu-request", "CPU request alone"},
		{"cpu-limit", "CPU limit alone"},
		{"memory-request", "Memory request alone"},
		{"memory-limit", "Memory limit alone"},
	} {
		a.given[f.name] = flags.String(f.name, "", f.help)
	}
}

func onePod(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &commandError{code: exitUsage, reason: "Usage", err: fmt.Errorf("want the name of one pod, got %d arguments", len(args))}
	}
	return nil
}

// quantities parses the flags, before anybody is asked.
func (a *asked) quantities() (map[string]resource.Quantity, error) {
	out := map[string]resource.Quantity{}
	for flag, text := range a.given {
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

func (a *asked) pick(now resize.Result) (string, error) {
	if a.container != "" {
		return a.container, nil
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

// noChange is the error for a pod that has what is asked for, and nothing under way.
func noChange(session *session, podName, name string, now resize.Result, want resize.Requirements) error {
	if now.State != resize.StateDone || !has(now, name, want) {
		return nil
	}
	return &commandError{code: exitNoChange, reason: reasonNoChange, err: fmt.Errorf("container %q of pod %q already has %s", name, session.namespace+"/"+podName, describe(want))}
}

func within(want, have corev1.ResourceList) bool {
	for res, q := range want {
		if h, ok := have[res]; !ok || h.Cmp(q) != 0 {
			return false
		}
	}
	return true
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
