//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/podresize/podresize/resize"
)

// restartCase is a resized pod one of whose containers, app, dies.
type restartCase struct {
	name string
	pod  *corev1.Pod
	want want
	held kernel
}

func restartCases() []restartCase {
	return []restartCase{
		{
			name: "after a resize up",
			pod:  pod("dies-up", container("app", amounts{"100m/200m", "64Mi/128Mi"})),
			want: want{"app": {"300m/600m", "128Mi/256Mi"}},
			held: kernel{"": {307, 60000, 256 * mi}, "app": {307, 60000, 256 * mi}},
		},
		{
			// The kubelet starts it with more than its pod has, which cgroup v1 refuses.
			name: "after a resize down",
			pod:  pod("dies-down", container("app", amounts{"200m/400m", "64Mi/128Mi"})),
			want: want{"app": {"100m/100m", "32Mi/64Mi"}},
			held: kernel{"": {102, 10000, 64 * mi}, "app": {102, 10000, 64 * mi}},
		},
		{
			name: "after a resize down, guaranteed",
			pod:  pod("dies-guaranteed", container("app", amounts{"300m/300m", "128Mi/128Mi"})),
			want: want{"app": {"100m/100m", "64Mi/64Mi"}},
			held: kernel{"": {102, 10000, 64 * mi}, "app": {102, 10000, 64 * mi}},
		},
		{
			name: "after a resize down, beside another container",
			pod:  pod("dies-beside", container("app", amounts{"200m/400m", "64Mi/128Mi"}), container("log", amounts{"50m/50m", "32Mi/32Mi"})),
			want: want{"app": {"100m/100m", "32Mi/64Mi"}},
			held: kernel{"": {153, 15000, 96 * mi}, "app": {102, 10000, 64 * mi}, "log": {51, 5000, 32 * mi}},
		},
	}
}

// testContainerRestart: a container that dies comes back at the first try, and with what it was resized to.
func (e *env) testContainerRestart(t *testing.T) {
	for _, c := range restartCases() {
		t.Run(c.name, func(t *testing.T) {
			r, pod := e.newResizer(t), e.run(t, c.pod)
			e.resizeTo(t, r, pod, c.want.resources())
			e.kill(t, pod, "app")
			// Done with the new count of restarts speaks of the new process: the kernel must hold it by then.
			e.settle(t, r, pod, c.want.resources(), func(res resize.Result) error {
				if res.State != resize.StateDone || res.Containers[0].RestartCount == 0 {
					return fmt.Errorf("%d restarts", res.Containers[0].RestartCount)
				}
				return nil
			})
			equal(t, "the kernel when Done is said again", e.read(t, pod), c.held)
			if restarts := runsOf(e.latest(t, pod))["app"].Restarts; restarts != 1 {
				t.Errorf("%d restarts for one death", restarts)
			}
			for _, event := range e.events(t.Context(), pod) {
				if strings.HasPrefix(event, corev1.EventTypeWarning) {
					t.Errorf("event: %s", event)
				}
			}
		})
	}
}

// kill ends every process of a container.
func (e *env) kill(t *testing.T, pod *corev1.Pod, container string) {
	t.Helper()
	if err := e.KillContainer(t.Context(), pod, container); err != nil {
		t.Fatal(err)
	}
}
