package featuregate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/podresize/podresize/featuregate"
	"github.com/podresize/podresize/resize"
)

const (
	allOn  = head + "default: {inPlace: On, cri: On}"
	allOff = head + "default: {}"
)

func TestGate(t *testing.T) {
	pod := newPod("eu", insider)
	b := newBed(t, clocktesting.NewFakePassiveClock(simulated), nil)
	expect := func(mode resize.Mode, says string) {
		t.Helper()
		if d := b.decide(t, pod, resize.PathInPlace); d.Mode != mode || d.Message != says {
			t.Errorf("got %s: %s; want %s: %s", d.Mode, d.Message, mode, says)
		}
	}
	expect(resize.ModeOff, "no policy has been read yet")
	b.tell(nil, errors.New("no file"))
	expect(resize.ModeOff, "no policy has been read yet")
	if err := b.Broken(); err == nil || err.Error() != "reading the policy: no file" && err.Error() != "no file" {
		t.Errorf("got %v", err)
	}
	b.policy(t, allOn)
	expect(resize.ModeOn, "")
	b.tell([]byte(head+"default: {inPlace: Of}"), nil)
	expect(resize.ModeOn, "")
	if err := b.Broken(); err == nil || !strings.HasPrefix(err.Error(), "default.inPlace: ") {
		t.Errorf("got %v", err)
	}
	b.tell(nil, errors.New("no file"))
	expect(resize.ModeOn, "")
	before := len(b.changed)
	b.policy(t, allOff)
	b.policy(t, allOff)
	if told := len(b.changed) - before; told != 1 {
		t.Errorf("told %d times of one change", told)
	}
	expect(resize.ModeOff, `region "eu": the policy does not name this path, so it is Off`)
	b.policy(t, allOn)
	if _, err := b.Decide(t.Context(), newPod("gone", insider), resize.PathCRI); err == nil || err.Error() != `finding out the region of node "gone": no such node` {
		t.Errorf("got %v", err)
	}
	// The kill switch needs no node.
	b.policy(t, head+"killSwitch: {active: true, enforcement: Stop}")
	if d := b.decide(t, newPod("gone", insider), resize.PathCRI); d.Mode != resize.ModeOff || !d.StopEnforcing {
		t.Errorf("got %+v", d)
	}
}

