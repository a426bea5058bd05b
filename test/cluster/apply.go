package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// fieldManager is the name under which Apply owns fields.
const fieldManager = "podresize-test"

// Apply builds the kustomization in dir (relative to the test module, as in
// LoadImage: "../manifests/base") and applies it server-side: first what the
// rest needs, namespaces and CRDs, and it waits until those are served.
func (a *API) Apply(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	path, err := SourceDir(ctx, dir)
	if err != nil {
		return err
	}
	objects, err := kustomize(path)
	if err != nil {
		return fmt.Errorf("building kustomization %q: %w", dir, err)
	}
	client, err := dynamic.NewForConfig(a.admin)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	to := applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(a.client.Discovery()))}
	for _, object := range objects {
		if err := to.apply(ctx, object); err != nil {
			return fmt.Errorf("applying %s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// kustomize returns the objects in the order in which to apply them.
func kustomize(dir string) ([]*unstructured.Unstructured, error) {
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		content, err := resource.Map()
		if err != nil {
			return nil, err
		}
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return applyRank(a) - applyRank(b) })
	return objects, nil
}

func applyRank(object *unstructured.Unstructured) int {
	switch object.GetKind() {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	default:
		return 2
	}
}

type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func (a applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := a.resource(object)
	if err != nil {
		return err
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil || object.GetKind() != "CustomResourceDefinition" {
		return err
	}
	defer a.mapper.Reset()
	return poll(ctx, 50*time.Millisecond, func() error {
		latest, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		return established(latest)
	})
}

func (a applier) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return a.client.Resource(mapping.Resource), nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return a.client.Resource(mapping.Resource).Namespace(namespace), nil
}

// established is nil for a CRD that the API server serves.
func established(crd *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "Established" && condition["status"] == "True" {
			return nil
		}
	}
	return errors.New("it is not established")
}

// WaitDaemonSet returns when a DaemonSet runs, as it is now, on every node that
// it is for, and that is at least one.
func (a *API) WaitDaemonSet(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := poll(ctx, 100*time.Millisecond, func() error {
		set, err := a.client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fatalError{err}
		}
		if err != nil {
			return err
		}
		status := set.Status
		want := status.DesiredNumberScheduled
		if status.ObservedGeneration < set.Generation || want == 0 || status.UpdatedNumberScheduled < want || status.NumberReady < want {
			return fmt.Errorf("%d of %d pods are ready", status.NumberReady, want)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting for DaemonSet %q: %w", namespace+"/"+name, err)
	}
	return nil
}
