package cgroup

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProperties(t *testing.T) {
	for name, tc := range map[string]struct {
		unified bool
		want    Slice
		set     map[string]uint64
	}{
		"v2": {true, Slice{1024, 20000, 100000, 64 << 20}, map[string]uint64{
			"CPUWeight": 39, "CPUQuotaPerSecUSec": 200_000, "CPUQuotaPeriodUSec": 100_000, "MemoryMax": 64 << 20,
		}},
		"v1": {false, Slice{1024, 20000, 100000, 64 << 20}, map[string]uint64{
			"CPUShares": 1024, "CPUQuotaPerSecUSec": 200_000, "CPUQuotaPeriodUSec": 100_000, "MemoryLimit": 64 << 20,
		}},
		"no limits, weight left": {true, Slice{0, NoLimit, 100000, NoLimit}, map[string]uint64{
			"CPUQuotaPerSecUSec": math.MaxUint64, "CPUQuotaPeriodUSec": 100_000, "MemoryMax": math.MaxUint64,
		}},
		"case-77 51m are rounded up": {true, Slice{52, 5100, 100000, NoLimit}, map[string]uint64{
			"CPUWeight": 2, "CPUQuotaPerSecUSec": 60_000, "CPUQuotaPeriodUSec": 100_000, "MemoryMax": math.MaxUint64,
		}},
		"another period": {true, Slice{2, 5000, 10000, NoLimit}, map[string]uint64{
			"CPUWeight": 1, "CPUQuotaPerSecUSec": 500_000, "CPUQuotaPeriodUSec": 10_000, "MemoryMax": math.MaxUint64,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]uint64{}
			for _, p := range (&Systemd{unified: tc.unified}).properties(tc.want) {
				value, ok := p.Value.Value().(uint64)
				if !ok {
					t.Fatalf("%s is a %s", p.Name, p.Value.Signature())
				}
				got[p.Name] = value
			}
			if diff := cmp.Diff(tc.set, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestNoSystemd(t *testing.T) {
	socket := t.TempDir() + "/private"
	s := (&Tree{}).NewSystemd(socket)
	defer s.Close()
	if err := s.Set(t.Context(), "/kubepods.slice/kubepods-podx.slice", Slice{Period: 1}); err == nil || !strings.Contains(err.Error(), socket) {
		t.Errorf("got %v, want an error that names %q", err, socket)
	}
}
