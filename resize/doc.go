// Package resize changes the CPU and memory of a running pod without restarting it, and says truthfully how far it has got.
//
// Resizer is the contract. InPlace fulfils it with the kubelet's own in-place resize; package fallback fulfils it on clusters
// that lack that; Adapter finds out what cluster, node and pod can do and takes one of them. The files of this package stand
// for the questions that a request meets, in this order: adapter.go (which path?), gate.go (does the operator let it?), detect.go
// (can server, node and pod do it?), plan.go (may it, and what would happen?), inplace.go (ask), progress.go (is it done?).
package resize
