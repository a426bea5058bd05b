package agent

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// undo is another writer: it sets a container's figures as the kubelet made them.
func (b *bed) undo(t *testing.T) {
	t.Helper()
	b.set(t, podPath+"/c-app", figures.Before(&newObject().Spec).Containers["app"])
}

// mustLook has the agent look once, without an error.
func (b *bed) mustLook(t *testing.T) time.Duration {
	t.Helper()
	result, err := b.look(t)
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// TestContended: another writer is answered at once, then after a second, then after pauses that grow; what it does is counted and told.
func TestContended(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			b.mustLook(t)
			var pauses []time.Duration
			for range 9 {
				b.undo(t)
				var waited time.Duration
				for again := b.mustLook(t); again != lookAgain; again = b.mustLook(t) {
					waited += again
					b.passes(again)
				}
				pauses = append(pauses, waited)
				said := b.says(t, v1alpha1.ReasonApplied)
				b.holds(t, figures.Wanted(&said.Spec))
			}
			want := []time.Duration{0, time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, lastPause, lastPause}
			if diff := cmp.Diff(want, pauses); diff != "" {
				t.Errorf("pauses before the repairs: %s", diff)
			}
			b.undo(t)
			b.mustLook(t)
			said := b.says(t, v1alpha1.ReasonContended, "10 times in a row", `container "app"`, "5m0s")
			if said.Status.Repairs != 9 {
				t.Errorf("%d repairs are told, want 9", said.Status.Repairs)
			}
			b.change(t, func(s *v1alpha1.CRIResizeSpec) { s.Containers[0].Wanted.Limits = list("cpu=1 memory=1Gi") })
			b.mustLook(t)
			b.says(t, v1alpha1.ReasonApplied) // who asks for something else is not made to wait
		})
	}
}

// TestRefusedByAnother: another writer may make the kernel refuse what is written, as cgroup v1 does a container above its pod. That is
// told as contention; a container that ends during an update is none.
func TestRefusedByAnother(t *testing.T) {
	b := enlarging(t, false)
	b.mustLook(t)
	b.undo(t)
	b.fail = func(string) error { return fmt.Errorf("%w: write cpu.cfs_quota_us: invalid argument", cri.ErrRefused) }
	if again := b.mustLook(t); again != secondRepair {
		t.Fatalf("the second try is %s later", again)
	}
	b.passes(secondRepair)
	if again := b.mustLook(t); again != lookSoon {
		t.Fatalf("looks again after %s", again)
	}
	said := b.says(t, v1alpha1.ReasonContended, "3 times in a row", "invalid argument", firstPause.String())
	if paths := b.agent.pods.byPath; len(paths) > 0 {
		t.Errorf("watches %v", paths)
	}
	b.fail = nil
	b.passes(firstPause)
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
	b.holds(t, figures.Wanted(&said.Spec))

	for _, id := range []string{"run-1", "run-2", "run-3"} {
		b.restarts(t, id)
		b.fail = func(string) error {
			b.stops("app")
			return fmt.Errorf("%w: no such container", cri.ErrRefused)
		}
		if _, err := b.look(t); err == nil {
			t.Error("no other try")
		}
		b.says(t, v1alpha1.ReasonWriteFailed)
	}
}

// TestCalm: what happens now and then, as a reload of systemd does, is mended at once each time.
func TestCalm(t *testing.T) {
	b := enlarging(t, false)
	b.mustLook(t)
	for range 5 {
		b.passes(calm)
		b.undo(t)
		if again := b.mustLook(t); again != lookAgain {
			t.Fatalf("a repair waits %s", again)
		}
		b.says(t, v1alpha1.ReasonApplied)
	}
}

// TestCrashLoop: a container that is restarted for ever is no other writer.
func TestCrashLoop(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := enlarging(t, unified)
			b.mustLook(t)
			for _, id := range []string{"run-1", "run-2", "run-3", "run-4", "run-5"} {
				b.restarts(t, id)
				if again := b.mustLook(t); again != lookAgain {
					t.Fatalf("the repair of %s waits %s", id, again)
				}
				said := b.says(t, v1alpha1.ReasonApplied)
				held, err := b.tree.Read(podPath + "/" + id)
				if err != nil {
					t.Fatal(err)
				}
				if d := differs(held, []figures.Cgroup{figures.Wanted(&said.Spec).Containers["app"]}); d != "" {
					t.Errorf("%s: its %s", id, d)
				}
			}
			if said := b.says(t, v1alpha1.ReasonApplied); said.Status.Repairs != 5 {
				t.Errorf("%d repairs are told, want 5", said.Status.Repairs)
			}
		})
	}
}

