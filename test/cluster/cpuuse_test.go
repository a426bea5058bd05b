package cluster

import (
	"testing"
	"time"
)

func TestParseCPUStat(t *testing.T) {
	const v2 = "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 30\nnr_throttled 12\nthrottled_usec 77\n"
	got, err := ParseCPUStat(v2)
	if want := (CPUUse{Used: 1500 * time.Millisecond, Periods: 30, Throttled: 12}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "usage_usec 1\nnr_periods 2\n", "usage_usec x\nnr_periods 2\nnr_throttled 3\n"} {
		if got, err := ParseCPUStat(text); err == nil {
			t.Errorf("of %q it makes %+v", text, got)
		}
	}
}
