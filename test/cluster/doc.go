// Package cluster runs a real Kubernetes of any release from 1.26 to 1.37 on
// this one Linux machine, without Docker and without pulling an image: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler as processes, and
// for each node one containerd and one kubelet. It needs root.
//
//	c, err := cluster.Start(ctx, cluster.Config{
//		Name:       "resize",
//		Kubernetes: "1.26",
//		Nodes:      []cluster.Node{{Name: "n1"}, {Name: "n2", Kubernetes: "1.33"}},
//		Progress:   os.Stderr,
//	})
//	defer c.Stop(context.WithoutCancel(ctx))
//	pod, err := c.RunPod(ctx, pod)           // created, Running and Ready
//	figures, err := c.Cgroup(ctx, pod, "app") // what the kernel holds now
//
// Several clusters run side by side; each has a name, an index and, from the
// index, its own loopback addresses. A cluster lives in StateDir/<name>, and
// any process can Open or Down it.
//
// A node can also be in a virtual machine, with cgroup v2 and systemd whatever
// this machine has (Node.VM). It is used in the same way.
//
// Its containers can be run by others than Debian's containerd and runc
// (Node.Runtime): by Debian's crun, or by a containerd of version 2 that is
// built from its Go module. Debian's ctr imports the images into both, and both
// containerds read the same configuration, which is of version 2: the newer one
// migrates it (to the version 4 of 2.4) at each start. It finds its own shim
// because its directory is the first in its PATH. Crun takes the place of
// runc under that name, as options.BinaryName of the handler runc; on a machine
// with hierarchies of both versions of cgroups its nodes see those of v1 alone.
//
// What makes a clean end possible after a Ctrl-C or a kill -9 at any moment:
//
//   - Every process of a cluster is born in a cgroup of that cluster and its
//     containers live in others below it, so the kernel knows them all.
//   - Each node has a mount namespace of its own. Its mounts die with its last
//     process, and /run/containerd, /var/lib/kubelet and /var/log/pods are the
//     usual paths on every node, so manifests need no change for the test bed.
//   - What is changed on the machine itself is written down before it is done.
//
// One file per question: which releases there are (versions.go), how they are
// built (module.go, binaries.go), what the user asks for (config.go), how a
// cluster comes up (start.go, controlplane.go, node.go, runtime.go, certs.go;
// machine.go, machineimage.go) and goes (down.go, host.go), what a test does with it
// (client.go, pods.go, apply.go, images.go, cgroups.go, audit.go,
// component.go).
package cluster