// TestStartedMeanwhile: a container that is started during an update finds the room that it was given, which nobody else made.
func TestStartedMeanwhile(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			object := asking("cpu=150m memory=200Mi", "cpu=60m memory=80Mi")
			b := newBed(t, unified, object)
			b.stops("app")
			b.fail = func(string) error {
				b.restarts(t, "run-1")
				return nil
			}
			for range contendedAfter {
				if _, err := b.look(t); err == nil {
					t.Error("no other try")
				}
				b.says(t, v1alpha1.ReasonPending, "started meanwhile")
				b.stops("app")
				b.set(t, podPath+"/c-log", figures.Before(&object.Spec).Containers["log"])
			}
			b.restarts(t, "run-1")
			b.fail = nil
			b.mustLook(t)
			b.says(t, v1alpha1.ReasonApplied)
		})
	}
}

// TestAwayWhileItRepairs: repairs go on without the API server, and are told when it is back.
func TestAwayWhileItRepairs(t *testing.T) {
	b := enlarging(t, false)
	b.mustLook(t)
	b.report = func() error { return errors.New("away") }
	b.restarts(t, "run-1")
	b.undo(t)
	if _, err := b.look(t); err == nil {
		t.Error("no other try to tell")
	}
	held, err := b.tree.Read(podPath + "/run-1")
	if err != nil {
		t.Fatal(err)
	}
	want := figures.Wanted(&asking("cpu=2 memory=1Gi", "cpu=1 memory=512Mi").Spec)
	if d := differs(held, []figures.Cgroup{want.Containers["app"]}); d != "" {
		t.Errorf("without the API server: its %s", d)
	}
	b.report = nil
	b.mustLook(t)
	if said := b.says(t, v1alpha1.ReasonApplied); said.Status.Repairs != 1 {
		t.Errorf("%d repairs are told, want 1", said.Status.Repairs)
	}
}

// TestRoomAtTheEnd: when enforcement ends, the containers of a pod that was resized down keep what they have, and the pod gets room
// for a container that is restarted. After that its cgroup is left alone.
func TestRoomAtTheEnd(t *testing.T) {
	ends := map[string]func(*testing.T, *bed){
		"enforce false": func(t *testing.T, b *bed) {
			t.Helper()
			b.change(t, func(s *v1alpha1.CRIResizeSpec) { s.Enforce = ptr.To(false) })
		},
		"deleted": func(t *testing.T, b *bed) {
			t.Helper()
			if err := b.client.Delete(t.Context(), newObject()); err != nil {
				t.Fatal(err)
			}
		},
	}
	for version, unified := range versions() {
		for end, do := range ends {
			t.Run(version+" "+end, func(t *testing.T) {
				object := asking("cpu=150m memory=200Mi", "cpu=60m memory=80Mi")
				b := newBed(t, unified, object)
				b.mustLook(t)
				do(t, b)
				b.mustLook(t)
				before, want := figures.Before(&object.Spec), figures.Wanted(&object.Spec)
				want.Cgroup = figures.Cgroup{Shares: want.Cgroup.Shares, Quota: before.Cgroup.Quota, Period: figures.Period, Memory: before.Cgroup.Memory}
				b.holds(t, want)
				b.set(t, podPath, figures.Cgroup{Shares: 2, Quota: 1000, Period: figures.Period, Memory: 1 << 20})
				left := b.kernel(t)
				b.mustLook(t)
				if diff := cmp.Diff(left, b.kernel(t)); diff != "" {
					t.Errorf("written again: %s", diff)
				}
				if _, ok := b.agent.pods.at(podPath + "/c-app"); ok && end == "deleted" {
					t.Error("the container is still watched")
				}
			})
		}
	}
}

// TestMadeAnew: a CRIResize that was deleted and is made again finds the agent's own figures, which are no difference, whether or not
// the agent looked between.
func TestMadeAnew(t *testing.T) {
	for version, unified := range versions() {
		for between, looks := range map[string]int{"unseen": 0, "seen": 1, "seen twice": 2} {
			t.Run(version+" "+between, func(t *testing.T) {
				b := newBed(t, unified, asking("cpu=150m memory=200Mi", "cpu=60m memory=80Mi"))
				b.mustLook(t)
				if err := b.client.Delete(t.Context(), newObject()); err != nil {
					t.Fatal(err)
				}
				for range looks {
					b.mustLook(t)
				}
				again := asking("cpu=1 memory=300Mi", "cpu=60m memory=300Mi")
				again.UID = "another"
				if err := b.client.Create(t.Context(), again); err != nil {
					t.Fatal(err)
				}
				b.mustLook(t)
				b.says(t, v1alpha1.ReasonApplied)
				b.holds(t, figures.Wanted(&again.Spec))
			})
		}
	}
}

