package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/fallback"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	// libraryUser makes the requests of podresize; the informers' own are made by another user.
	libraryUser  = "bench-podresize"
	informerUser = "bench-informers"
	admins       = "system:masters"

	workers    = 16
	retryAfter = 100 * time.Millisecond
)

// controller is what an embedder would have: informers, a queue, and workers that call the Resizer with cached pods.
type controller struct {
	resizer resize.Resizer
	pods    corelisters.PodLister
	queue   workqueue.TypedDelayingInterface[string]
	ended   context.CancelFunc
	workers sync.WaitGroup
	// inHTTP is how long requests of the Resizer took in all, in nanoseconds.
	inHTTP atomic.Int64

	mu   sync.Mutex
	jobs map[string]*job // by pod name
}

// job is one pod's resize.
type job struct {
	to   amount
	done chan error
	// sent is when the first call of Resize had ended; proved is when the informer first had a pod that shows it.
	sent, proved time.Time
}

func newController(ctx context.Context, s *site, opts resize.InPlaceOptions) (*controller, error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &controller{
		queue: workqueue.NewTypedDelayingQueue[string](), ended: cancel, jobs: map[string]*job{},
	}
	nodes, err := c.watch(running, s)
	if err == nil {
		opts.Nodes = func(_ context.Context, name string) (*corev1.Node, error) { return nodes.Get(name) }
		c.resizer, err = c.newResizer(running, s, opts)
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	for range workers {
		c.workers.Go(func() {
			for c.next(running) {
			}
		})
	}
	return c, nil
}

func (c *controller) stop() {
	c.ended()
	c.queue.ShutDown()
	c.workers.Wait()
}

// watch starts the informers: pods and nodes, and where there is an agent CRIResizes, whose events wake their pods.
func (c *controller) watch(ctx context.Context, s *site) (corelisters.NodeLister, error) {
	config, err := s.RESTConfigAs(informerUser, admins)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(namespace))
	pods, nodes := factory.Core().V1().Pods(), factory.Core().V1().Nodes()
	c.pods = pods.Lister()
	synced := []cache.InformerSynced{nodes.Informer().HasSynced}
	registered, err := pods.Informer().AddEventHandler(onEvent(c.sawPod))
	if err != nil {
		return nil, err
	}
	synced = append(synced, registered.HasSynced)
	factory.Start(ctx.Done())
	if !s.inPlace {
		meta, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		objects := metadatainformer.NewSharedInformerFactory(meta, 0)
		registered, err := objects.ForResource(v1alpha1.GroupVersion.WithResource("criresizes")).Informer().AddEventHandler(onEvent(c.sawOwned))
		if err != nil {
			return nil, err
		}
		synced = append(synced, registered.HasSynced)
		objects.Start(ctx.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, errors.New("waiting for the informers: interrupted")
	}
	return nodes.Lister(), nil
}

func onEvent[T any](saw func(T)) cache.ResourceEventHandler {
	see := func(obj any) {
		if o, ok := obj.(T); ok {
			saw(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) }}
}

func (c *controller) sawPod(pod *corev1.Pod) {
	c.mu.Lock()
	j, ok := c.jobs[pod.Name]
	if ok && j.proved.IsZero() && shows(pod, j.to) {
		j.proved = time.Now()
	}
	c.mu.Unlock()
	if ok {
		c.queue.Add(pod.Name)
	}
}

func (c *controller) sawOwned(object *metav1.PartialObjectMetadata) {
	for _, owner := range object.OwnerReferences {
		c.queue.Add(owner.Name)
	}
}

// shows says whether a pod's status shows this CPU, as somebody would judge who knows nothing of the library.
func shows(pod *corev1.Pod, a amount) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodResizePending || condition.Type == corev1.PodResizeInProgress {
			return false
		}
	}
	if pod.Status.ObservedGeneration > 0 && pod.Status.ObservedGeneration < pod.Generation || len(pod.Status.ContainerStatuses) != 1 {
		return false
	}
	spec, status := pod.Spec.Containers[0].Resources.Limits, pod.Status.ContainerStatuses[0].Resources
	return spec.Cpu().MilliValue() == a.limit && status != nil && status.Limits.Cpu().MilliValue() == a.limit
}

