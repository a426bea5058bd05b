package cri_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podresize/podresize/fallback/cri"
)

func TestPod(t *testing.T) {
	kata := sandbox("s1", "u1", 0, ready)
	kata.RuntimeHandler = "kata"
	fake := &fakeRuntime{
		sandboxes: []*runtimeapi.PodSandbox{
			kata,
			sandbox("s2", "u2", 0, notReady), // of an earlier sandbox, with a container left
			sandbox("s3", "u2", 1, ready),
			sandbox("s4", "u3", 2, ready), // two ready ones
			sandbox("s5", "u3", 3, ready),
			sandbox("s6", "u4", 7, notReady),
			sandbox("s8", "u5", 0, ready),
		},
		containers: []*runtimeapi.Container{
			container("s1", "c2", "web", 1, running),
			container("s1", "c1", "web", 0, exited),
			container("s1", "c3", "log", 0, running),
			container("s1", "c4", "init", 0, created),
			container("s2", "c5", "web", 9, running),
			container("s3", "c7", "web", 1, running), // two running attempts, either order
			container("s3", "c6", "web", 0, running),
			container("s3", "c8", "log", 0, running),
			container("s3", "c9", "log", 1, running),
			container("s4", "c10", "web", 0, running),
		},
		info: infoOf("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10"),
	}
	one := func(id, name string, attempt uint32) cri.Container {
		return cri.Container{
			ID: id, Name: name, Attempt: attempt, RestartCount: int(attempt),
			StartedAt: time.Unix(0, startedAt), CgroupsPath: "/kubepods/podu/" + id,
		}
	}
	client := connect(t, fake, cri.Options{})
	for uid, want := range map[string]cri.Pod{
		"u1": {
			SandboxID: "s1", Namespace: "shop", Name: "web", RuntimeHandler: "kata",
			Containers: []cri.Container{one("c3", "log", 0), one("c2", "web", 1)},
		},
		"u2": {
			SandboxID: "s3", Namespace: "shop", Name: "web",
			Containers: []cri.Container{one("c9", "log", 1), one("c7", "web", 1)},
		},
		"u3": {SandboxID: "s5", Namespace: "shop", Name: "web"},
		"u5": {SandboxID: "s8", Namespace: "shop", Name: "web"},
	} {
		t.Run(uid, func(t *testing.T) {
			got, err := client.Pod(t.Context(), uid)
			if err != nil {
				t.Fatal(err)
			}
			want.UID = uid
			want.Labels = map[string]string{"io.kubernetes.pod.uid": uid, "tier": "front"}
			want.Annotations = map[string]string{"owner": "web-team"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	for _, uid := range []string{"u4", "u9", ""} {
		if got, err := client.Pod(t.Context(), uid); !errors.Is(err, cri.ErrNotFound) {
			t.Errorf("%q: got %+v, %v, want ErrNotFound", uid, got, err)
		}
	}
}

// TestSandboxes: what one request tells of pods, of the ready ones alone.
func TestSandboxes(t *testing.T) {
	client := connect(t, &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{
		sandbox("s1", "u1", 0, ready), sandbox("s2", "u2", 0, notReady), sandbox("s3", "u2", 1, ready), sandbox("s4", "u4", 0, notReady),
	}}, cri.Options{})
	all, err := client.Sandboxes(t.Context())
	if err != nil || len(all) != 2 || all[0].UID != "u1" || all[1].SandboxID != "s3" {
		t.Errorf("all are %+v, %v", all, err)
	}
	one, err := client.Sandbox(t.Context(), "u2")
	if err != nil || one.SandboxID != "s3" || one.Annotations["owner"] != "web-team" {
		t.Errorf("u2 is %+v, %v", one, err)
	}
	for _, uid := range []string{"u4", ""} {
		if got, err := client.Sandbox(t.Context(), uid); !errors.Is(err, cri.ErrNotFound) {
			t.Errorf("%q: got %+v, %v, want ErrNotFound", uid, got, err)
		}
	}
}

// TestPodIsNotCached is case-71: what a call found does not live on in the next one.
func TestPodIsNotCached(t *testing.T) {
	socket := socketPath(t)
	fake := func(id string) *fakeRuntime {
		return &fakeRuntime{
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", 0, ready)},
			containers: []*runtimeapi.Container{container("s", id, "web", 0, running)},
			info:       infoOf(id),
		}
	}
	stop := fake("before").serve(t, socket)
	client := dial(t, socket, cri.Options{})
	found := func() (string, error) {
		pod, err := client.Pod(t.Context(), "u")
		if err != nil || len(pod.Containers) != 1 {
			return "", errors.Join(err, errors.New("want one container"))
		}
		return pod.Containers[0].ID, nil
	}
	if id, err := found(); err != nil || id != "before" {
		t.Fatalf("got %q, %v", id, err)
	}
	stop()
	fake("after").serve(t, socket)
	eventually(t, func() error {
		id, err := found()
		if err == nil && id != "after" {
			t.Fatalf("got %q", id)
		}
		return err
	})
}

// TestPodWithoutContainersThatEnd is case-69: those are left out.
func TestPodWithoutContainersThatEnd(t *testing.T) {
	fake := &fakeRuntime{
		sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "u", 0, ready)},
		containers: []*runtimeapi.Container{
			container("s", "c1", "a", 0, running), container("s", "c2", "b", 0, running), container("s", "c3", "c", 0, running),
		},
		info:     infoOf("c1", "c2", "c3"),
		vanished: map[string]bool{"c1": true},
		exited:   map[string]bool{"c3": true},
	}
	got, err := connect(t, fake, cri.Options{}).Pod(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Containers) != 1 || got.Containers[0].ID != "c2" {
		t.Errorf("got %+v, want c2 alone", got.Containers)
	}
	if calls := fake.statusCalls(); calls != 3 {
		t.Errorf("%d containers were asked about, want 3", calls)
	}
}

// TestPodInfo is case-74: the cgroup is found without the resources that a runtime may or may not tell.
func TestPodInfo(t *testing.T) {
	const spec = `"runtimeSpec":{"linux":{"cgroupsPath":"kubepods-podu.slice:crio:c","resources":{"cpu":{"shares":2,"cpus":"2-3","mems":"1"}}}}`
	for name, tc := range map[string]struct {
		info map[string]string
		fail bool
	}{
		"containerd or CRI-O": {info: map[string]string{"info": `{"pid":7,"privileged":false,` + spec + `}`}},
		"nested":              {info: map[string]string{"info": `{"info":{"pid":7,` + spec + `}}`}},
		"another key":         {info: map[string]string{"note": "text", "list": "[1]", "details": `{"pid":7,` + spec + `}`}},
		"no pid":              {info: map[string]string{"info": `{` + spec + `}`}},
		"none":                {fail: true},
		"not JSON":            {info: map[string]string{"info": "text"}, fail: true},
		"no spec":             {info: map[string]string{"info": `{"pid":7}`}, fail: true},
		"empty path":          {info: map[string]string{"info": `{"runtimeSpec":{"linux":{"cgroupsPath":""}}}`}, fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &fakeRuntime{
				sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", 0, ready)},
				containers: []*runtimeapi.Container{container("s", "c", "web", 0, running)},
				info:       map[string]map[string]string{"c": tc.info},
			}
			got, err := connect(t, fake, cri.Options{}).Pod(t.Context(), "u")
			if tc.fail {
				if err == nil || !strings.Contains(err.Error(), `container "web"`) || !strings.Contains(err.Error(), "cgroupsPath") {
					t.Errorf("got %+v, %v, want an error that names the container and what is missing", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c := got.Containers[0]; c.CgroupsPath != "kubepods-podu.slice:crio:c" || c.CPUs != "2-3" || c.MemoryNodes != "1" {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func TestRestartCount(t *testing.T) {
	for annotation, want := range map[string]int{"5": 5, "": 2, "many": 2} {
		c := container("s", "c", "web", 2, running)
		c.Annotations = map[string]string{"io.kubernetes.container.restartCount": annotation}
		fake := &fakeRuntime{
			sandboxes:  []*runtimeapi.PodSandbox{sandbox("s", "u", 0, ready)},
			containers: []*runtimeapi.Container{c},
			info:       infoOf("c"),
		}
		got, err := connect(t, fake, cri.Options{}).Pod(t.Context(), "u")
		if err != nil {
			t.Fatal(err)
		}
		if got.Containers[0].RestartCount != want || got.Containers[0].Attempt != 2 {
			t.Errorf("annotation %q: got %+v, want %d restarts", annotation, got.Containers[0], want)
		}
	}
}

// TestSandboxPathIsAskedForOnce: a sandbox stays where it is, another one of the same pod may be elsewhere.
func TestSandboxPathIsAskedForOnce(t *testing.T) {
	fake := &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{sandbox("first", "u", 0, ready)}, info: infoOf("first", "second")}
	client := connect(t, fake, cri.Options{})
	for _, want := range []string{"first", "first", "second", "second"} {
		fake.sandboxes[0].Id = want
		pod, err := client.Pod(t.Context(), "u")
		if err != nil || pod.CgroupsPath != "/kubepods/podu/"+want {
			t.Errorf("got %q, %v, want that of sandbox %q", pod.CgroupsPath, err, want)
		}
	}
	if fake.statusesOfSandboxes() != 2 {
		t.Errorf("the runtime was asked %d times, want 2", fake.statusesOfSandboxes())
	}
}
