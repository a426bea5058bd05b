// Package cri is one connection to a container runtime: it finds the running
// containers of a pod, and updates the resources of one.
//
// It promises that nothing is remembered between calls, so that a restarted
// container or runtime is never confused with its predecessor; that every
// request has a deadline; and that an update carries the full set of figures it
// is about and no other, since runtimes read zero as "leave it" and some add up
// what they are sent twice.
//
// It speaks CRI v1, which every kubelet from 1.26 needs its runtime to speak. What
// a runtime answers about resources is its own record and not the kernel's truth:
// that is read with fallback/cgroup, from the cgroup path told here. The figures
// come from fallback/figures; fallback/agent brings all of them together.
package cri
