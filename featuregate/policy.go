package featuregate

import (
	_ "embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a policy begins with.
const (
	APIVersion = "podresize.dev/v1alpha1"
	Kind       = "RolloutPolicy"
)

//go:embed rolloutpolicy.schema.json
var schema []byte

// Schema is the JSON Schema of a Policy.
func Schema() []byte { return schema }

// Policy is a whole roll-out. What it does not name is Off.
type Policy struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// KillSwitch, when active, beats everything else.
	KillSwitch KillSwitch `json:"killSwitch,omitzero"`
	// Selector leaves out pods of every region; nil: none.
	Selector *Selector `json:"selector,omitempty"`
	// Default is for regions that are not named, and for nodes without a region.
	Default Rollout `json:"default,omitzero"`
	// Regions are the others; the order does not matter.
	Regions []Region `json:"regions,omitempty"`
	// Halt says when a region turns Off by itself; nil: never.
	Halt *Halt `json:"halt,omitempty"`
}

// KillSwitch turns everything Off.
type KillSwitch struct {
	Active bool `json:"active,omitempty"`
	// Enforcement is what becomes of CRIResizes that are in force; empty: Keep.
	Enforcement Enforcement `json:"enforcement,omitempty"`
	// Message is for people: it is in the answer to every change.
	Message string `json:"message,omitempty"`
}

// Enforcement is what a kill switch does to CRIResizes that are in force.
type Enforcement string

const (
	// EnforcementKeep: the agents go on keeping what they have applied.
	EnforcementKeep Enforcement = "Keep"
	// EnforcementStop: spec.enforce becomes false; the containers keep what they have.
	EnforcementStop Enforcement = "Stop"
)

// Selector chooses pods: those of the namespaces that have the labels.
type Selector struct {
	// Namespaces are the only ones; empty: all.
	Namespaces []string `json:"namespaces,omitempty"`
	// ExceptNamespaces are none of them.
	ExceptNamespaces []string `json:"exceptNamespaces,omitempty"`
	// Pods is by labels; nil: all.
	Pods *metav1.LabelSelector `json:"pods,omitempty"`
}

// Rollout is how far each path is let go, and from when.
type Rollout struct {
	// Selector leaves out pods beyond those that the policy's leaves out; nil: none.
	Selector *Selector `json:"selector,omitempty"`
	// InPlace and CRI hold until a stage says otherwise; empty: Off.
	InPlace Level `json:"inPlace,omitempty"`
	CRI     Level `json:"cri,omitempty"`
	// Stages follow each other in time.
	Stages []Stage `json:"stages,omitempty"`
}

// Region is the roll-out of one region.
type Region struct {
	// Name is the value of the nodes' label topology.kubernetes.io/region.
	Name string `json:"name"`
	Rollout
}

// Stage changes levels from a time on. A path that it does not name stays as it is.
type Stage struct {
	NotBefore metav1.Time `json:"notBefore"`
	InPlace   Level       `json:"inPlace,omitempty"`
	CRI       Level       `json:"cri,omitempty"`
}

// Level is how far a path is let go: LevelOff, LevelObserve, LevelOn, or a percentage of the pods such as 25% or 0.5%. YAML's
// Off and On without quotes are booleans to many programs; both spellings mean the same here.
type Level string

const (
	// LevelOff: nothing is sent.
	LevelOff Level = "Off"
	// LevelObserve: changes are planned and sent as dry runs.
	LevelObserve Level = "Observe"
	// LevelOn: changes of all pods are made.
	LevelOn Level = "On"
)

// Halt says when a region turns Off by itself: when more than Ratio of the resizes that ended within Window have failed.
type Halt struct {
	// Window is how long a resize counts from its beginning: one minute to a week.
	Window metav1.Duration `json:"window"`
	// Ratio is a percentage, such as 5%.
	Ratio string `json:"ratio"`
	// Minimum is how many resizes must have ended before anything is concluded; zero: 20.
	Minimum int `json:"minimum,omitempty"`
	// Failures are the states and reasons (docs/reasons.md) that count as a failure, and Restart; empty: those of defaultFailures.
	Failures []string `json:"failures,omitempty"`
}

// FailureRestart counts a container that was restarted after a resize of its pod, and has no resizePolicy that would restart it.
const FailureRestart = "Restart"

const defaultMinimum = 20

// defaultFailures are what points at podresize or the node rather than at the caller's want.
func defaultFailures() []string {
	return []string{"Unconfirmed", "KubeletError", "AgentError", "NodeDiffers", "Contended", "NotTaken", FailureRestart}
}

// knownFailures are all that a policy may name: states, reasons of a Result or an Error that are not about the want alone, Restart.
func knownFailures() []string {
	return []string{
		"Unconfirmed", "Deferred", "Infeasible",
		"KubeletError", "AgentError", "NodeFull", "QuotaExceeded", "MemoryInUse", "Contended", "AgentNotReady", "NodeTooSmall",
		"MemoryLimit", "LimitRange", "AdmissionDenied", "UnsupportedPod", "Rejected", "NotTaken", "NodeDiffers",
		"Forbidden", "Conflict", "Unavailable", "Unknown",
		FailureRestart,
	}
}
