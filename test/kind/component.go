package kind

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/podresize/podresize/test/cluster"
)

// Component is one process of a cluster: a service of systemd on its node, or a static pod of the control plane's.
type Component struct {
	cluster *Cluster
	node    string
	program string
}

// Component returns a process of the cluster: "kubelet" or "containerd" of a node, or "kube-apiserver", "kube-controller-manager",
// "kube-scheduler" or "etcd" with an empty node.
func (c *Cluster) Component(program, node string) (*Component, error) {
	p := &Component{cluster: c, node: c.NodeName(node), program: program}
	if node == "" {
		p.node = c.plane()
	}
	known := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"}
	if node != "" {
		known = []string{"kubelet", "containerd"}
	}
	isNode := func(at place) bool { return at.container == p.node }
	if !slices.Contains(known, program) || !slices.ContainsFunc(places(c.config), isNode) {
		return nil, fmt.Errorf("no component %q on node %q of cluster %q", program, node, c.config.Name)
	}
	return p, nil
}

func (p *Component) isService() bool { return p.program == "kubelet" || p.program == "containerd" }

// manifest is where the kubelet of the control plane looks for a static pod; parked is where it does not.
func (p *Component) manifest() string { return "/etc/kubernetes/manifests/" + p.program + ".yaml" }
func (p *Component) parked() string   { return "/etc/kubernetes/" + p.program + ".yaml" }

func (p *Component) exec(ctx context.Context, argv ...string) (string, error) {
	out, err := p.cluster.exec(ctx, p.node, nil, argv...)
	return strings.TrimSpace(string(out)), err
}

// do is exec for what is done for its effect.
func (p *Component) do(ctx context.Context, argv ...string) error {
	_, err := p.exec(ctx, argv...)
	return err
}

// Signal sends a signal, SIGSTOP say, and does not wait for anything. Whom it ends is started again: see Kill.
func (p *Component) Signal(ctx context.Context, sig syscall.Signal) error {
	number := strconv.Itoa(int(sig))
	if p.isService() {
		return p.do(ctx, "systemctl", "kill", "--kill-who=main", "--signal="+number, p.program)
	}
	return p.do(ctx, "sh", "-c", `pkill --signal "$0" --exact "$1"; [ $? -le 1 ]`, number, p.process())
}

// process is the program's name as the kernel has it, of 15 bytes at most.
func (p *Component) process() string {
	const longest = 15
	return p.program[:min(len(p.program), longest)]
}

// Kill is kill -9 to a process that is not to be started again; it returns when the process is gone.
func (p *Component) Kill(ctx context.Context) error {
	if !p.isService() {
		if err := p.park(ctx); err != nil {
			return err
		}
	}
	if err := p.Signal(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	return p.Stop(ctx)
}

// Stop asks the process to end and returns when it is gone. It does nothing to one that does not run.
func (p *Component) Stop(ctx context.Context) error {
	if p.isService() {
		return p.do(ctx, "systemctl", "stop", p.program)
	}
	if err := p.park(ctx); err != nil {
		return err
	}
	return p.waitGone(ctx)
}

// park takes the manifest away, if it is there.
func (p *Component) park(ctx context.Context) error {
	return p.do(ctx, "sh", "-c", `[ ! -e "$0" ] || mv "$0" "$1"`, p.manifest(), p.parked())
}

// waitGone waits for the end of a static pod's container. Its kubelet looks for it every 20 s at the latest.
func (p *Component) waitGone(ctx context.Context) error {
	return p.waitContainer(ctx, func(ids string) bool { return ids == "" })
}

func (p *Component) waitContainer(ctx context.Context, ended func(ids string) bool) error {
	return wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		ids, err := p.exec(ctx, "crictl", "ps", "--state=running", "--name=^"+p.program+"$", "--quiet")
		return ended(ids), err
	})
}

