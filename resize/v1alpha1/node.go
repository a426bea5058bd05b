package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// AgentNamespace is where the agents run and keep their Leases, unless they are told otherwise.
const AgentNamespace = "podresize-system"

// SidecarContainer is the name of the container that holds its own pod, in a pod that has one: see package fallback/sidecar.
const SidecarContainer = "podresize-agent"

// AgentLeaseDuration is how long after its last renewal an agent counts as alive. It renews four times in that time. For the
// heartbeat of a sidecar it is the same.
const AgentLeaseDuration = 120 * time.Second

// AgentLeaseName is the name of the Lease by which the agent of a node shows that it lives.
func AgentLeaseName(nodeName string) string { return "podresize-agent-" + NodeLabelValue(nodeName) }

// NodeLabelValue is the value of LabelNode for a node: its name, or the first 63 characters of the SHA-256 (in hex) of a name
// that is too long for a label.
func NodeLabelValue(nodeName string) string {
	if len(nodeName) <= validation.LabelValueMaxLength {
		return nodeName
	}
	sum := sha256.Sum256([]byte(nodeName))
	return hex.EncodeToString(sum[:])[:validation.LabelValueMaxLength]
}
