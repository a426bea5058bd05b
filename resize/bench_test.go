package resize_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/podresize/podresize/resize"
)

// BenchmarkDecide is what one look at a pod from a cache costs a controller, when nothing has to be sent.
func BenchmarkDecide(b *testing.B) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://localhost:1"}) // nobody is asked
	if err != nil {
		b.Fatal(err)
	}
	n1 := node("v1.37.2")
	opts := resize.InPlaceOptions{
		LivePods: true,
		Nodes:    func(context.Context, string) (*corev1.Node, error) { return n1, nil },
	}
	asked := want("app", "cpu=100m memory=128Mi", "cpu=200m memory=256Mi")
	unversioned := func(p *corev1.Pod) { p.ResourceVersion = "" } // so that Done is found out anew each time
	full := withCondition(corev1.PodResizePending, corev1.PodReasonDeferred, "Node didn't have enough resource: cpu")
	for _, bc := range []struct {
		name  string
		pod   *corev1.Pod
		state resize.State
	}{
		{name: "Done", pod: newPod(observed), state: resize.StateDone},
		{name: "Done_of_another_version", pod: newPod(observed, unversioned), state: resize.StateDone},
		{name: "InProgress", pod: newPod(allocated("cpu=90m memory=128Mi"), observed), state: resize.StateInProgress},
		{name: "Deferred", pod: newPod(observed, full), state: resize.StateDeferred},
	} {
		b.Run(bc.name, func(b *testing.B) {
			adapter := resize.NewAdapter(client, nil, opts)
			b.ReportAllocs()
			for b.Loop() {
				res, err := adapter.Resize(b.Context(), bc.pod, asked)
				if err != nil || res.State != bc.state {
					b.Fatalf("got %s/%s: %s: %v", res.State, res.Reason, res.Message, err)
				}
			}
		})
	}
}

// BenchmarkPlan is what a change costs before it is asked for.
func BenchmarkPlan(b *testing.B) {
	pod, n1, asked := newPod(observed), node("v1.37.2"), want("app", "cpu=150m", "")
	b.ReportAllocs()
	for b.Loop() {
		if findings := resize.Plan(pod, n1, resize.Server{Resize: true, Minor: 37}, asked, resize.PlanOptions{}); len(findings) > 0 {
			b.Fatal(findings)
		}
	}
}
