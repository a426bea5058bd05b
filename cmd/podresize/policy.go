package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/podresize/podresize/featuregate"
	"github.com/podresize/podresize/resize"
)

func newPolicy(c *cluster) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check a roll-out policy, and tell what it says of a pod",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usage("unknown command %q: check and explain are known", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheck(), newPolicyExplain(c))
	return cmd
}

func usage(format string, args ...any) error {
	return &commandError{code: exitUsage, reason: "Usage", err: fmt.Errorf(format, args...)}
}

func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("want one policy file, got %d arguments", len(args))
	}
	return nil
}

func newPolicyCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a roll-out policy; no cluster is asked",
		Long: `Check a roll-out policy. Everything that is wrong with it is told, a line each
that begins with the field. No cluster is asked. FILE may be - for stdin.`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			policy, err := readPolicy(cmd, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is a valid policy; regions that it names: %d%s\n", args[0], len(policy.Regions), killed(policy))
			return err
		},
	}
}

func killed(p *featuregate.Policy) string {
	if !p.KillSwitch.Active {
		return ""
	}
	return "; its kill switch is active, so that everything is Off"
}

// readPolicy prints what is wrong with a policy, a line each.
func readPolicy(cmd *cobra.Command, file string) (*featuregate.Policy, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(cmd.InOrStdin())
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, usage("reading the policy: %w", err)
	}
	policy, err := featuregate.Parse(text)
	if err == nil {
		return policy, nil
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, one := range all {
		cmd.PrintErrf("%s: %s\n", file, one)
	}
	return nil, &commandError{code: exitInvalidPolicy, reason: reasonInvalidPolicy, err: fmt.Errorf("%s: %w", file, err), said: true}
}

// explain is `podresize policy explain`.
type explain struct {
	cluster *cluster
	region  string
	pod     string
	uid     string
	labels  string
	path    string
	at      string
	output  string

	regionGiven bool
}

func newPolicyExplain(c *cluster) *cobra.Command {
	e := &explain{cluster: c}
	cmd := &cobra.Command{
		Use:   "explain FILE [--region REGION] (--pod POD | --uid UID [--labels LABELS])",
		Short: "Tell what a roll-out policy says of a pod, and why",
		Long: `Tell what a roll-out policy says of a pod for each path, and which of its fields
decides. FILE may be - for stdin.

With --pod the pod is read from the cluster, and without --region its node,
whose label topology.kubernetes.io/region tells the region. With --uid no
cluster is asked. Which regions are halted is not looked at.`,
		Example: `  podresize policy explain rollout.yaml --pod web-0
  podresize policy explain rollout.yaml --region eu-west-1 --uid 6ba7b810-9dad-11d1-80b4-00c04fd430c8 --at 2026-03-09T08:00:00Z`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.regionGiven = cmd.Flags().Changed("region")
			return e.run(cmd, args[0])
		},
	}
	e.addFlags(cmd.Flags())
	return cmd
}

func (e *explain) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&e.region, "region", "", "Region; it wins over the label of the pod's node")
	flags.StringVar(&e.pod, "pod", "", "Name of a pod of the cluster")
	flags.StringVar(&e.uid, "uid", "", "UID of a pod, instead of --pod")
	flags.StringVar(&e.labels, "labels", "", "Labels of the pod, with --uid, such as app=web,tier=batch")
	flags.StringVar(&e.path, "path", "", "Path: InPlace or CRI (default both)")
	flags.StringVar(&e.at, "at", "", "Time, such as 2026-03-09T08:00:00Z (default now)")
	flags.StringVarP(&e.output, "output", "o", "", "Output format: json, or empty for text")
}

// explanation is what explain prints for one path.
type explanation struct {
	Path    resize.Path        `json:"path"`
	Mode    resize.Mode        `json:"mode"`
	Reason  featuregate.Reason `json:"reason"`
	Rule    string             `json:"rule,omitempty"`
	Share   float64            `json:"sharePercent"`
	Region  string             `json:"region"`
	Message string             `json:"message"`
}

