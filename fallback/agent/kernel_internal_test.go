package agent

import (
	"testing"

	"github.com/podresize/podresize/fallback/cgroup"
	"github.com/podresize/podresize/fallback/figures"
)

// TestHoldsQuota is case-77: systemd rounds 51m up to 60m, which is no difference to fight. Nothing else is taken for it.
func TestHoldsQuota(t *testing.T) {
	for _, tc := range []struct {
		name               string
		want, held, period int64
		same               bool
	}{
		{"as wanted", 5100, 5100, 100000, true},
		{"case-77 rounded up", 5100, 6000, 100000, true},
		{"case-77 rounded down", 5100, 5000, 100000, false},
		{"case-77 rounded twice", 5100, 7000, 100000, false},
		{"whole steps", 6000, 7000, 100000, false},
		{"case-76 more than four CPUs", 409600, 410000, 100000, true},
		{"another period", 5100, 5100, 50000, false},
		{"a limit instead of none", figures.Unlimited, 1000, 100000, false},
		{"none instead of a limit", 5100, cgroup.NoLimit, 100000, false},
		{"none", figures.Unlimited, cgroup.NoLimit, 100000, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := figures.Cgroup{Quota: tc.want, Period: 100000}
			if got := holdsQuota(cgroup.Values{Quota: tc.held, Period: tc.period}, want); got != tc.same {
				t.Errorf("want %d, held %d: %t", tc.want, tc.held, got)
			}
		})
	}
}
