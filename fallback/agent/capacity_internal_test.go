package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// asksOf gives the container app these requests, and limits that allow them.
func asksOf(requests string) func(*v1alpha1.CRIResizeSpec) {
	return func(s *v1alpha1.CRIResizeSpec) {
		s.Containers[0].Wanted = v1alpha1.Requirements{Requests: list(requests), Limits: list("cpu=100 memory=100Gi")}
	}
}

// TestExceedsNode: whoever writes CRIResizes, no pod gets the weight of more than its node, which has 4 CPUs and 8 GiB here; the
// container log requests 50m and 64 MiB of them. Limits are not bounded.
func TestExceedsNode(t *testing.T) {
	for _, tc := range []struct {
		name string
		ask  func(*v1alpha1.CRIResizeSpec)
		say  string // "": resized
	}{
		{"all of it", asksOf("cpu=3950m memory=8128Mi"), ""},
		{"too much CPU", asksOf("cpu=3951m memory=1Gi"), `the pod would request 4001m cpu, node "n1" has 4 in all; nothing was written`},
		{"too much memory", asksOf("cpu=1 memory=8129Mi"), `the pod would request 8193Mi memory, node "n1" has 8Gi`},
		{"with its overhead", func(s *v1alpha1.CRIResizeSpec) {
			asksOf("cpu=3900m memory=1Gi")(s)
			s.Overhead = list("cpu=100m")
		}, "the pod would request 4050m cpu"},
		{"one, hidden by a negative one", func(s *v1alpha1.CRIResizeSpec) {
			asksOf("cpu=5 memory=1Gi")(s)
			s.Containers[1].Wanted.Requests = list("cpu=-2 memory=64Mi")
		}, `container "app" would request 5 cpu`},
		{"one, hidden by a negative overhead", func(s *v1alpha1.CRIResizeSpec) {
			asksOf("cpu=1 memory=9Gi")(s)
			s.Overhead = list("memory=-2Gi")
		}, `container "app" would request 9Gi memory`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for version, unified := range versions() {
				t.Run(version, func(t *testing.T) {
					b := newBed(t, unified, newObject())
					b.change(t, tc.ask)
					if tc.say == "" {
						b.mustLook(t)
						b.says(t, v1alpha1.ReasonApplied)
						return
					}
					b.leaves(t)
					if said := b.says(t, v1alpha1.ReasonExceedsNode, tc.say); len(said.Status.Applied) > 0 {
						t.Errorf("adopted: %v", said.Status.Applied)
					}
				})
			}
		})
	}
}

// TestExceedsNodeLater: what is in force is no pass for what else the figures are made of.
func TestExceedsNodeLater(t *testing.T) {
	for name, more := range map[string]func(*v1alpha1.CRIResizeSpec){
		"overhead": func(s *v1alpha1.CRIResizeSpec) { s.Overhead = list("cpu=1000") },
		"an init container": func(s *v1alpha1.CRIResizeSpec) {
			s.InitContainers = []v1alpha1.InitContainer{{Name: "init", Resources: requirements("cpu=1000", "")}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, false, newObject())
			b.change(t, asksOf("cpu=1 memory=1Gi"))
			b.mustLook(t)
			b.says(t, v1alpha1.ReasonApplied)
			was := b.kernel(t)
			b.change(t, more)
			b.mustLook(t)
			b.says(t, v1alpha1.ReasonExceedsNode, "the pod would request 1")
			if now := b.kernel(t); now[""] != was[""] {
				t.Errorf("the pod's cgroup has %+v, had %+v", now[""], was[""])
			}
		})
	}
}

// TestNoWeightOfBefore: while a container is down the pod's cgroup has room for its start, and no weight that only its writer speaks of.
func TestNoWeightOfBefore(t *testing.T) {
	b := newBed(t, false, newObject())
	b.stops("log")
	b.change(t, func(s *v1alpha1.CRIResizeSpec) { s.Containers[1].Before.Requests = list("cpu=1000") })
	_, _ = b.look(t) // that the container is down is told as such
	if shares := b.kernel(t)[""].Shares; shares > 1024 {
		t.Errorf("the pod has %d shares", shares)
	}
}