// Start starts the process and returns when it is healthy: a kubelet when its node is Ready with it. It does nothing to one that runs.
func (p *Component) Start(ctx context.Context) error {
	switch p.program {
	case "kubelet":
		if p.do(ctx, "systemctl", "is-active", "--quiet", p.program) == nil {
			return nil
		}
		return p.cluster.StartKubelet(ctx, p.node, func(ctx context.Context) error { return p.do(ctx, "systemctl", "start", p.program) })
	case "containerd":
		return p.do(ctx, "sh", "-c", `systemctl start "$0" && crictl info > /dev/null`, p.program)
	}
	if err := p.do(ctx, "sh", "-c", `[ -e "$0" ] || mv "$1" "$0"`, p.manifest(), p.parked()); err != nil {
		return err
	}
	if err := p.waitContainer(ctx, func(ids string) bool { return ids != "" }); err != nil {
		return err
	}
	return p.cluster.WaitReady(ctx)
}

// Restart is Stop and Start.
func (p *Component) Restart(ctx context.Context) error { return p.RestartWith(ctx, cluster.Settings{}) }

// RestartWith is Stop, then Start with other settings, which hold from then on. Another release comes out of its node image.
func (p *Component) RestartWith(ctx context.Context, want cluster.Settings) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	if want.Kubernetes != "" {
		if err := p.replace(ctx, want.Kubernetes); err != nil {
			return fmt.Errorf("bringing %s of Kubernetes %s to node %q: %w", p.program, want.Kubernetes, p.node, err)
		}
	}
	if want.Gates != nil {
		if err := p.setGates(ctx, want.Gates); err != nil {
			return err
		}
	}
	return p.Start(ctx)
}

// exportImage prints the archive of the image of program $0 that a node image holds for kubeadm.
const exportImage = `containerd > /dev/null 2>&1 &
until ctr version > /dev/null 2>&1; do sleep 0.1; done
exec ctr --namespace=k8s.io images export - $(ctr --namespace=k8s.io images list --quiet | grep "/$0:")`

// replace brings another release of a stopped program.
func (p *Component) replace(ctx context.Context, release string) error {
	image, err := imageOf(release)
	if err != nil {
		return err
	}
	switch {
	case p.program == "kubelet":
		const install = `cat > /usr/bin/kubelet.new && chmod 755 /usr/bin/kubelet.new && mv /usr/bin/kubelet.new /usr/bin/kubelet`
		return p.transfer(ctx, []string{"run", "--rm", "--entrypoint=cat", image, "/usr/bin/kubelet"}, "sh", "-c", install)
	case !strings.HasPrefix(p.program, "kube-"):
		return fmt.Errorf("%s is no part of Kubernetes", p.program)
	}
	export := []string{"run", "--rm", "--privileged", "--entrypoint=sh", image, "-c", exportImage, p.program}
	if err := p.transfer(ctx, export, "ctr", "--namespace=k8s.io", "images", "import", "-"); err != nil {
		return err
	}
	return p.do(ctx, "sed", "-i", `s|\(image: .*/`+p.program+`\):.*|\1:`+tag(image)+`|`, p.parked())
}

// transfer gives what docker prints to a command on the node.
func (p *Component) transfer(ctx context.Context, from []string, argv ...string) error {
	data, err := p.cluster.docker(ctx, nil, from...)
	if err != nil {
		return err
	}
	_, err = p.cluster.exec(ctx, p.node, bytes.NewReader(data), argv...)
	return err
}

// tag is that of an image with a tag and a digest.
func tag(image string) string {
	name, _, _ := strings.Cut(image, "@")
	return name[strings.LastIndex(name, ":")+1:]
}

// setGates replaces all feature gates of a stopped program.
func (p *Component) setGates(ctx context.Context, gates map[string]bool) error {
	file, drop, add := p.parked(), `/- --feature-gates=/d`, `/- `+p.program+`$/a\    - --feature-gates=`+spell(gates)
	if p.program == "kubelet" {
		// One line: KUBELET_KUBEADM_ARGS="...".
		file, drop, add = "/var/lib/kubelet/kubeadm-flags.env", `s/ *--feature-gates=[^ "]*//`, `s/"$/ --feature-gates=`+spell(gates)+`"/`
	}
	argv := []string{"sed", "-i", "-e", drop}
	if len(gates) > 0 {
		argv = append(argv, "-e", add)
	}
	return p.do(ctx, append(argv, file)...)
}
