package resize

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Resizer moves a running pod towards the resources it should have, and says how far it has got.
type Resizer interface {
	// Resize is level-triggered: call it whenever pod, want or time (Result.RetryAfter) moves, for as long as want holds. No
	// State ends that; Done and Infeasible only mean that there is nothing to wait for. It never waits for the node. The pod may
	// be as old as an informer makes it: that may cost one redundant, idempotent request, never a wrong Done.
	//
	// A want that names nothing asks for nothing: the Result then tells how far earlier resizes have got.
	//
	// An error is an *Error: what failed for a reason outside the pod, and is worth another try unless Error.Retryable says no.
	Resize(ctx context.Context, pod *corev1.Pod, want Resources) (Result, error)
}

// Resources are requests and limits by the name of a container: cpu and memory only. They are partial: what is not named stays
// as it is now, so that a Resize of cpu and then one of memory end with both.
type Resources struct {
	Containers map[string]Requirements `json:"containers,omitempty"`
}

// Requirements are requests and limits of cpu and memory of one container.
type Requirements struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

// Path is the way in which a pod is resized.
type Path string

const (
	// PathNone: no way was taken, or none exists.
	PathNone Path = ""
	// PathInPlace: the pod is patched and its kubelet does the rest.
	PathInPlace Path = "InPlace"
	// PathCRI: a CRIResize is written and the node's podresize-agent does the rest.
	PathCRI Path = "CRI"
)

// State is how far a resize has got.
type State string

const (
	// StateDone: what is wanted is in force, proved by the evidence in the Result.
	StateDone State = "Done"
	// StateInProgress: asked for, not yet proved.
	StateInProgress State = "InProgress"
	// StateUnconfirmed: asked for long ago and still not proved. It may come yet.
	StateUnconfirmed State = "Unconfirmed"
	// StateDeferred: not possible now, retried without a change of want or pod.
	StateDeferred State = "Deferred"
	// StateInfeasible: not possible until want or pod changes.
	StateInfeasible State = "Infeasible"
	// StateRefused: this library or its operator said no, not the cluster.
	StateRefused State = "Refused"
)

// Result is the answer to one Resize. It is to be read, not changed: answers that are alike may share what they point to.
type Result struct {
	Path  Path  `json:"path,omitempty"`
	State State `json:"state"`
	// Reason is for programs: one of the list in reason.go.
	Reason Reason `json:"reason"`
	// Message is for people: one line with the rule, the container and the numbers.
	Message string `json:"message,omitempty"`
	// RetryAfter is when to call again even if nothing else moves. Zero: there is nothing to wait for.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	// Since is when the state began, as far as the API tells; zero: unknown.
	Since time.Time `json:"since,omitzero"`
	// Previous is what a give-up would ask for: the values that the last change replaced, where they are known.
	Previous *Resources `json:"previous,omitempty"`
	// WouldBe is what would have become of a change that a gate only observes (ReasonObserved).
	WouldBe *Outcome `json:"wouldBe,omitempty"`
	// Warnings say what could not be checked, or what this path cannot give.
	Warnings []string `json:"warnings,omitempty"`
	// Pod is what the kernel holds for the pod's cgroup. Only the CRI path knows it.
	Pod *Kernel `json:"pod,omitempty"`
	// Containers is the evidence, in the pod's order of containers.
	Containers []ContainerEvidence `json:"containers,omitempty"`
}

// Outcome is the answer that a change would have had.
type Outcome struct {
	State   State  `json:"state"`
	Reason  Reason `json:"reason"`
	Message string `json:"message,omitempty"`
}

// ContainerEvidence tells what is known of one container.
type ContainerEvidence struct {
	Name string `json:"name"`
	// Desired is what the container should have now: spec, and on the CRI path what was asked for there.
	Desired Requirements `json:"desired"`
	// Allocated are the requests that the kubelet has reserved. In-place path only.
	Allocated corev1.ResourceList `json:"allocated,omitempty"`
	// Actual is what the kubelet says the container runs with. In-place path only.
	Actual *Requirements `json:"actual,omitempty"`
	// Kernel is what the container's cgroup files say. CRI path only.
	Kernel *Kernel `json:"kernel,omitempty"`
	// RestartCount as the pod's status has it.
	RestartCount int32 `json:"restartCount"`
}

// Kernel is the content of a cgroup's files.
type Kernel struct {
	// CPUShares is cpu.shares; nil on cgroup v2.
	CPUShares *int64 `json:"cpuShares,omitempty"`
	// CPUWeight is cpu.weight; nil on cgroup v1.
	CPUWeight *int64 `json:"cpuWeight,omitempty"`
	// CPUQuotaMicroseconds per period; -1 is no limit.
	CPUQuotaMicroseconds int64 `json:"cpuQuotaMicroseconds"`
	// CPUPeriodMicroseconds is the length of a period.
	CPUPeriodMicroseconds int64 `json:"cpuPeriodMicroseconds"`
	// MemoryLimitBytes; -1 is no limit.
	MemoryLimitBytes int64 `json:"memoryLimitBytes"`
}