// reads counts the requests for the Node, and answers them with b's error if there is one.
func (b *bed) reads(t *testing.T, err *error) (count *int) {
	t.Helper()
	count = new(int)
	below, ok := b.client.(client.WithWatch)
	if !ok {
		t.Fatal("the bed's client cannot be wrapped")
	}
	b.client = interceptor.NewClient(below, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, isNode := o.(*corev1.Node); isNode {
			if *count++; *err != nil {
				return *err
			}
		}
		return c.Get(ctx, key, o, opts...)
	}})
	b.agent = b.newAgent(t)
	return count
}

// TestNodeIsAskedWhenSomethingIsWanted, and not at an idle look, nor by an agent that has just started and finds all in force. While it
// cannot be read nothing new is written, and what holds is held on.
func TestNodeIsAskedWhenSomethingIsWanted(t *testing.T) {
	var failure error
	b := newBed(t, true, newObject())
	count := b.reads(t, &failure)
	asked := func(want int) {
		t.Helper()
		if *count != want {
			t.Errorf("the node was read %d times, not %d", *count, want)
		}
	}
	b.change(t, asksOf("cpu=1 memory=1Gi"))
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
	asked(1)
	b.passes(time.Hour)
	b.mustLook(t)
	b.agent = b.newAgent(t)
	b.mustLook(t)
	asked(1)

	failure = errors.New("no node\nto be had")
	b.updates = nil
	b.change(t, asksOf("cpu=2 memory=1Gi"))
	if _, err := b.look(t); err == nil || len(b.updates) > 0 {
		t.Errorf("got %v, updates %q", err, b.updates)
	}
	b.says(t, v1alpha1.ReasonPending, `reading node "n1": no node to be had`)
	failure = nil
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
	asked(3)

	failure = errors.New("away")
	b.passes(time.Hour)
	b.restarts(t, "run-1")
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
	asked(3)
}

// TestNodeSaysNothing: a Node without figures is not one of size zero.
func TestNodeSaysNothing(t *testing.T) {
	b := newBed(t, true, newObject())
	node := newNode("n1", "cpu=4")
	if err := b.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if _, err := b.look(t); err == nil || !strings.Contains(err.Error(), `node "n1" does not say how much memory`) {
		t.Errorf("got %v", err)
	}
}

// TestSidecarAsksTheMachine: it has no right to read nodes. No machine has this much.
func TestSidecarAsksTheMachine(t *testing.T) {
	failure := errors.New("forbidden")
	object := newObject()
	object.Spec.Sidecar = v1alpha1.SidecarContainer
	b := newBed(t, true, object)
	count := b.reads(t, &failure)
	b.agent.opts = sidecarOptions("uid-1")
	b.change(t, asksOf("cpu=100m memory=1Mi"))
	b.mustLook(t)
	b.says(t, v1alpha1.ReasonApplied)
	b.updates = nil
	b.change(t, asksOf("cpu=1000000 memory=1Mi"))
	b.leaves(t)
	b.says(t, v1alpha1.ReasonExceedsNode, "the pod would request 1000000050m cpu")
	if *count > 0 {
		t.Errorf("it read the Node %d times", *count)
	}
}

func TestMachineHas(t *testing.T) {
	const meminfo = "MemTotal:       16384 kB\nMemFree:        1 kB\n"
	for name, tc := range map[string]struct {
		online, meminfo, cpus, memory, err string
	}{
		"one CPU":       {"0\n", meminfo, "1", "16Mi", ""},
		"ranges":        {"0-3,6,8-9\n", meminfo, "7", "16Mi", ""},
		"no list":       {"many\n", meminfo, "", "", "counting the CPUs"},
		"an odd range":  {"3-1\n", meminfo, "", "", "counting the CPUs"},
		"without a sum": {"0-1\n", "MemFree: 1 kB\n", "", "", "no MemTotal"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, content := range map[string]string{"sys/devices/system/cpu/online": tc.online, "proc/meminfo": tc.meminfo} {
				full := filepath.Join(root, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := machineHas(root)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("got %v, %v", got, err)
				}
				return
			}
			if err != nil || got.Cpu().String() != tc.cpus || got.Memory().String() != tc.memory {
				t.Errorf("got %s CPUs and %s, %v", got.Cpu(), got.Memory(), err)
			}
		})
	}
	if _, err := machineHas(t.TempDir()); err == nil {
		t.Error("a machine without files has a size")
	}
}
