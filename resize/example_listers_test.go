package resize_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/resize"
)

// withListers makes a Resizer that reads nodes from an informer that the program has anyway.
func withListers(typed kubernetes.Interface, nodes listersv1.NodeLister) *resize.InPlace {
	return resize.NewInPlace(typed, resize.InPlaceOptions{
		Nodes: func(_ context.Context, name string) (*corev1.Node, error) { return nodes.Get(name) },
	})
}

// withManager does the same with the client of a controller-runtime manager, which reads from its cache.
func withManager(typed kubernetes.Interface, cached client.Reader) *resize.InPlace {
	return resize.NewInPlace(typed, resize.InPlaceOptions{
		Nodes: func(ctx context.Context, name string) (*corev1.Node, error) {
			node := &corev1.Node{}
			return node, cached.Get(ctx, client.ObjectKey{Name: name}, node)
		},
	})
}

// With nodes from a cache, and pods from one too, a resize that waits costs no request at all.
func ExampleInPlaceOptions() {
	run := func(typed kubernetes.Interface, mgr interface{ GetClient() client.Client }) {
		factory := informers.NewSharedInformerFactory(typed, 0)
		_ = withListers(typed, factory.Core().V1().Nodes().Lister())
		_ = withManager(typed, mgr.GetClient())
	}
	_ = run
}
