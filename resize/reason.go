package resize

// Reason says for programs why a Result or an Error is as it is. The list is closed: docs/reasons.md explains each one.
type Reason string

// Reasons of a Result.
const (
	// ReasonConfirmed (Done): the evidence shows what is wanted.
	ReasonConfirmed Reason = "Confirmed"
	// ReasonNothingAsked (Done): nothing is asked for beyond spec, now or before.
	ReasonNothingAsked Reason = "NothingAsked"

	// ReasonSent (InProgress): the request was accepted just now.
	ReasonSent Reason = "Sent"
	// ReasonWaitingForKubelet (InProgress, Unconfirmed): the kubelet has not yet reported it.
	ReasonWaitingForKubelet Reason = "WaitingForKubelet"
	// ReasonLookAgain (InProgress): the status shows what is wanted, and must be seen to go on doing so.
	ReasonLookAgain Reason = "LookAgain"
	// ReasonWaitingForAgent (InProgress, Unconfirmed): the agent has not yet reported it.
	ReasonWaitingForAgent Reason = "WaitingForAgent"
	// ReasonWaitingForContainer (InProgress): a container is not running.
	ReasonWaitingForContainer Reason = "WaitingForContainer"
	// ReasonHandingOver (InProgress): the node resizes in place now, and the CRI path is about to let go of the pod.
	ReasonHandingOver Reason = "HandingOver"
	// ReasonKubeletError (InProgress): the kubelet reports an error and tries again.
	ReasonKubeletError Reason = "KubeletError"
	// ReasonAgentError (InProgress): the agent reports an error and tries again.
	ReasonAgentError Reason = "AgentError"

	// ReasonNodeFull (Deferred): the node has no room now.
	ReasonNodeFull Reason = "NodeFull"
	// ReasonQuotaExceeded (Deferred): a ResourceQuota has no room now.
	ReasonQuotaExceeded Reason = "QuotaExceeded"
	// ReasonMemoryInUse (Deferred): the new memory limit is below what is in use.
	ReasonMemoryInUse Reason = "MemoryInUse"
	// ReasonContended (Deferred): somebody else undoes on the node what the agent applies.
	ReasonContended Reason = "Contended"
	// ReasonAgentNotReady (Deferred): no podresize-agent is alive on the pod's node.
	ReasonAgentNotReady Reason = "AgentNotReady"
	// ReasonNotRunning (Deferred): the pod has no node, or none of its containers runs yet.
	ReasonNotRunning Reason = "NotRunning"

	// ReasonUnknownContainer (Infeasible): the pod has no regular container of that name.
	ReasonUnknownContainer Reason = "UnknownContainer"
	// ReasonUnsupportedContainer (Infeasible): a container of that kind cannot be resized by this version, or on this path.
	ReasonUnsupportedContainer Reason = "UnsupportedContainer"
	// ReasonUnsupportedResource (Infeasible): something else than cpu and memory was asked for.
	ReasonUnsupportedResource Reason = "UnsupportedResource"
	// ReasonInvalidQuantity (Infeasible): a quantity is not one a container can have.
	ReasonInvalidQuantity Reason = "InvalidQuantity"
	// ReasonLimitBelowRequest (Infeasible): a limit would be below its request.
	ReasonLimitBelowRequest Reason = "LimitBelowRequest"
	// ReasonQOSChange (Infeasible): the pod's QoS class would change.
	ReasonQOSChange Reason = "QOSChange"
	// ReasonNodeTooSmall (Infeasible): the pod would be bigger than its node.
	ReasonNodeTooSmall Reason = "NodeTooSmall"
	// ReasonMemoryLimit (Infeasible): this version takes no decrease of a memory limit, and no new one.
	ReasonMemoryLimit Reason = "MemoryLimit"
	// ReasonLimitRange (Infeasible): a LimitRange of the namespace does not allow the values.
	ReasonLimitRange Reason = "LimitRange"
	// ReasonAdmissionDenied (Infeasible): a webhook or an admission policy denied the request.
	ReasonAdmissionDenied Reason = "AdmissionDenied"
	// ReasonUnsupportedPod (Infeasible): mirror pod, Windows, pod-level resources, sandboxed runtime, static CPU or memory
	// policy, or a feature that the node lacks.
	ReasonUnsupportedPod Reason = "UnsupportedPod"
	// ReasonPodEnded (Infeasible): the pod has ended or is being deleted.
	ReasonPodEnded Reason = "PodEnded"
	// ReasonRejected (Infeasible): API server or kubelet refused the values; the message has its words.
	ReasonRejected Reason = "Rejected"
	// ReasonNotTaken (Infeasible): the API server answered OK and left values out.
	ReasonNotTaken Reason = "NotTaken"

	// ReasonRestartNotAllowed (Refused): the change would restart a container.
	ReasonRestartNotAllowed Reason = "RestartNotAllowed"
	// ReasonPreemptionNotAllowed (Refused): the kubelet might end other pods for this one.
	ReasonPreemptionNotAllowed Reason = "PreemptionNotAllowed"
	// ReasonNoPath (Refused): this cluster offers no way to resize this pod.
	ReasonNoPath Reason = "NoPath"
	// ReasonNodeDiffers (Refused): the node's kernel does not hold what the kubelet should have set.
	ReasonNodeDiffers Reason = "NodeDiffers"
	// ReasonNotEnforced (Refused): enforcement was switched off for this pod.
	ReasonNotEnforced Reason = "NotEnforced"
	// ReasonNotOptedIn (Refused): the node's agent was told to act on other pods only.
	ReasonNotOptedIn Reason = "NotOptedIn"
	// ReasonGateOff (Refused): the gate lets no change of this pod through, by this path.
	ReasonGateOff Reason = "GateOff"
	// ReasonObserved (Refused): the gate has changes of this pod tried, not made; Result.WouldBe says what would have become of it.
	ReasonObserved Reason = "Observed"
)

// Reasons of a Finding that is advice.
const (
	// ReasonNoWayBack: what is asked for cannot be taken back later.
	ReasonNoWayBack Reason = "NoWayBack"
)

// Reasons of an Error.
const (
	// ReasonForbidden: RBAC does not allow the request; the message has the rule to add. Not retryable.
	ReasonForbidden Reason = "Forbidden"
	// ReasonPodNotFound: the pod is gone, or another pod has its name. Not retryable.
	ReasonPodNotFound Reason = "PodNotFound"
	// ReasonConflict: somebody else changed the object at the same time.
	ReasonConflict Reason = "Conflict"
	// ReasonUnavailable: the API server did not answer, or asked to come back later.
	ReasonUnavailable Reason = "Unavailable"
	// ReasonUnknown: anything not understood.
	ReasonUnknown Reason = "Unknown"
)
