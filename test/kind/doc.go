// Package kind runs the clusters that package cluster runs, with the same configuration, where Docker is at hand: by kind, with a
// container for each node. It is there for machines that package cluster is not for, and for the continuous integration of a hosted
// repository.
//
//	c, err := kind.Start(ctx, cluster.Config{Name: "resize", Kubernetes: "1.29"})
//	defer kind.Stop("resize", os.Stderr)
//	pod, err := c.RunPod(ctx, pod)
//	figures, err := c.Cgroup(ctx, pod, "app")
//
// What is done with a cluster through its API server is cluster.API for both. On a node everything is done by docker exec, with the
// programs that a node image has: crictl, ctr, systemctl.
//
// config.go says what kind is asked for, and directory kind-configs has that for every setting of package setting, written by the
// generator in cmd/kind. cluster.go starts and stops, node.go does things on nodes, component.go restarts what runs on them.
package kind
