package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What the kubelet writes on sandboxes and containers
// (pkg/kubelet/types/labels.go, pkg/kubelet/kuberuntime/labels.go).
const (
	podUIDLabel            = "io.kubernetes.pod.uid"
	containerNameLabel     = "io.kubernetes.container.name"
	restartCountAnnotation = "io.kubernetes.container.restartCount"
	// Kubelets of 1.27 to 1.30 write it while the gate InPlacePodVerticalScaling is on.
	inPlaceAnnotation = "io.kubernetes.container.hashWithoutResources"
)

// Pod is a pod as its runtime has it at one moment.
type Pod struct {
	SandboxID, Namespace, Name, UID string
	// Labels and Annotations are those that the pod had when its sandbox was made.
	Labels, Annotations map[string]string
	// RuntimeHandler is that of the pod's RuntimeClass, "" for the default.
	RuntimeHandler string
	// CgroupsPath is that of the sandbox's own container, in the form of the
	// cgroup driver; "" where the runtime does not tell. It leads to the cgroup
	// of the pod also while none of its containers runs.
	CgroupsPath string
	// Containers are the running ones, one of each name, by name.
	Containers []Container
}

// Container is a running container.
type Container struct {
	ID, Name string
	// Attempt and RestartCount both count from 0; the first is the runtime's,
	// the second the kubelet's.
	Attempt      uint32
	RestartCount int
	// StartedAt is when this run of it began.
	StartedAt time.Time
	// CgroupsPath is that of the OCI runtime spec, in the form of the cgroup
	// driver; never empty.
	CgroupsPath string
	// CPUShares are those that the runtime was last told to give it, 0 if it does not say.
	CPUShares int64
	// InPlace says that its kubelet, one of 1.27 to 1.30, has the gate to resize it in place.
	InPlace bool
	// CPUs and MemoryNodes are its cpuset, which only the static policies of the
	// kubelet's CPU and memory managers set; else "".
	CPUs, MemoryNodes string
}

// Pod finds the pod with that UID and its running containers. It asks the
// runtime anew at every call, for all but where a sandbox is in the cgroups,
// which never changes. The error is ErrNotFound when the pod has no ready
// sandbox; a container that ends meanwhile is left out.
func (c *Client) Pod(ctx context.Context, uid string) (Pod, error) {
	pod, err := c.pod(ctx, uid)
	if err != nil {
		return Pod{}, fmt.Errorf("finding pod with UID %q: %w", uid, err)
	}
	return pod, nil
}

func (c *Client) pod(ctx context.Context, uid string) (Pod, error) {
	sandbox, err := c.sandbox(ctx, uid)
	if err != nil {
		return Pod{}, err
	}
	pod := podOf(sandbox)
	if pod.CgroupsPath, err = c.sandboxCgroupsPath(ctx, pod.SandboxID); err != nil {
		return Pod{}, err
	}
	running, err := c.running(ctx, pod.SandboxID)
	if err != nil {
		return Pod{}, err
	}
	for _, listed := range running {
		container, found, err := c.container(ctx, listed)
		if err != nil {
			return Pod{}, err
		}
		if found {
			pod.Containers = append(pod.Containers, container)
		}
	}
	return pod, nil
}

func podOf(sandbox *runtimeapi.PodSandbox) Pod {
	return Pod{
		SandboxID:      sandbox.GetId(),
		Namespace:      sandbox.GetMetadata().GetNamespace(),
		Name:           sandbox.GetMetadata().GetName(),
		UID:            sandbox.GetMetadata().GetUid(),
		Labels:         sandbox.GetLabels(),
		Annotations:    sandbox.GetAnnotations(),
		RuntimeHandler: sandbox.GetRuntimeHandler(),
	}
}

// Sandbox finds the pod with that UID by what one request tells of it: without cgroups and containers. The error is ErrNotFound as
// Pod's is.
func (c *Client) Sandbox(ctx context.Context, uid string) (Pod, error) {
	sandbox, err := c.sandbox(ctx, uid)
	if err != nil {
		return Pod{}, fmt.Errorf("finding the sandbox of the pod with UID %q: %w", uid, err)
	}
	return podOf(sandbox), nil
}

// Sandboxes are those of all pods, told as Sandbox tells them.
func (c *Client) Sandboxes(ctx context.Context) ([]Pod, error) {
	sandboxes, err := c.sandboxes(ctx, nil)
	pods := make([]Pod, 0, len(sandboxes))
	for _, s := range sandboxes {
		pods = append(pods, podOf(s))
	}
	return pods, err
}

