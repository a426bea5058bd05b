package cluster

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestConfigDefaults(t *testing.T) {
	got, err := Config{Kubernetes: "1.27", Gates: map[string]bool{"A": true}, Nodes: []Node{
		{Name: "a"}, {Name: "b", Kubernetes: "1.26"}, {Name: "c", Kubernetes: "1.27", Gates: map[string]bool{}},
	}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "dev" || got.Kubernetes != "v1.27.16" {
		t.Errorf("got %q with %q", got.Name, got.Kubernetes)
	}
	if a := got.Nodes[0]; a.Kubernetes != "v1.27.16" || !a.Gates["A"] {
		t.Errorf("node a does not follow the control plane: %+v", a)
	}
	if b := got.Nodes[1]; b.Kubernetes != "v1.26.15" || len(b.Gates) != 0 {
		t.Errorf("node b, of another release, has the control plane's gates: %+v", b)
	}
	if c := got.Nodes[2]; len(c.Gates) != 0 {
		t.Errorf("node c has gates where none were asked for: %+v", c)
	}
	one, err := Config{Kubernetes: "1.26"}.complete()
	if err != nil || len(one.Nodes) != 1 || one.Nodes[0].Name != "n1" {
		t.Errorf("without nodes: %+v, %v", one.Nodes, err)
	}
}

func TestConfigRefusals(t *testing.T) {
	for want, config := range map[string]Config{
		`"1.2"`:                        {Kubernetes: "1.2"},
		`node "a": no Kubernetes`:      {Kubernetes: "1.26", Nodes: []Node{{Name: "a", Kubernetes: "1.2"}}},
		`cluster name "A"`:             {Kubernetes: "1.26", Name: "A"},
		`cluster name "../x"`:          {Kubernetes: "1.26", Name: "../x"},
		`cluster name "aaaaaaaaaabbb`:  {Kubernetes: "1.26", Name: "aaaaaaaaaabbbbbbbbbbc"},
		`node name ""`:                 {Kubernetes: "1.26", Nodes: []Node{{}}},
		`node name "a": used twice`:    {Kubernetes: "1.26", Nodes: []Node{{Name: "a"}, {Name: "a"}}},
		`node name "system": reserved`: {Kubernetes: "1.26", Nodes: []Node{{Name: "system"}}},
		`node "a": vm "lxc": must be`:  {Kubernetes: "1.26", Nodes: []Node{{Name: "a", VM: "lxc"}}},
		`node "a": no runtime "kata"`:  {Kubernetes: "1.26", Nodes: []Node{{Name: "a", Runtime: "kata"}}},
		`a virtual machine has Debian`: {Kubernetes: "1.26", Nodes: []Node{{Name: "a", VM: VMSystemd, Runtime: Crun}}},
	} {
		if _, err := config.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %s", err, want)
		}
	}
}

// TestSameConfig: what was written to a file equals what it was written from.
func TestSameConfig(t *testing.T) {
	config, err := Config{Kubernetes: "1.26", Nodes: []Node{{Name: "a", Kubelet: map[string]any{"maxPods": 5}}}}.complete()
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	var read Config
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	if !sameConfig(config, read) {
		t.Error("a configuration is not what was written of it")
	}
	read.Nodes[0].Kubelet["maxPods"] = 6
	if sameConfig(config, read) {
		t.Error("another configuration counts as the same")
	}
}

func TestParseGates(t *testing.T) {
	got, err := ParseGates("A=true, B=false,")
	if err != nil || len(got) != 2 || !got["A"] || got["B"] {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"A", "A=", "A=1", "A=true;B=true"} {
		if _, err := ParseGates(bad); err == nil {
			t.Errorf("ParseGates(%q) took it", bad)
		}
	}
}

func TestParseNodes(t *testing.T) {
	got, err := ParseNodes("n1,n2=1.33 n3=1.31:A=true:B=false,n4:A=false,n5:vm=systemd,n6=1.30:vm=cgroupfs:A=true,n7:runtime=containerd2")
	want := []Node{
		{Name: "n1"},
		{Name: "n2", Kubernetes: "1.33"},
		{Name: "n3", Kubernetes: "1.31", Gates: map[string]bool{"A": true, "B": false}},
		{Name: "n4", Gates: map[string]bool{"A": false}},
		{Name: "n5", VM: VMSystemd},
		{Name: "n6", Kubernetes: "1.30", VM: VMCgroupfs, Gates: map[string]bool{"A": true}},
		{Name: "n7", Runtime: Containerd2},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := ParseNodes("n1:A"); err == nil || !strings.Contains(err.Error(), `node "n1": feature gate "A"`) {
		t.Errorf("a gate without a value: %v", err)
	}
}

func TestParseVM(t *testing.T) {
	for kind, want := range map[string]string{"": "", "vm": VMCgroupfs, "vm-systemd": VMSystemd} {
		if got, err := ParseVM(kind); err != nil || got != want {
			t.Errorf("%q: got %q, %v", kind, got, err)
		}
	}
	if _, err := ParseVM("systemd"); err == nil {
		t.Error("took a kind that does not exist")
	}
}

func TestGateFlag(t *testing.T) {
	if got := gateFlag(map[string]bool{"B": false, "A": true}); len(got) != 1 || got[0] != "--feature-gates=A=true,B=false" {
		t.Errorf("got %q", got)
	}
	if got := gateFlag(nil); got != nil {
		t.Errorf("no gates give %q", got)
	}
}
