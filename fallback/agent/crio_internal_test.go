package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/cri"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

// crio answers for the pod of a bed as CRI-O 1.34 does, by its sources (server/container_update_resources*.go, container_status.go,
// sandbox_status.go): what differs from containerd is noted at each place.
type crio struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	bed     *bed
	stopped []string // ids of containers that are listed as running, and are not any more when they are updated
	updates []*runtimeapi.LinuxContainerResources
}

func (c *crio) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "cri-o", RuntimeVersion: "1.34.0", RuntimeApiVersion: "v1"}, nil
}

func (c *crio) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{
		Id: "sandbox", Metadata: &runtimeapi.PodSandboxMetadata{Namespace: c.bed.pod.Namespace, Name: c.bed.pod.Name, Uid: "uid-1"},
	}}}, nil
}

// PodSandboxStatus: most sandboxes of CRI-O have no container of their own. CRI-O then says nothing, or in newer versions
// the spec of the container that it does not run.
func (c *crio) PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": "{}"}}, nil
}

func (c *crio) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	list := &runtimeapi.ListContainersResponse{}
	for _, one := range c.bed.pod.Containers {
		list.Containers = append(list.Containers, &runtimeapi.Container{
			Id: one.ID, Metadata: &runtimeapi.ContainerMetadata{Name: one.Name}, Labels: map[string]string{"io.kubernetes.container.name": one.Name},
		})
	}
	return list, nil
}

func (c *crio) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	one, found := c.container(r.GetContainerId())
	if !found {
		return nil, status.Errorf(codes.NotFound, "could not find container %q", r.GetContainerId())
	}
	linux := map[string]any{"cgroupsPath": one.CgroupsPath}
	info, err := json.Marshal(map[string]any{
		"sandboxID": "sandbox", "pid": 4711, "runtimeSpec": map[string]any{"ociVersion": "1.2.0", "linux": linux}, "privileged": false,
	})
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{Id: one.ID, State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		Info:   map[string]string{"info": string(info)},
	}, err
}

