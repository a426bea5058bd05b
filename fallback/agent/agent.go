package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	// pods that are looked at at the same time; one pod never is twice.
	concurrency = 4
	// A failing pod is tried again after firstRetry, then after twice that, up to lastRetry.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
	// syncPatience is how long the API server may be away before the agent's process gives up its start: for ever, practically.
	syncPatience = 365 * 24 * time.Hour
)

// Options are what an agent must be told.
type Options struct {
	// NodeName is the name of the node, as in spec.nodeName of its pods.
	NodeName string
	// RuntimeEndpoint is the absolute path of the runtime's CRI socket, with or without unix:// before it.
	RuntimeEndpoint string
	// CgroupRoot is where the host's cgroup file system is mounted.
	CgroupRoot string
	// SystemdSocket is the path of systemd's private socket, for nodes whose kubelet has the systemd cgroup driver; empty:
	// /run/systemd/private.
	SystemdSocket string
	// Namespace is where the agent keeps its Lease; empty: podresize-system.
	Namespace string
	// Identity is what this agent writes into its Lease: no other agent may have it at the same time, and it may take over at once
	// from one that had it before, as the next container of the same pod does. Empty: the host's name and a random number.
	Identity string
	// Heartbeat is the file by which Probe sees how the agent is; empty: none.
	Heartbeat string
	// Namespaces are those whose CRIResizes the agent watches; it needs no right in others. Empty: all.
	Namespaces []string
	// PodSelector is a label selector: pods that did not match it when their sandboxes were made are left alone. Empty: all match.
	PodSelector string
	// Sidecar says that the agent is a container of a pod, the one of v1alpha1.SidecarContainer's name, and holds just that pod, which
	// PodUID and PodNamespace name. It takes from the machine what a node's agent reads from its Node, keeps no Lease, and needs
	// neither NodeName nor Namespace nor Identity.
	Sidecar              bool
	PodUID, PodNamespace string
	// NoReclaim has memory in use stand in the way of a lower limit without asking the kernel to reclaim any.
	NoReclaim bool
}

// Validate gives everything that is wrong with the options, each in a line that names the option.
func (o Options) Validate() error {
	errs := o.validateSidecar()
	if o.RuntimeEndpoint == "" {
		errs = append(errs, errors.New("runtime-endpoint: must be the path of the runtime's CRI socket"))
	}
	if o.CgroupRoot == "" {
		errs = append(errs, errors.New("cgroup-root: must be where the host's cgroup file system is mounted"))
	}
	return errors.Join(append(errs, o.validateOptIn()...)...)
}

// Agent holds what the CRIResizes of one node ask for.
type Agent struct {
	opts    Options
	client  client.Client
	runtime runtime
	tree    *cgroup.Tree
	systemd systemd
	watcher *cgroup.Watcher
	clock   clock.PassiveClock
	// selector is Options.PodSelector; nil: all pods match.
	selector labels.Selector

	pods    *pods
	finder  *finder
	lock    lock
	node    node
	answers answers
	// reclaims bounds how often memory is reclaimed.
	reclaims reclaims
}

// Run runs an agent until ctx ends. It returns early only for what no waiting mends: bad options, no cgroup file system.
func Run(ctx context.Context, cfg *rest.Config, opts Options) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	if opts.Namespace == "" {
		opts.Namespace = v1alpha1.AgentNamespace
	}
	if opts.SystemdSocket == "" {
		opts.SystemdSocket = "/run/systemd/private"
	}
	if opts.Identity == "" {
		opts.Identity = randomIdentity()
	}
	selector, err := labels.Parse(opts.PodSelector)
	if err != nil {
		return fmt.Errorf("pod-selector: %w", err)
	}
	tree, err := cgroup.Open(opts.CgroupRoot)
	if err != nil {
		return err
	}
	watcher, err := tree.NewWatcher()
	if err != nil { // fs.inotify.max_user_instances is one number for all programs of root on the node
		logr.FromContextOrDiscard(ctx).Error(err, "Cgroups are not watched, changes are noticed at the next look")
	}
	connection, err := cri.Dial(opts.RuntimeEndpoint, cri.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }() // nothing is in flight any more
	units := tree.NewSystemd(opts.SystemdSocket)
	defer units.Close()
	manager, err := newManager(ctx, cfg, opts)
	if err != nil {
		return err
	}
	a := &Agent{
		opts: opts, client: manager.GetClient(), runtime: connection, tree: tree, systemd: units, watcher: watcher,
		clock: clock.RealClock{}, selector: selector, pods: newPods(), finder: newFinder(),
	}
	if err := a.register(manager); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// newManager caches the agent's CRIResizes and nothing else, and serves nothing.
func newManager(ctx context.Context, cfg *rest.Config, opts Options) (ctrl.Manager, error) {
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{v1alpha1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering API types: %w", err)
		}
	}
	manager, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Logger: logr.FromContextOrDiscard(ctx),
		// What runs beside the controller logs too.
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
		Metrics:     metricsserver.Options{BindAddress: "0"},
		Cache:       opts.watches(),
		Client:      client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&coordinationv1.Lease{}, &corev1.Node{}}}},
		Controller: config.Controller{
			MaxConcurrentReconciles: concurrency,
			CacheSyncTimeout:        syncPatience,
			SkipNameValidation:      ptr.To(true), // an agent may run twice in one process, in tests
		},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the watch of CRIResizes: %w", err)
	}
	return manager, nil
}

func (a *Agent) register(manager ctrl.Manager) error {
	moved := make(moves)
	err := ctrl.NewControllerManagedBy(manager).
		Named("criresize").
		For(&v1alpha1.CRIResize{}).
		WatchesRawSource(source.TypedChannel(moved, handler.TypedFuncs[types.NamespacedName, reconcile.Request]{
			GenericFunc: func(_ context.Context, e event.TypedGenericEvent[types.NamespacedName], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
				q.Add(reconcile.Request{NamespacedName: e.Object})
			},
		})).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(a)
	if err != nil {
		return fmt.Errorf("preparing the controller: %w", err)
	}
	lock := func(ctx context.Context) error { return a.keepLock(ctx, moved) }
	if a.opts.Sidecar {
		a.lock.held.Store(true)
		lock = a.hear
	}
	for _, r := range []func(context.Context) error{
		func(ctx context.Context) error { return a.watch(ctx, moved) },
		func(ctx context.Context) error { return a.find(ctx, moved) },
		lock,
		a.beat,
	} {
		if err := manager.Add(runnable(r)); err != nil {
			return err
		}
	}
	return nil
}

// runnable is a function that runs as long as the manager does.
type runnable func(context.Context) error

// Start implements manager.Runnable.
func (r runnable) Start(ctx context.Context) error { return r(ctx) }
