// Package sidecar puts the agent of package fallback/agent into a pod, which it then resizes, for who cannot run it on each node. The
// component manifests/components/sidecar does the same by kustomize; docs/sidecar.md says what either costs.
package sidecar
