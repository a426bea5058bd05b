package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podresize/podresize/fallback/cri"
)

// fakeRuntime answers like a container runtime. Its fields are set before it
// serves, but for those behind the mutex.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	info       map[string]map[string]string // verbose info by container id
	exited     map[string]bool              // listed as running, but not any more
	vanished   map[string]bool              // listed, but not known any more
	name       string                       // of the runtime
	hang       bool                         // updates do not return
	updateErr  error

	mu       sync.Mutex
	calls    int
	statuses int // of sandboxes that were asked for
	updates  []*runtimeapi.UpdateContainerResourcesRequest
}

func (f *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: f.name, RuntimeVersion: "1.2.3", RuntimeApiVersion: "v1"}, nil
}

func (f *fakeRuntime) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	filter := r.GetFilter()
	return &runtimeapi.ListPodSandboxResponse{Items: keep(f.sandboxes, func(s *runtimeapi.PodSandbox) bool {
		return (filter.GetState() == nil || filter.GetState().GetState() == s.GetState()) &&
			matches(s.GetLabels(), filter.GetLabelSelector())
	})}, nil
}

func (f *fakeRuntime) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	filter := r.GetFilter()
	return &runtimeapi.ListContainersResponse{Containers: keep(f.containers, func(c *runtimeapi.Container) bool {
		return (filter.GetState() == nil || filter.GetState().GetState() == c.GetState()) &&
			(filter.GetPodSandboxId() == "" || filter.GetPodSandboxId() == c.GetPodSandboxId()) &&
			matches(c.GetLabels(), filter.GetLabelSelector())
	})}, nil
}

func (f *fakeRuntime) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	f.statuses++
	f.mu.Unlock()
	return &runtimeapi.PodSandboxStatusResponse{Info: f.info[r.GetPodSandboxId()]}, nil
}

func (f *fakeRuntime) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	id := r.GetContainerId()
	if f.vanished[id] {
		return nil, status.Errorf(codes.NotFound, "container %q: not found", id)
	}
	for _, c := range f.containers {
		if c.GetId() != id {
			continue
		}
		resp := &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id, State: c.GetState(), StartedAt: startedAt}}
		if f.exited[id] {
			resp.Status.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		if r.GetVerbose() {
			resp.Info = f.info[id]
		}
		return resp, nil
	}
	return nil, status.Errorf(codes.NotFound, "container %q: not found", id)
}

func (f *fakeRuntime) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	f.mu.Lock()
	f.updates = append(f.updates, r)
	f.mu.Unlock()
	if f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, f.updateErr
}

func (f *fakeRuntime) seen() []*runtimeapi.UpdateContainerResourcesRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.updates)
}

func (f *fakeRuntime) statusCalls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *fakeRuntime) statusesOfSandboxes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.statuses
}

func keep[T any](all []T, match func(T) bool) (kept []T) {
	for _, one := range all {
		if match(one) {
			kept = append(kept, one)
		}
	}
	return kept
}

func matches(labels, selector map[string]string) bool {
	for key, want := range selector {
		if got, found := labels[key]; !found || got != want {
			return false
		}
	}
	return true
}

// serve runs the fake on the socket until stop, or the end of the test.
func (f *fakeRuntime) serve(t *testing.T, socket string) (stop func()) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, f)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	stop = sync.OnceFunc(func() {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it served
			t.Errorf("serving: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// socketPath is short: the kernel takes 107 bytes, and t.TempDir may need more.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "cri") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// connect serves the fake and returns a client of it.
func connect(t *testing.T, f *fakeRuntime, opts cri.Options) *cri.Client {
	t.Helper()
	socket := socketPath(t)
	f.serve(t, socket)
	return dial(t, socket, opts)
}

func dial(t *testing.T, endpoint string, opts cri.Options) *cri.Client {
	t.Helper()
	client, err := cri.Dial(endpoint, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// eventually polls until the condition holds.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// startedAt is when each container of the fake began, in Unix nanoseconds.
const startedAt = 1_700_000_000_000_000_000

const (
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	running  = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited   = runtimeapi.ContainerState_CONTAINER_EXITED
	created  = runtimeapi.ContainerState_CONTAINER_CREATED
)

func sandbox(id, uid string, attempt uint32, state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id:       id,
		State:    state,
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: uid, Attempt: attempt},
		Labels:   map[string]string{"io.kubernetes.pod.uid": uid, "tier": "front"},

		Annotations: map[string]string{"owner": "web-team"},
	}
}

func container(sandbox, id, name string, attempt uint32, state runtimeapi.ContainerState) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id:           id,
		PodSandboxId: sandbox,
		State:        state,
		Metadata:     &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		Labels:       map[string]string{"io.kubernetes.container.name": name},
		Annotations:  map[string]string{"io.kubernetes.container.restartCount": fmt.Sprint(attempt)},
	}
}

// infoOf is what containerd tells of each container.
func infoOf(ids ...string) map[string]map[string]string {
	infos := map[string]map[string]string{}
	for _, id := range ids {
		infos[id] = map[string]string{"info": fmt.Sprintf(
			`{"sandboxID":"s","pid":4711,"config":{"labels":{"a":"b"}},"runtimeSpec":{"ociVersion":"1.0.2","linux":{"cgroupsPath":%q,"resources":{}}}}`,
			"/kubepods/podu/"+id)}
	}
	return infos
}
