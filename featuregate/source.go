package featuregate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// rereadEvery is the net below the watch of a file: some file systems tell of nothing.
const rereadEvery = 30 * time.Second

// PolicyConfigMap and PolicyKey are where a policy usually is.
const (
	PolicyConfigMap = "podresize-rollout"
	PolicyKey       = "policy.yaml"
)

// Source tells the text of a policy, and again whenever it may have changed, until ctx ends; err says why there is none.
type Source func(ctx context.Context, tell func(text []byte, err error)) error

// File is a policy in a file. It watches the directory, since a mounted ConfigMap changes by a link in it that is exchanged.
func File(path string) Source {
	return func(ctx context.Context, tell func([]byte, error)) error {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return fmt.Errorf("watching file %q: %w", path, err)
		}
		defer watcher.Close()
		if err := watcher.Add(filepath.Dir(path)); err != nil {
			return fmt.Errorf("watching file %q: %w", path, err)
		}
		reread := time.NewTicker(rereadEvery)
		defer reread.Stop()
		for {
			tell(os.ReadFile(path))
			select {
			case <-ctx.Done():
				return nil
			case <-reread.C:
			case <-watcher.Errors: //nolint:errcheck // events were lost: the file is read now
			case <-watcher.Events:
			}
		}
	}
}

// ConfigMap is a policy in a key of a ConfigMap. It needs list and watch on that ConfigMap.
func ConfigMap(client kubernetes.Interface, namespace, name, key string) Source {
	return func(ctx context.Context, tell func([]byte, error)) error {
		return followConfigMap(ctx, client, namespace, name, func(object *corev1.ConfigMap) {
			if object == nil {
				tell(nil, fmt.Errorf("ConfigMap %q does not exist", namespace+"/"+name))
				return
			}
			text, ok := object.Data[key]
			if !ok {
				tell(nil, fmt.Errorf("ConfigMap %q has no key %q", namespace+"/"+name, key))
				return
			}
			tell([]byte(text), nil)
		})
	}
}

// followConfigMap tells of one ConfigMap, nil if it is not there, until ctx ends.
func followConfigMap(ctx context.Context, client kubernetes.Interface, namespace, name string, tell func(*corev1.ConfigMap)) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}))
	maps := factory.Core().V1().ConfigMaps()
	var mu sync.Mutex
	look := func() { // what the informer has now, so that nothing is told in a wrong order
		mu.Lock()
		defer mu.Unlock()
		object, err := maps.Lister().ConfigMaps(namespace).Get(name)
		if err != nil {
			object = nil
		}
		tell(object)
	}
	handle, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { look() },
		UpdateFunc: func(any, any) { look() },
		DeleteFunc: func(any) { look() },
	})
	if err != nil {
		return fmt.Errorf("watching ConfigMap %q: %w", namespace+"/"+name, err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), handle.HasSynced) {
		return errors.New("ended before it was read")
	}
	look()
	<-ctx.Done()
	return nil
}
