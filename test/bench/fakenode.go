package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	kubelet "github.com/podresize/podresize/fallback/figures"
)

// updateTakes is how long the fake runtime takes for an update, about as long as containerd and runc.
const updateTakes = 10 * time.Millisecond

// fakeNode is a node of nothing but files and a runtime that answers: a cgroup v1 tree of plain files, and pods of one container each.
// It is what containerd tells, in its words and at its length, and an update writes the files.
type fakeNode struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	root string // of the cgroup tree
	// info is the verbose information of a real container, whose path in it is realPath.
	info, realPath string
	pods           map[string]bool // by UID
}

func fakePodPath(uid string) string       { return "/kubepods/burstable/pod" + uid }
func fakeContainerPath(uid string) string { return fakePodPath(uid) + "/c-" + uid }

// add makes the cgroups of a pod as its kubelet would.
func (n *fakeNode) add(uid string, has kubelet.Pod) error {
	n.pods[uid] = true
	return errors.Join(
		n.write(fakePodPath(uid), has.Cgroup),
		n.write(fakeContainerPath(uid), has.Containers[container]),
	)
}

// write writes all figures of a cgroup.
func (n *fakeNode) write(path string, f kubelet.Cgroup) error {
	for file, value := range map[string]int64{
		"cpu/cpu.shares": f.Shares, "cpu/cpu.cfs_quota_us": f.Quota, "cpu/cpu.cfs_period_us": f.Period,
		"memory/memory.limit_in_bytes": f.Memory, "memory/memory.usage_in_bytes": 1 << 20,
	} {
		controller, name, _ := strings.Cut(file, "/")
		dir := filepath.Join(n.root, controller, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a cgroup: %w", err)
		}
		if err := n.put(filepath.Join(dir, name), value); err != nil {
			return err
		}
	}
	return nil
}

func (n *fakeNode) put(file string, value int64) error {
	if err := os.WriteFile(file, []byte(strconv.FormatInt(value, 10)), 0o600); err != nil {
		return fmt.Errorf("writing a cgroup: %w", err)
	}
	return nil
}

// serve answers on the socket until stop.
func (n *fakeNode) serve(ctx context.Context, socket string) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening as a runtime: %w", err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, n)
	go func() { _ = server.Serve(listener) }() // ends by stop alone
	return server.Stop, nil
}

// Version implements the CRI.
func (n *fakeNode) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "0", RuntimeApiVersion: "v1"}, nil
}

// ListPodSandbox knows each pod by its UID alone.
func (n *fakeNode) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	uid := r.GetFilter().GetLabelSelector()["io.kubernetes.pod.uid"]
	if !n.pods[uid] {
		return &runtimeapi.ListPodSandboxResponse{}, nil
	}
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{
		Id: uid, State: runtimeapi.PodSandboxState_SANDBOX_READY,
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: namespace, Uid: uid},
		Labels:   map[string]string{"io.kubernetes.pod.uid": uid},
	}}}, nil
}

// PodSandboxStatus implements the CRI.
func (n *fakeNode) PodSandboxStatus(_ context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Info: n.verbose(fakePodPath(r.GetPodSandboxId()) + "/sandbox")}, nil
}

// ListContainers implements the CRI.
func (n *fakeNode) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	uid := r.GetFilter().GetPodSandboxId()
	return &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{
		Id: "c-" + uid, PodSandboxId: uid, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Metadata: &runtimeapi.ContainerMetadata{Name: container},
		Labels:   map[string]string{"io.kubernetes.container.name": container},
	}}}, nil
}

// ContainerStatus implements the CRI.
func (n *fakeNode) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	uid := strings.TrimPrefix(r.GetContainerId(), "c-")
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{Id: r.GetContainerId(), State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		Info:   n.verbose(fakeContainerPath(uid)),
	}, nil
}

func (n *fakeNode) verbose(path string) map[string]string {
	return map[string]string{"info": strings.ReplaceAll(n.info, n.realPath, path)}
}

// UpdateContainerResources implements the CRI.
func (n *fakeNode) UpdateContainerResources(_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	uid, to := strings.TrimPrefix(r.GetContainerId(), "c-"), r.GetLinux()
	if !n.pods[uid] {
		return nil, status.Errorf(codes.NotFound, "no container %q", r.GetContainerId())
	}
	time.Sleep(updateTakes)
	err := n.write(fakeContainerPath(uid), kubelet.Cgroup{
		Shares: to.GetCpuShares(), Quota: to.GetCpuQuota(), Period: to.GetCpuPeriod(), Memory: to.GetMemoryLimitInBytes(),
	})
	return &runtimeapi.UpdateContainerResourcesResponse{}, err
}

// realInfo is what a real runtime tells of a running container, at full length, and the container's path in it.
func (s *site) realInfo(ctx context.Context) (info, path string, err error) {
	pod, err := s.RunPod(ctx, newPod("example", low()))
	if err != nil {
		return "", "", err
	}
	if path, err = s.CgroupPath(ctx, pod, container); err != nil {
		return "", "", err
	}
	socket, err := s.Socket("n1")
	if err != nil {
		return "", "", err
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", "", fmt.Errorf("dialling containerd: %w", err)
	}
	defer conn.Close()
	told, err := runtimeapi.NewRuntimeServiceClient(conn).ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: filepath.Base(path), Verbose: true})
	if err != nil {
		return "", "", fmt.Errorf("asking containerd: %w", err)
	}
	return told.GetInfo()["info"], path, nil
}
