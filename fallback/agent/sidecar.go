package agent

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// validateSidecar gives what is wrong with the options that say whose agent this is.
func (o Options) validateSidecar() []error {
	var errs []error
	if !o.Sidecar {
		if o.NodeName == "" {
			errs = append(errs, errors.New("node-name: must be the name of this node"))
		}
		return errs
	}
	if o.PodUID == "" {
		errs = append(errs, errors.New("pod-uid: must be the UID of the pod that the sidecar is in"))
	}
	if len(validation.IsDNS1123Label(o.PodNamespace)) > 0 {
		errs = append(errs, errors.New("pod-namespace: must be the namespace of the pod that the sidecar is in"))
	}
	if len(o.Namespaces) > 0 {
		errs = append(errs, errors.New("namespaces: is for the agent of a node, not with sidecar"))
	}
	if o.PodSelector != "" {
		errs = append(errs, errors.New("pod-selector: is for the agent of a node, not with sidecar"))
	}
	return errs
}

// watches says which CRIResizes are watched: those of the node, or the one of the sidecar's pod.
func (o Options) watches() cache.Options {
	options := cache.Options{DefaultNamespaces: o.watched(), DefaultTransform: cache.TransformStripManagedFields()}
	// Selectors for a type alone would ask the API server before anything is started.
	if o.Sidecar {
		options.DefaultNamespaces = map[string]cache.Config{o.PodNamespace: {}}
		options.DefaultFieldSelector = fields.OneTermEqualSelector("metadata.name", o.PodUID)
		return options
	}
	options.DefaultLabelSelector = labels.SelectorFromSet(labels.Set{v1alpha1.LabelNode: v1alpha1.NodeLabelValue(o.NodeName)})
	return options
}

// holds says whether a CRIResize is this agent's. Each has one: its pod's sidecar, if it names it, or else the agent of its node.
func (o Options) holds(object *v1alpha1.CRIResize) bool {
	if o.Sidecar {
		return object.Spec.Sidecar == v1alpha1.SidecarContainer && object.Spec.PodUID == o.PodUID
	}
	return object.Spec.Sidecar == "" && object.Spec.NodeName == o.NodeName
}

// hear waits until the API server has told a sidecar what CRIResize there is, in place of an answer about a Lease: it needs none, since
// nobody else writes what it writes.
func (a *Agent) hear(ctx context.Context) error {
	for {
		err := a.client.List(ctx, &v1alpha1.CRIResizeList{}) // from the cache, when it is filled
		if err == nil {
			a.lock.heard.Store(a.clock.Now().UnixNano())
			return nil
		}
		if ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "CRIResizes not listed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(beatEvery): // as often as the controller asks for the API type
		}
	}
}

// pulse is for a look of a sidecar: it renews its sign of life, when that is due. A look comes at least every lookAgain.
func (a *Agent) pulse(status *v1alpha1.CRIResizeStatus) {
	now := a.clock.Now()
	if !a.opts.Sidecar || status.Heartbeat != nil && now.Sub(status.Heartbeat.Time).Abs() < renewEvery {
		return
	}
	status.Heartbeat = ptr.To(metav1.NewMicroTime(now))
}