// TestGivenRegion wins over the label, and needs no node.
func TestGivenRegion(t *testing.T) {
	if _, err := featuregate.NewGate(featuregate.GateOptions{}); err == nil {
		t.Error("a gate that cannot know regions was made")
	}
	gate, err := featuregate.NewGate(featuregate.GateOptions{Region: "us", Nodes: func(context.Context, string) (*corev1.Node, error) {
		t.Error("a node was read")
		return nil, errors.New("no")
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	policy := func(_ context.Context, tell func([]byte, error)) error {
		tell([]byte(head+"regions: [{name: us, inPlace: On}]"), nil)
		cancel()
		return nil
	}
	if err := gate.Run(ctx, policy); err != nil {
		t.Fatal(err)
	}
	if d, err := gate.Decide(t.Context(), newPod("eu", insider), resize.PathInPlace); err != nil || d.Mode != resize.ModeOn {
		t.Errorf("got %+v, %v", d, err)
	}
}

// TestGateThatCannotFollow ends, and says why.
func TestGateThatCannotFollow(t *testing.T) {
	gate, err := featuregate.NewGate(featuregate.GateOptions{Region: "us", Halts: &store{}})
	if err != nil {
		t.Fatal(err)
	}
	err = gate.Run(t.Context(), featuregate.File(filepath.Join(t.TempDir(), "none", "policy.yaml")))
	if err == nil || !strings.HasPrefix(err.Error(), `following the policy: watching file "`) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkGate is one decision with everything about it, for a pod that is let through.
func BenchmarkGate(b *testing.B) {
	n, err := nodes(b.Context(), "eu")
	if err != nil {
		b.Fatal(err)
	}
	gate, err := featuregate.NewGate(featuregate.GateOptions{Nodes: func(context.Context, string) (*corev1.Node, error) { return n, nil }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	if err := gate.Run(ctx, func(_ context.Context, tell func([]byte, error)) error {
		tell([]byte(head+"selector: {pods: {matchLabels: {app: web}}}\nregions: [{name: eu, inPlace: 50%}]"), nil)
		cancel()
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	pod := newPod("eu", insider)
	pod.Labels = map[string]string{"app": "web"}
	b.ReportAllocs()
	for b.Loop() {
		if d, err := gate.Decide(b.Context(), pod, resize.PathInPlace); err != nil || d.Mode != resize.ModeOn {
			b.Fatal(d, err)
		}
	}
}

// told are the texts and errors that a source tells.
type told struct {
	text string
	err  error
}

// follow runs a source until the test ends.
func follow(t *testing.T, source featuregate.Source) <-chan told {
	t.Helper()
	out := make(chan told, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- source(ctx, func(text []byte, err error) { out <- told{string(text), err} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return out
}

// expectTold waits for a text, or with empty text for an error.
func expectTold(t *testing.T, from <-chan told, text string) {
	t.Helper()
	deadline := time.After(15 * time.Second) // before a file is read again in any case
	for {
		select {
		case got := <-from:
			if got.text == text && (got.err != nil) == (text == "") {
				return
			}
		case <-deadline:
			t.Fatalf("%q was not told", text)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFile: a file that is written, exchanged or taken away, and a ConfigMap as a kubelet mounts it: links that lead through one that
// is exchanged.
func TestFile(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		from := follow(t, featuregate.File(path))
		expectTold(t, from, "")
		write(t, path, "one")
		expectTold(t, from, "one")
		write(t, path+".new", "two")
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		expectTold(t, from, "two")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		expectTold(t, from, "")
	})
	t.Run("mounted ConfigMap", func(t *testing.T) {
		dir := t.TempDir()
		exchange := func(version string) {
			t.Helper()
			if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, version, "policy.yaml"), version)
			if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		}
		exchange("..one")
		if err := os.Symlink("..data/policy.yaml", filepath.Join(dir, "policy.yaml")); err != nil {
			t.Fatal(err)
		}
		from := follow(t, featuregate.File(filepath.Join(dir, "policy.yaml")))
		expectTold(t, from, "..one")
		exchange("..two")
		expectTold(t, from, "..two")
	})
}

func TestConfigMap(t *testing.T) {
	client := fake.NewClientset()
	maps := client.CoreV1().ConfigMaps("podresize-system")
	from := follow(t, featuregate.ConfigMap(client, "podresize-system", featuregate.PolicyConfigMap, featuregate.PolicyKey))
	expectTold(t, from, "")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: featuregate.PolicyConfigMap, Namespace: "podresize-system"}, Data: map[string]string{featuregate.PolicyKey: "one"}}
	if _, err := maps.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expectTold(t, from, "one")
	for _, data := range []map[string]string{{featuregate.PolicyKey: "two"}, {"other": "x"}} {
		object.Data = data
		if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expectTold(t, from, data[featuregate.PolicyKey])
	}
	if err := maps.Delete(t.Context(), object.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectTold(t, from, "")
}

// TestConfigMapHalts: made with the first halt, kept over restarts, told by an Event, cleared by whoever removes a key or the object.
func TestConfigMapHalts(t *testing.T) {
	client := fake.NewClientset()
	conflicts := 2 // somebody else writes at the same time
	client.PrependReactor("update", "configmaps", func(k8stesting.Action) (bool, runtime.Object, error) {
		conflicts--
		return conflicts >= 0, nil, apierrors.NewConflict(corev1.Resource("configmaps"), featuregate.HaltConfigMap, errors.New("changed"))
	})
	maps := client.CoreV1().ConfigMaps("podresize-system")
	b := newBed(t, clocktesting.NewFakePassiveClock(simulated), featuregate.NewConfigMapHalts(client, "podresize-system", featuregate.HaltConfigMap))
	b.policy(t, allOn+"\nhalt: {window: 10m, ratio: 25%, minimum: 1}")
	for _, region := range []string{"eu", "bare"} {
		b.report(t, newPod(region, insider), failed(), nil)
	}
	modes := func(b *bed) string {
		t.Helper()
		var out []string
		for _, region := range []string{"eu", "bare", "us"} {
			out = append(out, string(b.decide(t, newPod(region, "x"), resize.PathCRI).Mode))
		}
		return strings.Join(out, " ")
	}
	if got := modes(b); got != "Off Off On" {
		t.Errorf("got %s", got)
	}
	object := checkRecords(t, client)
	b.stop()
	b = newBed(t, b.clock, featuregate.NewConfigMapHalts(client, "podresize-system", featuregate.HaltConfigMap))
	b.policy(t, allOn)
	if got := modes(b); got != "Off Off On" {
		t.Errorf("after a restart: %s", got)
	}
	delete(object.Data, "_none")
	object.Data["eu"] = "by hand" // still halted
	if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.awaitModes(t, modes, "Off On On")
	if err := maps.Delete(t.Context(), object.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.awaitModes(t, modes, "On On On")
}

// checkRecords checks what is to be seen of the two halts, and gives the ConfigMap.
func checkRecords(t *testing.T, client *fake.Clientset) *corev1.ConfigMap {
	t.Helper()
	object, err := client.CoreV1().ConfigMaps("podresize-system").Get(t.Context(), featuregate.HaltConfigMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const record = `{"since":"2026-03-02T08:00:00Z","message":"1 of 1 resizes within 10m0s failed, more than 25%: 1 Unconfirmed"}`
	if len(object.Data) != 2 || object.Data["eu"] != record || object.Data["_none"] != record {
		t.Errorf("got %v", object.Data)
	}
	events, err := client.CoreV1().Events("podresize-system").List(t.Context(), metav1.ListOptions{})
	var told []string
	for _, event := range events.Items {
		told = append(told, event.Type+" "+event.Reason+" "+event.InvolvedObject.Name+": "+event.Message)
	}
	slices.Sort(told)
	const rest = " is halted: 1 of 1 resizes within 10m0s failed, more than 25%: 1 Unconfirmed"
	if want := []string{`Warning RegionHalted podresize-halt: region ""` + rest, `Warning RegionHalted podresize-halt: region "eu"` + rest}; err != nil || !slices.Equal(told, want) {
		t.Errorf("got %q, %v", told, err)
	}
	return object
}

// awaitModes waits for a change after which the modes are as wanted.
func (b *bed) awaitModes(t *testing.T, modes func(*bed) string, want string) {
	t.Helper()
	for modes(b) != want {
		b.await(t)
	}
}
