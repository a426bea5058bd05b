//go:build e2e

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/test/cluster"
)

// testReload is case-84: a reload of systemd takes nothing back, which it does with what is only written into the files of a slice. It is
// over before the agent could have repaired anything, and no repair is told.
func (e *env) testReload(t *testing.T) {
	p := e.run(t, pod("case-84", container("app", amounts{"100m/200m", "64Mi/128Mi"})))
	e.resizeTo(t, e.newResizer(t), p, want{"app": {"200m/400m", "64Mi/192Mi"}}.resources())
	before := map[string]cluster.Cgroup{"": e.cgroupOf(t, p, ""), "app": e.cgroupOf(t, p, "app")}
	for range 3 {
		if _, err := e.Exec(t.Context(), p.Spec.NodeName, "systemctl", "daemon-reload"); err != nil {
			t.Fatal(err)
		}
		after := map[string]cluster.Cgroup{"": e.cgroupOf(t, p, ""), "app": e.cgroupOf(t, p, "app")}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("after a reload (- before, + after)\n%s", diff)
		}
	}
	e.settle(t, e.newResizer(t), p, resize.Resources{}, func(res resize.Result) error {
		if res.State != resize.StateDone {
			return fmt.Errorf("it is %s", res.State)
		}
		return nil
	})
	if repairs := e.criResize(t, p).Status.Repairs; repairs != 0 {
		t.Errorf("%d repairs are told", repairs)
	}
}
