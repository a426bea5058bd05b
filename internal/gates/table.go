package gates

import "k8s.io/component-base/featuregate"

// The switches.
const (
	// CRIFallback lets podresize take the CRI path.
	CRIFallback featuregate.Feature = "CRIFallback"
	// MemoryReclaim has podresize-agent ask the kernel to reclaim memory.
	MemoryReclaim featuregate.Feature = "MemoryReclaim"
)

// Table has every switch there is, in the order of their names.
func Table() []Switch {
	return []Switch{
		{
			Name: CRIFallback, Program: "podresize", Since: "Unreleased",
			Spec:    featuregate.FeatureSpec{PreRelease: featuregate.Beta, Default: true},
			Meaning: "Pods whose node does not resize in place are resized through the CRI. Off: they are Refused, `NoPath`.",
		},
		{
			Name: MemoryReclaim, Program: "podresize-agent", Since: "Unreleased",
			Spec:    featuregate.FeatureSpec{PreRelease: featuregate.Beta, Default: true},
			Meaning: "On cgroup v2, before a memory limit is lowered below what is in use, the kernel is asked to reclaim what is too much. Off: that is `MemoryInUse` at once.",
		},
	}
}

// Removed has the switches that there are no more, and what holds since.
func Removed() map[featuregate.Feature]string {
	return map[featuregate.Feature]string{} // none yet
}
