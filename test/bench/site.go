package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
	"github.com/podresize/podresize/test/cluster"
	clusters "github.com/podresize/podresize/test/setting"
)

const (
	namespace = "bench"
	// maxPods is what the node of each cluster takes: the pods that are resized at once, and a few others.
	maxPods     = 240
	spareMaxPod = 10
)

// site is one cluster and the controller that resizes its pods.
type site struct {
	*cluster.Cluster

	release    string
	inPlace    bool
	controller *controller
}

func siteName(name string) string {
	return "bench-" + strings.NewReplacer(".", "-", ":", "-").Replace(name)
}

// openSite starts a cluster, which is named as package setting does.
func (b *bench) openSite(ctx context.Context, name string) (*site, error) {
	parsed, err := clusters.Parse(name)
	if err != nil {
		return nil, err
	}
	config := parsed.Config
	config.Name, config.Progress = siteName(name), b.progress
	config.Nodes = []cluster.Node{{Name: "n1", Kubelet: map[string]any{"maxPods": maxPods + spareMaxPod}}}
	s := &site{release: config.Kubernetes, inPlace: parsed.Nodes[0].Path == resize.PathInPlace}
	if s.Cluster, err = cluster.Start(ctx, config); err != nil {
		return nil, err
	}
	if !s.inPlace {
		b.say("Building podresize-agent and deploying it from manifests/base")
		if err := s.deployAgent(ctx); err != nil {
			return nil, err
		}
	}
	s.controller, err = newController(ctx, s, resize.InPlaceOptions{})
	return s, err
}

func (s *site) close() {
	if s.controller != nil {
		s.controller.stop()
	}
}

func (s *site) deployAgent(ctx context.Context) error {
	if err := s.LoadImage(ctx, "localhost/podresize-agent:dev", "../cmd/podresize-agent"); err != nil {
		return err
	}
	if err := s.Apply(ctx, "bench/manifests"); err != nil {
		return err
	}
	if err := s.WaitDaemonSet(ctx, v1alpha1.AgentNamespace, "podresize-agent"); err != nil {
		return err
	}
	return s.awaitLease(ctx, "n1")
}

// awaitLease waits for an agent to take the node.
func (s *site) awaitLease(ctx context.Context, node string) error {
	leases := s.Client().CoordinationV1().Leases(v1alpha1.AgentNamespace)
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := leases.Get(ctx, v1alpha1.AgentLeaseName(node), metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the Lease of podresize-agent: %w", err)
	}
	return nil
}

const container = "app"

// amount is a container's CPU in milli-CPU. The memory stays: 1.33 takes no lower limit.
type amount struct{ request, limit int64 }

func (a amount) requirements() resize.Requirements {
	return resize.Requirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(a.request, resource.DecimalSI)},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(a.limit, resource.DecimalSI)},
	}
}

func (a amount) want() resize.Resources {
	return resize.Resources{Containers: map[string]resize.Requirements{container: a.requirements()}}
}

// quota is what the kernel must hold, for the container and for its pod: microseconds in 100 ms.
func (a amount) quota() int64 { return a.limit * 100 }

// newPod has one container, and as little else as a pod can have.
func newPod(name string, a amount) *corev1.Pod {
	r := a.requirements()
	r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory] = resource.MustParse("16Mi"), resource.MustParse("64Mi")
	no := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			HostNetwork: true, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			Containers: []corev1.Container{{
				Name: container, Image: cluster.WorkloadImage, ImagePullPolicy: corev1.PullNever,
				Resources: corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits},
			}},
		},
	}
}
