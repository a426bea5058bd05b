package resizetest

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
)

// Env is what the suite needs of the place in which it runs. All functions may be called by several tests at once; they end the
// test that is passed where they fail.
type Env struct {
	// Resizer makes a Resizer that remembers nothing: the one that a process has which just started.
	Resizer func(t *testing.T) resize.Resizer
	// Run creates a pod from the template and returns it when all its containers run. The template has the pod's name and the
	// names and resources of its containers; namespace and images are for Run to add. The pod is gone after the test.
	Run func(t *testing.T, template *corev1.Pod) *corev1.Pod
	// Live reads the pod from where the truth of it is, past any cache.
	Live func(t *testing.T, pod *corev1.Pod) *corev1.Pod
	// Kernel reads what the kernel holds at this moment: by the name of the container, and for the pod itself by "".
	Kernel func(t *testing.T, pod *corev1.Pod) map[string]resize.Kernel
	// Delete deletes the pod and returns when it is gone. It may be gone already.
	Delete func(t *testing.T, pod *corev1.Pod)

	// KeepsMemoryLimit: no memory limit can be lowered here, as on API servers of 1.33. Then the suite insists on being told so.
	KeepsMemoryLimit bool
}

// rule is one thing that callers of every Resizer rely on.
type rule struct {
	name  string
	check func(*testing.T, *subject)
}

func rules() []rule {
	return []rule{
		{"cpu then memory in two calls ends with both", testTwoCalls},
		{"what is in force is Done and stays Done", testStaysDone},
		{"Done is not said before the kernel holds it", testNotTooEarly},
		{"there and back with pods one read old", testThereAndBack},
		{"a restarted process", testRestart},
		{"there and back across a restart", testThereAndBackRestarted},
		{"two callers with different containers and resources", testTwoCallers},
		{"two callers who want opposite things", testOppositeCallers},
		{"what cannot be done changes nothing", testImpossible},
		{"a memory limit is lowered", testMemoryLimit},
		{"Previous is the way back", testPrevious},
		{"of 20 quick changes the last one wins", testQuickChanges},
		{"a cancelled context", testCancelled},
		{"a pod that is gone, and another of its name", testReplaced},
	}
}

// Run checks every rule, several at a time, each on a pod of its own. It returns when all are checked.
//
// Where two callers share a pod the suite passes pods that were just read: nobody can tell from an old copy alone what others
// have asked for since.
func Run(t *testing.T, env Env) {
	t.Helper()
	t.Run("Conformance", func(t *testing.T) {
		for i, r := range rules() {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				s := newSubject(t, env, fmt.Sprintf("conformance-%d", i))
				r.check(t, s)
				s.unharmed(t)
			})
		}
	})
}
