package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/fallback"
	"github.com/podresize/podresize/internal/gates"
	"github.com/podresize/podresize/resize"
)

// cluster is what the flags that kubectl has too lead to.
type cluster struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides

	agentNamespace string
	plan           resize.PlanOptions
	gates          *gates.Gates
}

func newCommand(out, errOut io.Writer) (*cobra.Command, error) {
	switches, err := gates.New(gates.Table(), gates.Removed())
	if err != nil {
		return nil, err
	}
	c := &cluster{gates: switches, rules: clientcmd.NewDefaultClientConfigLoadingRules(), overrides: &clientcmd.ConfigOverrides{}}
	cmd := &cobra.Command{
		Use:   "podresize",
		Short: "Change the CPU and memory of a running pod without restarting it",
		Long: `podresize changes the CPU and memory of a running pod without restarting it.

It takes the kubelet's own in-place resize where API server and node have it,
and the podresize-agent of the node where they do not.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return &commandError{code: exitUsage, reason: "Usage", err: fmt.Errorf("unknown command %q: set, plan, status and policy are known", args[0])}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			for _, warning := range switches.Warnings() {
				cmd.PrintErrln("podresize: Warning:", warning)
			}
		},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &commandError{code: exitUsage, reason: "Usage", err: err}
	})
	flags := cmd.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests")
	clientcmd.BindOverrideFlags(c.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.StringVar(&c.agentNamespace, "agent-namespace", "", "Namespace of the podresize-agents (default podresize-system)")
	switches.AddFlag(flags)
	cmd.AddCommand(newSet(c), newPlan(c), newStatus(c), newPolicy(c))
	return cmd, nil
}

// addPlanFlags adds what a user may allow.
func (c *cluster) addPlanFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&c.plan.AllowRestart, "allow-restart", false, "Allow a change that the container's resizePolicy turns into a restart")
	flags.BoolVar(&c.plan.AllowPreemption, "allow-preemption", false, "Allow a critical pod to grow, for which its kubelet may end other pods")
}

// session is one command's connection.
type session struct {
	client    kubernetes.Interface
	namespace string
	resizer   *resize.Adapter
}

func (c *cluster) config() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, c.overrides)
}

func (c *cluster) connect() (*session, error) {
	config := c.config()
	cfg, err := config.ClientConfig()
	if err != nil {
		return nil, &commandError{code: exitUsage, reason: "Kubeconfig", err: fmt.Errorf("finding the API server: %w", err)}
	}
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, &commandError{code: exitUsage, reason: "Kubeconfig", err: fmt.Errorf("finding the namespace: %w", err)}
	}
	return c.session(cfg, namespace)
}

func (c *cluster) session(cfg *rest.Config, namespace string) (*session, error) {
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the client: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := fallback.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the API types: %w", err)
	}
	generic, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("preparing the client: %w", err)
	}
	var cri resize.Resizer
	if c.gates.Enabled(gates.CRIFallback) {
		cri = fallback.New(generic, fallback.Options{AgentNamespace: c.agentNamespace, Plan: c.plan})
	}
	return &session{client: typed, namespace: namespace, resizer: resize.NewAdapter(typed, cri, resize.InPlaceOptions{Plan: c.plan, LivePods: true})}, nil
}

// open connects and reads the pod.
func (c *cluster) open(ctx context.Context, podName string) (*session, *corev1.Pod, error) {
	session, err := c.connect()
	if err != nil {
		return nil, nil, err
	}
	pod, err := session.pod(ctx, podName)
	return session, pod, err
}

// look asks how far earlier changes have got. Kubelets before 1.34 must be seen to say the same twice.
func (s *session) look(ctx context.Context, pod *corev1.Pod) (resize.Result, error) {
	for {
		res, err := s.resizer.Resize(ctx, pod, resize.Resources{})
		if err != nil || res.Reason != resize.ReasonLookAgain {
			return res, fromFailure(err)
		}
		select {
		case <-ctx.Done():
			return res, ctx.Err()
		case <-time.After(res.RetryAfter):
		}
		if pod, err = s.pod(ctx, pod.Name); err != nil {
			return res, err
		}
	}
}

func (s *session) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod, err := s.client.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, &commandError{code: exitPodNotFound, reason: string(resize.ReasonPodNotFound), err: fmt.Errorf("pod %q does not exist", s.namespace+"/"+name)}
	case apierrors.IsForbidden(err):
		return nil, &commandError{code: exitForbidden, reason: string(resize.ReasonForbidden), err: fmt.Errorf(`reading pod %q: add this rule to a role of yours: apiGroups: [""], resources: ["pods"], verbs: ["get"]: %w`, s.namespace+"/"+name, err)}
	case err != nil:
		return nil, fromFailure(resize.Failure(fmt.Sprintf("reading pod %q", s.namespace+"/"+name), err))
	}
	return pod, nil
}
