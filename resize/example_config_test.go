package resize_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/fallback"
	"github.com/podresize/podresize/resize"
)

// newAdapter makes a Resizer for clusters of any version.
func newAdapter(cfg *rest.Config) (*resize.Adapter, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 50, 100 // client-go's 5 and 10 are too few for a controller that resizes many pods

	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing the client: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := fallback.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering the API types: %w", err)
	}
	generic, err := client.New(cfg, client.Options{Scheme: scheme}) // no cache: it must read its own writes
	if err != nil {
		return nil, fmt.Errorf("preparing the client of the fallback: %w", err)
	}
	return resize.NewAdapter(typed, fallback.New(generic, fallback.Options{}), resize.InPlaceOptions{}), nil
}

// An Adapter with the CRI path as its fallback, from one rest.Config.
func ExampleNewAdapter() {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		fmt.Println(err)
		return
	}
	resizer, err := newAdapter(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resizer // hand it to your reconciler
}
