package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStarted is when the run of a container that goes on now began, by
// the node's runtime: a pod's status tells it in whole seconds only.
func (c *Cluster) ContainerStarted(ctx context.Context, pod *corev1.Pod, container string) (time.Time, error) {
	conn, err := c.snapshot().dial(pod.Spec.NodeName)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close()
	runtime := runtimeapi.NewRuntimeServiceClient(conn)
	list, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID), "io.kubernetes.container.name": container},
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return time.Time{}, fmt.Errorf("listing container %q: %w", container, err)
	}
	if len(list.GetContainers()) != 1 {
		return time.Time{}, fmt.Errorf("the runtime has %d running containers %q, not one", len(list.GetContainers()), container)
	}
	status, err := runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: list.GetContainers()[0].GetId()})
	if err != nil {
		return time.Time{}, fmt.Errorf("asking when container %q started: %w", container, err)
	}
	return time.Unix(0, status.GetStatus().GetStartedAt()), nil
}