// newResizer is the Adapter, as an embedder with informers makes it.
func (c *controller) newResizer(ctx context.Context, s *site, opts resize.InPlaceOptions) (resize.Resizer, error) {
	config, err := s.RESTConfigAs(libraryUser, admins)
	if err != nil {
		return nil, err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return clocked{next, &c.inHTTP} })
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := fallback.AddToScheme(scheme); err != nil {
		return nil, err
	}
	generic, fallbackOpts := client.Options{Scheme: scheme}, fallback.Options{}
	if !s.inPlace {
		if generic.Cache, fallbackOpts.Pods, err = c.cached(ctx, s, scheme); err != nil {
			return nil, err
		}
	}
	direct, err := client.New(config, generic)
	if err != nil {
		return nil, err
	}
	return resize.NewAdapter(typed, fallback.New(direct, fallbackOpts), opts), nil
}

// cached has nodes, Leases and the pods of a node come from informers, as docs/embedding.md has it for the CRI path.
func (c *controller) cached(ctx context.Context, s *site, scheme *runtime.Scheme) (*client.CacheOptions, podsOfNode, error) {
	config, err := s.RESTConfigAs(informerUser, admins)
	if err != nil {
		return nil, nil, err
	}
	objects, err := crcache.New(config, crcache.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, err
	}
	const nodeName = "spec.nodeName"
	err = objects.IndexField(ctx, &corev1.Pod{}, nodeName, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }) //nolint:forcetypeassert // of pods
	if err != nil {
		return nil, nil, err
	}
	for _, o := range []client.Object{&corev1.Node{}, &coordinationv1.Lease{}} { // now, not at the first resize
		if _, err := objects.GetInformer(ctx, o, crcache.BlockUntilSynced(false)); err != nil {
			return nil, nil, err
		}
	}
	c.workers.Go(func() { _ = objects.Start(ctx) }) // it ends with the controller
	if !objects.WaitForCacheSync(ctx) {
		return nil, nil, errors.New("waiting for the informers: interrupted")
	}
	pods := func(ctx context.Context, node string) ([]corev1.Pod, error) {
		list := &corev1.PodList{}
		err := objects.List(ctx, list, client.MatchingFields{nodeName: node})
		return list.Items, err
	}
	return &client.CacheOptions{Reader: objects, DisableFor: []client.Object{&v1alpha1.CRIResize{}, &corev1.Pod{}}}, pods, nil
}

// podsOfNode is fallback.Options.Pods.
type podsOfNode func(ctx context.Context, node string) ([]corev1.Pod, error)

// clocked adds up how long requests take.
type clocked struct {
	next  http.RoundTripper
	total *atomic.Int64
}

func (c clocked) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	defer func() { c.total.Add(int64(time.Since(began))) }()
	return c.next.RoundTrip(r)
}

// ask gives a pod its job; the job's channel tells when it is done.
func (c *controller) ask(pod string, to amount) *job {
	j := &job{to: to, done: make(chan error, 1)}
	c.mu.Lock()
	c.jobs[pod] = j
	c.mu.Unlock()
	c.queue.Add(pod)
	return j
}

// await returns when the job is done.
func (j *job) await(ctx context.Context) error {
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *controller) next(ctx context.Context) bool {
	pod, shutDown := c.queue.Get()
	if shutDown {
		return false
	}
	defer c.queue.Done(pod)
	c.mu.Lock()
	j := c.jobs[pod]
	c.mu.Unlock()
	if j == nil {
		return true
	}
	again, err := c.reconcile(ctx, pod, j)
	if err == nil && again > 0 {
		c.queue.AddAfter(pod, again)
		return true
	}
	c.mu.Lock()
	if c.jobs[pod] == j {
		delete(c.jobs, pod)
	}
	c.mu.Unlock()
	j.done <- err
	return true
}

// reconcile calls the Resizer once; zero: it is done.
func (c *controller) reconcile(ctx context.Context, name string, j *job) (again time.Duration, err error) {
	pod, err := c.pods.Pods(namespace).Get(name)
	if err != nil {
		return 0, err
	}
	res, err := c.resizer.Resize(ctx, pod, j.to.want())
	if j.sent.IsZero() {
		j.sent = time.Now()
	}
	var failure *resize.Error
	switch {
	case errors.As(err, &failure) && failure.Retryable:
		return retryAfter, nil
	case err != nil:
		return 0, err
	case res.State == resize.StateDone:
		return 0, nil
	case res.RetryAfter > 0:
		return res.RetryAfter, nil
	}
	return 0, fmt.Errorf("pod %q: %s (%s): %s", name, res.State, res.Reason, res.Message)
}
