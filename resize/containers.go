package resize

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// kind is what a container is in its pod: it decides which versions can resize it.
type kind int

const (
	kindNone kind = iota
	kindRegular
	kindSidecar // an init container with restartPolicy Always
	kindInit
	kindEphemeral
)

// find gives the container of that name and its kind; names are unique in a pod. The container of an ephemeral one is nil.
func find(pod *corev1.Pod, name string) (*corev1.Container, kind) {
	for c, k := range containers(pod) {
		if c.Name == name {
			return c, k
		}
	}
	if slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name }) {
		return nil, kindEphemeral
	}
	return nil, kindNone
}

// containers are the regular containers and then the init containers of a pod, with their kinds.
func containers(pod *corev1.Pod) iter.Seq2[*corev1.Container, kind] {
	return func(yield func(*corev1.Container, kind) bool) {
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i], kindRegular) {
				return
			}
		}
		for i := range pod.Spec.InitContainers {
			c, k := &pod.Spec.InitContainers[i], kindInit
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				k = kindSidecar
			}
			if !yield(c, k) {
				return
			}
		}
	}
}

// status gives the status of a container of any kind; nil: there is none yet.
func status(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// suggest helps whoever misspelt the name of a container.
func suggest(pod *corev1.Pod, name string) string {
	best, bestDistance := "", len(name)/2+1
	var have []string
	for c := range containers(pod) {
		have = append(have, c.Name)
		if d := distance(c.Name, name); d < bestDistance {
			best, bestDistance = c.Name, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "it has " + strings.Join(have, ", ")
}

// distance is how many letters have to be added, removed or changed (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// sortedKeys makes what is said about a map come in the same order each time.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
