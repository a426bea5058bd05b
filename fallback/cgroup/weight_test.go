package cgroup_test

import (
	"testing"

	"github.com/podresize/podresize/fallback/cgroup"
)

func TestWeight(t *testing.T) {
	for shares, want := range map[uint64]uint64{
		0: 1, 2: 1, 28: 1, 29: 2, 102: 4, 512: 20, 1024: 39, 2048: 79, 262143: 9999, 262144: 10000, 1 << 40: 10000,
	} {
		if got := cgroup.Weight(shares); got != want {
			t.Errorf("Weight(%d) = %d, want %d", shares, got, want)
		}
	}
}

func TestWeightHolds(t *testing.T) {
	for _, tc := range []struct {
		shares, weight uint64
		want           bool
	}{
		{1024, 39, true},  // linear
		{1024, 100, true}, // quadratic: default to default
		{1024, 38, false},
		{1024, 40, false},
		{1024, 99, false},
		{1024, 101, false},
		{102, 4, true},
		{102, 17, true},
		{2, 1, true},
		{2, 2, false},
		{262144, 10000, true},
		{262144, 9999, false},
		{1024, 0, false},
	} {
		if got := cgroup.WeightHolds(tc.shares, tc.weight); got != tc.want {
			t.Errorf("WeightHolds(%d, %d) = %t, want %t", tc.shares, tc.weight, got, tc.want)
		}
	}
}

// Over the whole range of shares, both formulas stay within what the kernel takes
// and never fall. The quadratic one is found by walking up to the next weight
// that holds, for it lies above the linear one.
func TestWeightRange(t *testing.T) {
	linear, quadratic := uint64(1), uint64(1)
	for shares := uint64(2); shares <= 262144; shares++ {
		weight := cgroup.Weight(shares)
		if weight < linear || weight > 10000 {
			t.Fatalf("Weight(%d) = %d after %d", shares, weight, linear)
		}
		linear = weight
		for !cgroup.WeightHolds(shares, quadratic) {
			if quadratic++; quadratic > 10000 {
				t.Fatalf("WeightHolds(%d, …) takes no second weight up to 10000", shares)
			}
		}
	}
	if linear != 10000 || quadratic != 10000 {
		t.Errorf("weights end at %d and %d, want 10000", linear, quadratic)
	}
}
