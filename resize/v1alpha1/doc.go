// Package v1alpha1 holds the API types of group podresize.dev.
//
// CRIResize is how package fallback tells fallback/agent what the agent on one node must hold, and how the agent proves
// that the kernel holds it. People do not write CRIResizes: they call resize.Resizer or use the podresize command.
//
// +kubebuilder:object:generate=true
// +groupName=podresize.dev
package v1alpha1