// TestAnswerToTheWrongOne: what was found for a CRIResize is not told of the next one of the same pod, whose generation is the same.
func TestAnswerToTheWrongOne(t *testing.T) {
	b := enlarging(t, false)
	b.mustLook(t)
	b.undo(t)
	again := asking("cpu=1 memory=300Mi", "cpu=60m memory=300Mi")
	again.UID = "another"
	b.report = func() error {
		b.report = nil
		return errors.Join(b.client.Delete(t.Context(), newObject()), b.client.Create(t.Context(), again))
	}
	b.mustLook(t)
	said := &v1alpha1.CRIResize{}
	if err := b.client.Get(t.Context(), name, said); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1alpha1.CRIResizeStatus{}, said.Status); diff != "" {
		t.Errorf("it is told: %s", diff)
	}
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
	b.holds(t, figures.Wanted(&again.Spec))
}

// TestRestartInPause: a container that ends does not wait for the other writer.
func TestRestartInPause(t *testing.T) {
	for version, unified := range versions() {
		t.Run(version, func(t *testing.T) {
			b := newBed(t, unified, asking("cpu=150m memory=200Mi", "cpu=60m memory=80Mi"))
			b.mustLook(t)
			for range contendedAfter {
				b.undo(t)
				for again := b.mustLook(t); again != lookAgain && b.reason(t) != v1alpha1.ReasonContended; again = b.mustLook(t) {
					b.passes(again)
				}
			}
			b.stops("app")
			b.passes(lookSoon)
			b.mustLook(t)
			said := b.says(t, v1alpha1.ReasonContainerNotRunning)
			before := figures.Before(&said.Spec)
			if pod := b.kernel(t)[""]; pod.Quota != before.Cgroup.Quota || pod.Memory != before.Cgroup.Memory {
				t.Errorf("no room for the restart: %+v", pod)
			}
			b.restarts(t, "run-1")
			b.mustLook(t)
			b.says(t, v1alpha1.ReasonApplied)
		})
	}
}

// TestPause: while a repair waits nothing is looked at or watched, however often somebody writes.
func TestPause(t *testing.T) {
	b := enlarging(t, false)
	b.mustLook(t)
	for range contendedAfter {
		b.undo(t)
		for again := b.mustLook(t); again != lookAgain && b.reason(t) != v1alpha1.ReasonContended; again = b.mustLook(t) {
			b.passes(again)
		}
	}
	said, reports := b.says(t, v1alpha1.ReasonContended), len(b.reports)
	for range 100 {
		b.set(t, podPath, figures.Cgroup{Shares: 2, Quota: int64(1000 + len(b.reports)), Period: figures.Period, Memory: 1 << 20})
		b.podErr = errors.New("asked") // nobody is to ask
		b.mustLook(t)
	}
	if b.podErr = nil; len(b.reports) != reports {
		t.Errorf("%d reports while it waited", len(b.reports)-reports)
	}
	if paths := b.agent.pods.byPath; len(paths) > 0 {
		t.Errorf("watches %v", paths)
	}
	b.passes(firstPause)
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
	b.holds(t, figures.Wanted(&said.Spec))
	if _, ok := b.agent.pods.at(podPath + "/c-app"); !ok {
		t.Error("the container is not watched again")
	}
}

// TestForgotten: of a pod that is gone nothing is kept.
func TestForgotten(t *testing.T) {
	b := enlarging(t, false)
	b.mustLook(t)
	if err := b.client.Delete(t.Context(), newObject()); err != nil {
		t.Fatal(err)
	}
	b.podErr = cri.ErrNotFound
	b.mustLook(t)
	if pods := b.agent.pods; len(pods.known)+len(pods.byPath) > 0 {
		t.Errorf("remembers %v, %v", pods.known, pods.byPath)
	}
}

// TestFollow: the cgroups of pod and containers are watched, and no longer those of a run that is over.
func TestFollow(t *testing.T) {
	b := enlarging(t, false)
	b.mustLook(t)
	b.restarts(t, "run-1")
	b.mustLook(t)
	for path, watched := range map[string]bool{podPath: true, podPath + "/run-1": true, podPath + "/c-log": true, podPath + "/c-app": false} {
		if got, ok := b.agent.pods.at(path); ok != watched || ok && got != name {
			t.Errorf("%s is watched: %t, want %t", path, ok, watched)
		}
	}
}