func (e *explain) run(cmd *cobra.Command, file string) error {
	paths, when, err := e.check()
	if err != nil {
		return err
	}
	policy, err := readPolicy(cmd, file)
	if err != nil {
		return err
	}
	decider, err := featuregate.NewDecider(policy)
	if err != nil {
		return err
	}
	facts, err := e.facts(cmd.Context())
	if err != nil {
		return err
	}
	facts.Now = when
	var all []explanation
	for _, path := range paths {
		facts.Path = path
		d := decider.Decide(facts)
		all = append(all, explanation{
			Path: path, Mode: d.Mode, Reason: d.Reason, Rule: d.Rule, Region: facts.Region, Message: d.Message(),
			Share: float64(featuregate.ShareOf(facts.UID)) / 100,
		})
	}
	return showExplanations(cmd.OutOrStdout(), e.output, all)
}

// check reads the flags, before anybody is asked.
func (e *explain) check() (paths []resize.Path, when time.Time, err error) {
	if err := checkOutput(e.output); err != nil {
		return nil, when, err
	}
	switch {
	case (e.pod == "") == (e.uid == ""):
		return nil, when, usage("give one of --pod and --uid")
	case e.pod != "" && e.labels != "":
		return nil, when, usage("--labels goes with --uid: a pod of the cluster has its own")
	}
	switch path := resize.Path(e.path); path {
	case "":
		paths = []resize.Path{resize.PathInPlace, resize.PathCRI}
	case resize.PathInPlace, resize.PathCRI:
		paths = []resize.Path{path}
	default:
		return nil, when, usage("--path: %q is neither InPlace nor CRI", e.path)
	}
	when = time.Now()
	if e.at != "" {
		if when, err = time.Parse(time.RFC3339, e.at); err != nil {
			return nil, when, usage("--at: %q is no time such as 2026-03-09T08:00:00Z", e.at)
		}
	}
	return paths, when, nil
}

// facts are those of the flags, or of the pod in the cluster.
func (e *explain) facts(ctx context.Context) (featuregate.Facts, error) {
	facts := featuregate.Facts{Region: e.region, UID: types.UID(e.uid)}
	if e.pod == "" {
		set, err := labels.ConvertSelectorToLabelsMap(e.labels)
		if err != nil {
			return facts, usage("--labels: %w", err)
		}
		facts.Labels, facts.Namespace = set, e.cluster.givenNamespace()
		return facts, nil
	}
	session, pod, err := e.cluster.open(ctx, e.pod)
	if err != nil {
		return facts, err
	}
	facts.UID, facts.Namespace, facts.Labels = pod.UID, pod.Namespace, pod.Labels
	if !e.regionGiven && pod.Spec.NodeName != "" {
		facts.Region, err = session.region(ctx, pod.Spec.NodeName)
	}
	return facts, err
}

// givenNamespace is that of --namespace or the kubeconfig; no cluster is asked.
func (c *cluster) givenNamespace() string {
	namespace, _, err := c.config().Namespace()
	if err != nil {
		return metav1.NamespaceDefault
	}
	return namespace
}

func (s *session) region(ctx context.Context, nodeName string) (string, error) {
	node, err := s.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", &commandError{code: exitForbidden, reason: string(resize.ReasonForbidden), err: fmt.Errorf(`reading node %q: give --region, or add this rule to a role of yours: apiGroups: [""], resources: ["nodes"], verbs: ["get"]: %w`, nodeName, err)}
	case err != nil:
		return "", fromFailure(resize.Failure(fmt.Sprintf("reading node %q", nodeName), err))
	}
	return featuregate.RegionOf(node), nil
}

func showExplanations(w io.Writer, output string, all []explanation) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(all)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var errs []error
	line := func(cells ...string) {
		for i, cell := range cells {
			separator := "\t"
			if i == len(cells)-1 {
				separator = "\n"
			}
			_, err := io.WriteString(t, cell+separator)
			errs = append(errs, err)
		}
	}
	line("PATH", "MODE", "REASON", "SHARE", "WHY")
	for _, e := range all {
		line(string(e.Path), string(e.Mode), string(e.Reason), strconv.FormatFloat(e.Share, 'f', 2, 64)+"%", e.Message)
	}
	return errors.Join(append(errs, t.Flush())...)
}
