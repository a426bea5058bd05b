package agent

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/podresize/podresize/fallback/cri"
)

// errNotOptedIn: the pod's labels are not those that the agent was told to act on. Nothing of such a pod is read or written.
var errNotOptedIn = errors.New("the pod is not one that this agent resizes")

// optedIn checks the labels that the pod had when its sandbox was made, as the runtime tells them: later ones do not count, so that the
// right to label a pod is none to have it resized.
func (a *Agent) optedIn(pod cri.Pod) error {
	if a.selector == nil || a.selector.Matches(labels.Set(pod.Labels)) {
		return nil
	}
	return fmt.Errorf("%w: its labels at its start do not match %q", errNotOptedIn, a.selector)
}

// validateOptIn gives what is wrong with the options that say which pods the agent is for.
func (o Options) validateOptIn() []error {
	var errs []error
	for _, name := range o.Namespaces {
		if len(validation.IsDNS1123Label(name)) > 0 {
			errs = append(errs, fmt.Errorf("namespaces: %q cannot be the name of a namespace", name))
		}
	}
	if _, err := labels.Parse(o.PodSelector); err != nil {
		errs = append(errs, fmt.Errorf("pod-selector: %w", err))
	}
	return errs
}

// isFor says whether the agent acts on pods of a namespace.
func (o Options) isFor(namespace string) bool {
	return len(o.Namespaces) == 0 || slices.Contains(o.Namespaces, namespace)
}

// watched are the namespaces whose CRIResizes are watched; nil: all.
func (o Options) watched() map[string]cache.Config {
	if len(o.Namespaces) == 0 {
		return nil
	}
	out := make(map[string]cache.Config, len(o.Namespaces))
	for _, name := range o.Namespaces {
		out[name] = cache.Config{}
	}
	return out
}
