//go:build e2e

package figures_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/podresize/podresize/fallback"
	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const (
	// pods is how many random pods each kubelet judges.
	pods = 3000
	// seedVariable is the environment's variable with the seed of the first pod; a failure tells the seed of its pod.
	seedVariable = "PODRESIZE_SEED"
	// tries is how many random resizes of a pod are thought up until one is allowed.
	tries = 100
)

// The oldest and the newest kubelet make of random pods, before and after random resizes, what this package makes of them.
func TestFiguresAreTheKubelets(t *testing.T) {
	seed := firstSeed(t)
	for _, k := range []struct {
		kubernetes string
		flags      []string
		sidecars   bool
	}{
		{"1.37", nil, true},
		{"1.26", []string{"-modfile=go.old.mod", "-tags=old,providerless"}, false},
	} {
		t.Run(k.kubernetes, func(t *testing.T) {
			asked := startKubelet(t, k.flags...)
			seen := map[corev1.PodQOSClass]int{}
			for i := range uint64(pods) {
				r := newChance(rand.NewPCG(seed+i, 0))
				seen[compare(t, asked, r, k.sidecars, seed+i)]++
			}
			t.Logf("pods: %v", seen)
			for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
				if seen[class] < pods/20 {
					t.Errorf("only %d of %d pods were %s", seen[class], pods, class)
				}
			}
		})
	}
}

// compare makes a pod, resizes it, and compares the figures of before and of after with the kubelet's. It returns the pod's class.
func compare(t *testing.T, asked kubelet, r chance, sidecars bool, seed uint64) corev1.PodQOSClass {
	t.Helper()
	pod := r.pod(sidecars)
	before := asked.judge(t, pod)
	pod.Status.QOSClass = before.QOSClass
	check(t, seed, pod, before, figures.Before(ask(t, pod, itself(pod))))

	pod = stored(pod)
	pod.Status.QOSClass = asked.judge(t, pod).QOSClass
	spec, want := askSomething(t, seed, r, pod)
	after := resized(pod, want)
	wanted := asked.judge(t, after)
	if wanted.QOSClass != pod.Status.QOSClass {
		t.Fatalf("%s=%d: a resize was allowed that made a %s pod %s:\n%s", seedVariable, seed, pod.Status.QOSClass, wanted.QOSClass, text(t, after))
	}
	check(t, seed, after, wanted, figures.Wanted(spec))
	return wanted.QOSClass
}

func check(t *testing.T, seed uint64, pod *corev1.Pod, want answer, got figures.Pod) {
	t.Helper()
	if diff := cmp.Diff(want.Pod, got); diff != "" {
		t.Fatalf("%s=%d: figures (-kubelet +ours):\n%s\nof the %s pod\n%s", seedVariable, seed, diff, want.QOSClass, text(t, pod))
	}
	if weight := cgroup.Weight(uint64(max(got.Cgroup.Shares, 0))); weight != want.Weight {
		t.Fatalf("%s=%d: weight of %d shares: the kubelet's is %d, ours %d", seedVariable, seed, got.Cgroup.Shares, want.Weight, weight)
	}
}

func text(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	out, err := json.MarshalIndent(pod.Spec, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// itself asks for what the first container has.
func itself(pod *corev1.Pod) resize.Resources {
	c := pod.Spec.Containers[0]
	has := resize.Requirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}
	if len(has.Requests)+len(has.Limits) == 0 {
		has.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.Quantity{}}
	}
	return resize.Resources{Containers: map[string]resize.Requirements{c.Name: has}}
}

// askSomething asks for random resources until that is allowed.
func askSomething(t *testing.T, seed uint64, r chance, pod *corev1.Pod) (*v1alpha1.CRIResizeSpec, resize.Resources) {
	t.Helper()
	for range tries {
		want := r.want(pod)
		if spec := ask(t, pod, want); spec != nil {
			return spec, want
		}
	}
	t.Fatalf("%s=%d: none of %d random resizes is allowed of the %s pod\n%s", seedVariable, seed, tries, pod.Status.QOSClass, text(t, pod))
	return nil, resize.Resources{}
}

// ask is what a Resizer writes for the agent; nil if it does not allow it.
func ask(t *testing.T, pod *corev1.Pod, want resize.Resources) *v1alpha1.CRIResizeSpec {
	t.Helper()
	server := &apiServer{pod: pod}
	if _, err := fallback.New(server, fallback.Options{}).Resize(t.Context(), pod, want); err != nil {
		t.Fatalf("resizing: %v", err)
	}
	if server.written == nil {
		return nil
	}
	return &server.written.Spec
}

// apiServer has the pod, a node of any size with nothing else on it, and an agent that lives; it takes the object that is created.
type apiServer struct {
	client.Client
	pod     *corev1.Pod
	written *v1alpha1.CRIResize
}

func (s *apiServer) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch o := object.(type) {
	case *v1alpha1.CRIResize:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "criresizes"}, key.Name)
	case *metav1.PartialObjectMetadata:
		s.pod.ObjectMeta.DeepCopyInto(&o.ObjectMeta)
	case *coordinationv1.Lease:
		o.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	}
	return nil
}

func (s *apiServer) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (s *apiServer) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	s.written, _ = object.(*v1alpha1.CRIResize)
	return nil
}

func firstSeed(t *testing.T) uint64 {
	t.Helper()
	set, ok := os.LookupEnv(seedVariable)
	if !ok {
		return rand.Uint64() //nolint:gosec // Test data need not be secret.
	}
	seed, err := strconv.ParseUint(set, 10, 64)
	if err != nil {
		t.Fatalf("reading %s: %v", seedVariable, err)
	}
	return seed
}
