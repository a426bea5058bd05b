// Package fallback resizes pods on clusters that cannot do it in place: it writes a CRIResize for the pod, and the
// podresize-agent on the pod's node (fallback/agent) changes the cgroups of pod and containers as a kubelet would. The API
// server is the only thing the two share.
//
// What this path cannot give: the scheduler, ResourceQuota and LimitRange do not see the change, and eviction and
// oom_score_adj go by the pod's spec.
package fallback
