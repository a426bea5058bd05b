package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelNode is the label that tells an agent which CRIResizes are its own: the node's name, or, since a label value holds no
// more than 63 characters, NodeLabelValue of it.
const LabelNode = "podresize.dev/node"

// ConditionApplied is the one condition of a CRIResize: True when the kernel was seen to hold what spec asks for.
const ConditionApplied = "Applied"

// Reasons of ConditionApplied. Those with status True come first.
const (
	// ReasonApplied: the kernel holds the figures of spec, read back from the cgroup files of pod and containers.
	ReasonApplied = "Applied"
	// ReasonPending: something is still to be written; the agent retries by itself.
	ReasonPending = "Pending"
	// ReasonContainerNotRunning: a container of the pod is not running, its figures are applied as soon as it is.
	ReasonContainerNotRunning = "ContainerNotRunning"
	// ReasonMemoryInUse: a memory limit is to be lowered below what is in use; retried, the limit stays meanwhile.
	ReasonMemoryInUse = "MemoryInUse"
	// ReasonRuntimeUnavailable: the container runtime does not answer; retried.
	ReasonRuntimeUnavailable = "RuntimeUnavailable"
	// ReasonPodNotFound: the runtime has no running sandbox with the pod's UID.
	ReasonPodNotFound = "PodNotFound"
	// ReasonNodeDiffers: at first sight the kernel holds neither the figures of before nor those wanted, so somebody else sets
	// them or the kubelet is configured otherwise (CFS quota off, another period). Nothing was written.
	ReasonNodeDiffers = "NodeDiffers"
	// ReasonWriteFailed: the runtime or the kernel refused a value; the message has its words; retried.
	ReasonWriteFailed = "WriteFailed"
	// ReasonContended: somebody else undid it three times in a row, or more; tried again after pauses that grow to five minutes.
	ReasonContended = "Contended"
	// ReasonSandboxed: the containers do not run in their cgroups on this host, as in a sandboxed runtime. Nothing was written.
	ReasonSandboxed = "Sandboxed"
	// ReasonExclusiveCPUs: a Guaranteed pod that the static policy of the CPU or memory manager has pinned. Nothing was written.
	ReasonExclusiveCPUs = "ExclusiveCPUs"
	// ReasonExceedsNode: a request is larger than what the node can allocate. Nothing was written.
	ReasonExceedsNode = "ExceedsNode"
	// ReasonNotOptedIn: the agent was told to act on other pods only. Nothing was written.
	ReasonNotOptedIn = "NotOptedIn"
	// ReasonNotEnforced: spec.enforce is false; the containers keep what they have.
	ReasonNotEnforced = "NotEnforced"
)

// CRIResize is what the agent of one node must hold for one running pod. Its name is the pod's UID. The spec is written by
// fallback.Resizer, the status by the agent of spec.nodeName alone, or by the
// pod's sidecar alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=criresizes,scope=Namespaced,shortName=crir,categories=podresize
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.podName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.podUID",message="metadata.name must be spec.podUID"
type CRIResize struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CRIResizeSpec `json:"spec"`
	// +optional
	Status CRIResizeStatus `json:"status,omitempty"`
}

// CRIResizeSpec is complete: it carries every fact of the pod that the kubelet's arithmetic needs and the runtime does not
// know, so that the agent reads nothing but this object and the node.
//
// +kubebuilder:validation:XValidation:rule="(has(self.sidecar) && self.sidecar.size() > 0) == (has(oldSelf.sidecar) && oldSelf.sidecar.size() > 0) && (!has(self.sidecar) || !has(oldSelf.sidecar) || self.sidecar == oldSelf.sidecar)",message="sidecar is immutable"
type CRIResizeSpec struct {
	// podName is the pod's name, in the namespace of this object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="podName is immutable"
	PodName string `json:"podName"`
	// podUID is the pod's UID: a pod of the same name with another UID is another pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="podUID is immutable"
	PodUID string `json:"podUID"`
	// nodeName is the node that runs the pod; unless there is a sidecar, that node's agent acts on this object, and no other.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName is immutable"
	NodeName string `json:"nodeName"`
	// sidecar is the name of the container of this pod that acts on this object instead of the node's agent; empty: the node's agent
	// does. It is immutable, also where it is not set: an object has one writer of its status for all its life.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Sidecar string `json:"sidecar,omitempty"`
	// enforce says whether the agent applies this and keeps it applied. False leaves the containers what they have; the limits of
	// the pod's cgroup are raised once to those of before if they are lower, so that a container can be restarted.
	// +kubebuilder:default=true
	// +optional
	Enforce *bool `json:"enforce,omitempty"`
	// qosClass is the pod's QoS class, as in its status; a resize never changes it.
	// +kubebuilder:validation:Enum=Guaranteed;Burstable;BestEffort
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="qosClass is immutable"
	QOSClass corev1.PodQOSClass `json:"qosClass"`
	// overhead is the pod's spec.overhead: it counts towards the figures of the pod cgroup.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Overhead map[corev1.ResourceName]resource.Quantity `json:"overhead,omitempty"`
	// initContainers are all init containers of the pod, in the pod's order: the pod cgroup's figures depend on them, also after
	// they have ended.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	InitContainers []InitContainer `json:"initContainers,omitempty"`
	// containers are all regular containers of the pod.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Containers []Container `json:"containers"`
}