// sandbox returns the ready sandbox of the pod. While the kubelet replaces one
// there can be two, and the later attempt is the one that stays.
func (c *Client) sandbox(ctx context.Context, uid string) (*runtimeapi.PodSandbox, error) {
	sandboxes, err := c.sandboxes(ctx, map[string]string{podUIDLabel: uid})
	if err != nil {
		return nil, err
	}
	if len(sandboxes) == 0 {
		return nil, fmt.Errorf("looking for a ready sandbox: %w", ErrNotFound)
	}
	return slices.MaxFunc(sandboxes, func(a, b *runtimeapi.PodSandbox) int {
		return cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt())
	}), nil
}

// sandboxes lists the ready ones with these labels.
func (c *Client) sandboxes(ctx context.Context, labels map[string]string) ([]*runtimeapi.PodSandbox, error) {
	resp, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: labels,
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	return resp.GetItems(), nil
}

func (c *Client) sandboxCgroupsPath(ctx context.Context, id string) (string, error) {
	if path, known := c.paths.Get(id); known {
		return path.(string), nil //nolint:forcetypeassert // nothing else is put in
	}
	resp, err := c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return "", fmt.Errorf("asking status of sandbox %q: %w", id, err)
	}
	info, err := parseInfo(resp.GetInfo())
	if err != nil {
		return "", nil //nolint:nilerr // sandboxed runtimes have no such container
	}
	c.paths.Add(id, info.RuntimeSpec.Linux.CgroupsPath)
	return info.RuntimeSpec.Linux.CgroupsPath, nil
}

// running lists the running containers of the sandbox, by name and of each name
// the last attempt only.
func (c *Client) running(ctx context.Context, sandboxID string) ([]*runtimeapi.Container, error) {
	resp, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		PodSandboxId: sandboxID,
		State:        &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	containers := resp.GetContainers()
	slices.SortFunc(containers, func(a, b *runtimeapi.Container) int {
		return cmp.Or(
			cmp.Compare(nameOf(a), nameOf(b)),
			cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
		)
	})
	return slices.CompactFunc(containers, func(a, b *runtimeapi.Container) bool { return nameOf(a) == nameOf(b) }), nil
}

func nameOf(c *runtimeapi.Container) string { return c.GetLabels()[containerNameLabel] }

// container asks for what the list did not say. It reports false when the
// container has ended since.
func (c *Client) container(ctx context.Context, listed *runtimeapi.Container) (_ Container, found bool, err error) {
	resp, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: listed.GetId(), Verbose: true})
	if errors.Is(err, ErrNotFound) {
		return Container{}, false, nil
	}
	if err != nil {
		return Container{}, false, fmt.Errorf("asking status of container %q: %w", nameOf(listed), err)
	}
	if resp.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return Container{}, false, nil
	}
	info, err := parseInfo(resp.GetInfo())
	if err != nil {
		return Container{}, false, fmt.Errorf("reading status of container %q: %w", nameOf(listed), err)
	}
	return Container{
		ID:           listed.GetId(),
		Name:         nameOf(listed),
		Attempt:      listed.GetMetadata().GetAttempt(),
		RestartCount: restartCount(listed),
		StartedAt:    time.Unix(0, resp.GetStatus().GetStartedAt()),
		CgroupsPath:  info.RuntimeSpec.Linux.CgroupsPath,
		CPUShares:    info.RuntimeSpec.Linux.Resources.CPU.Shares,
		InPlace:      listed.GetAnnotations()[inPlaceAnnotation] != "",
		CPUs:         info.RuntimeSpec.Linux.Resources.CPU.CPUs,
		MemoryNodes:  info.RuntimeSpec.Linux.Resources.CPU.Mems,
	}, true, nil
}

// restartCount falls back on the attempt, which the kubelet sets to the same
// number.
func restartCount(c *runtimeapi.Container) int {
	if count, err := strconv.Atoi(c.GetAnnotations()[restartCountAnnotation]); err == nil {
		return count
	}
	return int(c.GetMetadata().GetAttempt())
}

// verboseInfo is the part that matters of what containerd and CRI-O both tell
// under the key "info". CRI specifies nothing here, so other keys are looked at
// too, and one level below.
type verboseInfo struct {
	RuntimeSpec struct {
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
			Resources   struct {
				CPU struct {
					Shares int64  `json:"shares"`
					CPUs   string `json:"cpus"`
					Mems   string `json:"mems"`
				} `json:"cpu"`
			} `json:"resources"`
		} `json:"linux"`
	} `json:"runtimeSpec"`
	Info *verboseInfo `json:"info"`
}

func parseInfo(values map[string]string) (verboseInfo, error) {
	for _, value := range values {
		var info verboseInfo
		if json.Unmarshal([]byte(value), &info) != nil {
			continue // another key's text
		}
		if info.Info != nil {
			info = *info.Info
		}
		if info.RuntimeSpec.Linux.CgroupsPath != "" {
			return info, nil
		}
	}
	return verboseInfo{}, errors.New("no runtimeSpec.linux.cgroupsPath in its verbose info")
}