// UpdateContainerResources: a container that does not run is an error, and no other status code than Unknown is used; a negative
// memory limit and one below what is in use, page cache included, are refused; fields that are zero are left as they are, in the
// kernel too; the swap that is asked for is ignored, and the limit on memory and swap becomes that on memory.
func (c *crio) UpdateContainerResources(_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	id, linux := r.GetContainerId(), r.GetLinux()
	c.updates = append(c.updates, linux)
	one, found := c.container(id)
	if !found {
		return nil, fmt.Errorf("could not find container %q", id)
	}
	if slices.Contains(c.stopped, id) {
		return nil, fmt.Errorf("container %s is not running or created state: stopped", id)
	}
	if err := c.validate(one.CgroupsPath, linux.GetMemoryLimitInBytes()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, c.write(one.CgroupsPath, linux)
}

func (c *crio) container(id string) (cri.Container, bool) {
	i := slices.IndexFunc(c.bed.pod.Containers, func(one cri.Container) bool { return one.ID == id })
	if i < 0 {
		return cri.Container{}, false
	}
	return c.bed.pod.Containers[i], true
}

func (c *crio) validate(path string, limit int64) error {
	if limit < 0 {
		return fmt.Errorf("invalid memory limit: %d bytes (cannot be negative)", limit)
	}
	file := "memory" + path + "/memory.usage_in_bytes"
	if c.bed.tree.Unified() {
		file = path + "/memory.current"
	}
	text, err := os.ReadFile(filepath.Join(c.bed.root, file))
	if err != nil {
		return err
	}
	usage, err := strconv.ParseInt(string(text), 10, 64)
	if err == nil && limit != 0 && limit < usage {
		err = fmt.Errorf("cannot decrease memory limit to %d bytes: current usage is %d bytes", limit, usage)
	}
	return err
}

func (c *crio) write(path string, linux *runtimeapi.LinuxContainerResources) error {
	have, err := c.bed.tree.Read(path)
	if err != nil {
		return err
	}
	if linux.GetCpuShares() == 0 || linux.GetCpuQuota() == 0 || linux.GetCpuPeriod() == 0 {
		return errors.New("the agent sends all of the CPU")
	}
	f := figures.Cgroup{Shares: linux.GetCpuShares(), Quota: linux.GetCpuQuota(), Period: linux.GetCpuPeriod(), Memory: have.Memory}
	if limit := linux.GetMemoryLimitInBytes(); limit != 0 {
		f.Memory = limit
		if file := c.swapFile(path); !c.bed.tree.Unified() {
			if err := os.WriteFile(file, []byte(strconv.FormatInt(limit, 10)), 0o600); err != nil {
				return err
			}
		}
	}
	return c.bed.write(path, f)
}

func (c *crio) swapFile(path string) string {
	return filepath.Join(c.bed.root, "memory", path, "memory.memsw.limit_in_bytes")
}

// serve has the agent of a bed speak to CRI-O.
func (c *crio) serve(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "crio") //nolint:usetesting // t.TempDir may be longer than the kernel takes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, c)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	client, err := cri.Dial(socket, cri.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.bed.agent.runtime = client
	t.Cleanup(func() {
		_ = client.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestCRIO: what CRI-O refuses is not asked of it where that can be helped, and is told where it cannot.
func TestCRIO(t *testing.T) {
	const unlimited, mib = "cpu=200m", 1 << 20
	for _, tc := range []struct {
		name          string
		before, after string // limits of app
		cached        int64  // bytes of page cache, besides what is in use
		reason        string
		says          string
		memory        []int64 // limits in the requests
	}{
		{name: "CPU alone", before: "cpu=200m memory=256Mi", after: "cpu=300m memory=256Mi", reason: v1alpha1.ReasonApplied, memory: []int64{0}},
		{name: "CPU without a memory limit", before: unlimited, after: "cpu=300m", reason: v1alpha1.ReasonApplied, memory: []int64{0}},
		{name: "a first memory limit", before: unlimited, after: "cpu=200m memory=128Mi", reason: v1alpha1.ReasonApplied, memory: []int64{128 * mib}},
		{name: "memory", before: "cpu=200m memory=256Mi", after: "cpu=200m memory=512Mi", reason: v1alpha1.ReasonApplied, memory: []int64{512 * mib}},
		{
			name: "no memory limit any more", before: "cpu=200m memory=256Mi", after: "cpu=300m",
			reason: v1alpha1.ReasonWriteFailed, says: "cannot be negative", memory: []int64{-1},
		},
		{
			name: "below the page cache", before: "cpu=200m memory=256Mi", after: "cpu=200m memory=128Mi", cached: 150 * mib,
			reason: v1alpha1.ReasonWriteFailed, says: "current usage is", memory: []int64{128 * mib},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for version, unified := range versions() {
				t.Run(version, func(t *testing.T) {
					object := newObject()
					object.Spec.Containers[0].Before = requirements("cpu=100m memory=64Mi", tc.before)
					object.Spec.Containers[0].Wanted = requirements("cpu=100m memory=64Mi", tc.after)
					runtime := &crio{bed: newBed(t, unified, object)}
					runtime.serve(t)
					runtime.caches(t, podPath+"/c-app", tc.cached)
					_, err := runtime.bed.look(t)
					if (err != nil) != (tc.reason == v1alpha1.ReasonWriteFailed) {
						t.Fatal(err)
					}
					runtime.bed.says(t, tc.reason, tc.says)
					var memory []int64
					for _, sent := range runtime.updates {
						memory = append(memory, sent.GetMemoryLimitInBytes())
					}
					if !slices.Equal(memory, tc.memory) {
						t.Errorf("sent memory limits %v, want %v", memory, tc.memory)
					}
					if tc.reason == v1alpha1.ReasonApplied {
						runtime.bed.holds(t, figures.Wanted(&object.Spec))
					}
				})
			}
		})
	}
}

// caches fills a cgroup with page cache.
func (c *crio) caches(t *testing.T, path string, bytes int64) {
	t.Helper()
	const used = 1 << 20
	c.bed.uses(t, path, used+bytes)
	file, line := "memory"+path+"/memory.stat", "total_inactive_file"
	if c.bed.tree.Unified() {
		file, line = path+"/memory.stat", "inactive_file"
	}
	c.bed.put(t, file, fmt.Sprintf("%s %d", line, bytes))
}

// TestCRIOKeepsSwap: CRI-O takes the swap of a container away with every memory limit that it is sent.
func TestCRIOKeepsSwap(t *testing.T) {
	const limit, withSwap = 256 << 20, 300 << 20
	runtime := &crio{bed: newBed(t, false, asking("cpu=300m memory=256Mi", "cpu=100m memory=128Mi"))}
	runtime.serve(t)
	runtime.bed.put(t, strings.TrimPrefix(runtime.swapFile(podPath+"/c-app"), runtime.bed.root), strconv.Itoa(withSwap))
	if _, err := runtime.bed.look(t); err != nil {
		t.Fatal(err)
	}
	runtime.bed.says(t, v1alpha1.ReasonApplied)
	allowance, accounted, err := runtime.bed.tree.SwapAllowance(podPath + "/c-app")
	if err != nil || !accounted || allowance != withSwap-limit {
		t.Errorf("it may use %d bytes of swap (accounted: %t), %v", allowance, accounted, err)
	}
}

// TestCRIOContainerEnds: CRI-O refuses to update a container that has just ended; the next look sees that it does not run.
func TestCRIOContainerEnds(t *testing.T) {
	object := asking("cpu=300m memory=256Mi", "cpu=100m memory=128Mi")
	runtime := &crio{bed: newBed(t, false, object), stopped: []string{"c-app"}}
	runtime.serve(t)
	if _, err := runtime.bed.look(t); !errors.Is(err, cri.ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
	runtime.bed.says(t, v1alpha1.ReasonWriteFailed, "not running")
	runtime.bed.stops("app")
	if _, err := runtime.bed.look(t); err != nil {
		t.Fatal(err)
	}
	runtime.bed.says(t, v1alpha1.ReasonContainerNotRunning)
	runtime.stopped = nil
	runtime.bed.restarts(t, "c-again")
	if _, err := runtime.bed.look(t); err != nil {
		t.Fatal(err)
	}
	runtime.bed.says(t, v1alpha1.ReasonApplied)
	values, err := runtime.bed.tree.Read(podPath + "/c-again")
	if err != nil || values.Quota != 30000 || values.Memory == cgroup.NoLimit {
		t.Errorf("the new run has %+v, %v", values, err)
	}
}
