package cgroup

import "math"

// The range of cpu.shares. The kernel takes the nearest end for anything else.
const (
	minShares = 2
	maxShares = 262144
)

// Weight converts CPU shares to a cpu.weight by the linear formula that every
// kubelet uses for the cgroup of a pod (getCPUWeight in
// pkg/kubelet/cm/cgroup_manager_linux.go, 1.26 to 1.37), and that runtimes used
// for containers until late 2025. Shares out of range count as the nearest end.
func Weight(shares uint64) uint64 {
	shares = min(max(shares, minShares), maxShares)
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}

// WeightHolds reports whether weight is what a container runtime or kubelet of
// any age makes of shares: a container's cgroup may follow either formula.
func WeightHolds(shares, weight uint64) bool {
	return weight == Weight(shares) || weight == quadraticWeight(shares)
}

// quadraticWeight is the formula of runc 1.3.2 and crun 1.23 and later: a
// parabola over the exponents, which takes the ends of both ranges and both
// defaults (1024 and 100) to each other.
func quadraticWeight(shares uint64) uint64 {
	switch {
	case shares <= minShares:
		return 1
	case shares >= maxShares:
		return 10000
	}
	l := math.Log2(float64(shares))
	return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}