// Container is one regular container: what its pod's spec says, and what it is to have instead.
type Container struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// before is what the pod's spec says: what the kubelet gives the container whenever it starts it.
	// +optional
	Before Requirements `json:"before,omitempty"`
	// wanted is what the container is to have: complete, not a difference.
	// +optional
	Wanted Requirements `json:"wanted,omitempty"`
}

// InitContainer is one init container. It is not resized; its resources count in the pod's.
type InitContainer struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// sidecar says that the container's restartPolicy is Always: it runs beside the regular containers and its resources are
	// added to theirs.
	// +optional
	Sidecar bool `json:"sidecar,omitempty"`
	// +optional
	Resources Requirements `json:"resources,omitempty"`
}

// Requirements are requests and limits of cpu and memory.
type Requirements struct {
	// +kubebuilder:validation:MaxProperties=2
	// +kubebuilder:validation:XValidation:rule="self.all(k, k == 'cpu' || k == 'memory')",message="only cpu and memory can be resized"
	// +optional
	Requests map[corev1.ResourceName]resource.Quantity `json:"requests,omitempty"`
	// +kubebuilder:validation:MaxProperties=2
	// +kubebuilder:validation:XValidation:rule="self.all(k, k == 'cpu' || k == 'memory')",message="only cpu and memory can be resized"
	// +optional
	Limits map[corev1.ResourceName]resource.Quantity `json:"limits,omitempty"`
}

// CRIResizeStatus is the agent's proof.
type CRIResizeStatus struct {
	// conditions holds Applied, with the observedGeneration it speaks of.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// pod is what the kernel held for the pod's cgroup when the agent last read it.
	// +optional
	Pod *Kernel `json:"pod,omitempty"`
	// containers is what the kernel held for each running container.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Containers []ContainerKernel `json:"containers,omitempty"`
	// applied is what the agent last saw in force, container by container; before its first write, what the kubelet had set. Once
	// it is there, a difference in the kernel is undone instead of answered with NodeDiffers, also after the agent was restarted.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Applied []AppliedContainer `json:"applied,omitempty"`
	// repairs is how often what was applied no longer held and was applied again: since a container was restarted, which the kubelet
	// does from the pod's spec, or since somebody else changed it.
	// +optional
	Repairs int64 `json:"repairs,omitempty"`
	// heartbeat is written by a sidecar alone, every 30 s: it shows that it lives, as a node's agent does by its Lease. The time is that
	// of the sidecar's clock; callers go by when they see it change.
	// +optional
	Heartbeat *metav1.MicroTime `json:"heartbeat,omitempty"`
}

// AppliedContainer is what the agent gave one container.
type AppliedContainer struct {
	Name string `json:"name"`
	// +optional
	Resources Requirements `json:"resources,omitempty"`
}

// ContainerKernel is what the kernel held for one container.
type ContainerKernel struct {
	Name string `json:"name"`
	// containerID is the runtime's id, without the scheme.
	ContainerID string `json:"containerID"`
	// restartCount as the kubelet counts it: it tells which run of the container the figures belong to.
	RestartCount int32  `json:"restartCount"`
	Kernel       Kernel `json:"kernel"`
}

// Kernel is the content of a cgroup's files.
type Kernel struct {
	// cpuShares is cpu.shares (cgroup v1).
	// +optional
	CPUShares *int64 `json:"cpuShares,omitempty"`
	// cpuWeight is cpu.weight (cgroup v2).
	// +optional
	CPUWeight *int64 `json:"cpuWeight,omitempty"`
	// cpuQuotaMicroseconds is the CPU time that may be used in each period; -1 is no limit.
	CPUQuotaMicroseconds int64 `json:"cpuQuotaMicroseconds"`
	// cpuPeriodMicroseconds is the length of a period.
	CPUPeriodMicroseconds int64 `json:"cpuPeriodMicroseconds"`
	// memoryLimitBytes; -1 is no limit.
	MemoryLimitBytes int64 `json:"memoryLimitBytes"`
}

// CRIResizeList is a list of CRIResizes.
//
// +kubebuilder:object:root=true
type CRIResizeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []CRIResize `json:"items"`
}
