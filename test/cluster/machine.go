package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// A node in a virtual machine has cgroup v2, whatever this machine has, and
// systemd as its init. All instructions are emulated, so no rights are needed
// to virtualize, and everything takes its time.
//
// What makes it a node like the others:
//
//   - It sees the directories of its cluster and of the binaries where this
//     machine has them.
//   - It has the addresses of a node like others: see init and machineCommand.
//   - A component in it is, on this machine, a curl that waits for its output
//     and its end. Both live as long as the other does.
//
// It ends with its qemu, and it writes to no disk.

// The ports of the program in directory guest.
const (
	guestPort      = "1024"
	containerdPort = "1025"
)

// forwardedPorts of a node's address lead into its machine: the kubelet's and
// those of the guest program.
func forwardedPorts() []string { return []string{"10248", "10250", guestPort, containerdPort} }

// machineCommand runs the machine of a node. Its network is qemu's, which has
// the address 10.0.2.2 and connects the machine with whatever it asks for; the
// machine asks for the API server alone.
func (s state) machineCommand(i int, image machineImage, cache string) []string {
	f, node := s.files(), s.Config.Nodes[i].Name
	network := []string{"user", "id=net", "ipv6=off"}
	for _, port := range forwardedPorts() {
		at := net.JoinHostPort(s.nodeIP(i), port)
		network = append(network, "hostfwd=tcp:"+at+"-"+at)
	}
	argv := []string{
		"qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none",
		"-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-m", "2560",
		"-kernel", image.kernel(), "-initrd", image.initrd(),
		"-append", strings.Join([]string{
			"console=ttyS0", "quiet", "panic=-1", "mitigations=off", "systemd.unit=guest.service",
			"cluster=" + f.dir, "node=" + f.node(node), "cache=" + cache, "network=" + s.apiServerIP(),
		}, " "),
		"-serial", "file:" + f.log(node+"/console"),
		"-netdev", strings.Join(network, ","), "-device", "virtio-net-pci,netdev=net,romfile=",
	}
	argv = append(argv, share("root", image.rootfs(), ",readonly=on")...)
	argv = append(argv, share("cache", cache, ",readonly=on")...)
	return append(argv, share("cluster", f.dir, "")...)
}

func (c *Cluster) machinePlan(ctx context.Context, i int) (launchPlan, error) {
	s := c.snapshot()
	cache, err := cacheDir()
	if err != nil {
		return launchPlan{}, err
	}
	image, err := ensureMachineImage(ctx, c.progress)
	if err != nil {
		return launchPlan{}, err
	}
	// Where init looks for it.
	if _, err := buildProgram(ctx, s.files().node(s.Config.Nodes[i].Name), "cluster/guest"); err != nil {
		return launchPlan{}, fmt.Errorf("building the guest program: %w", err)
	}
	up := func(ctx context.Context) error {
		_, err := s.runInMachine(ctx, i, []string{"true"})
		return err
	}
	return launchPlan{s.machineCommand(i, image, cache), up}, nil
}

// share lets a machine mount a directory under that tag.
func share(tag, dir, options string) []string {
	return []string{
		"-fsdev", "local,security_model=none,multidevs=remap,id=" + tag + ",path=" + dir + options,
		"-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag,
	}
}

// socketCommand brings the machine's containerd to where that of any node is.
func (s state) socketCommand(i int) []string {
	socket := s.files().socket(s.Config.Nodes[i].Name)
	return []string{"socat", "UNIX-LISTEN:" + socket + ",fork,unlink-early", "TCP:" + net.JoinHostPort(s.nodeIP(i), containerdPort)}
}

func (s state) socketHealthy(node string) error {
	_, err := os.Stat(s.files().socket(node))
	return err
}

// inMachine is a command that runs another one in the machine of a node: it
// has its output, and both end when one of them does.
func (s state) inMachine(i int, argv []string) []string {
	return []string{
		"curl", "--silent", "--show-error", "--fail", "--no-buffer", "--noproxy", "*",
		"--data-binary", string(encodeCommand(argv)), s.guestURL(i),
	}
}

// encodeCommand is a command as the guest program takes it.
func encodeCommand(argv []string) []byte {
	data, _ := json.Marshal(argv) // there is no string that cannot be encoded
	return data
}

func (s state) guestURL(i int) string {
	return "http://" + net.JoinHostPort(s.nodeIP(i), guestPort) + "/run"
}

// runInMachine runs a command in the machine of a node and returns its output.
func (s state) runInMachine(ctx context.Context, i int, argv []string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.guestURL(i), bytes.NewReader(encodeCommand(argv)))
	if err != nil {
		return "", err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	out, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s%s", response.Status, lastLines(string(out), 3))
	}
	if failure := response.Trailer.Get("Error"); failure != "" {
		return string(out), errors.New(failure)
	}
	return string(out), nil
}

// signalInMachine sends a signal to the one process of a program in the
// machine of a node, if it runs.
func (c *Cluster) signalInMachine(ctx context.Context, node, program string, sig syscall.Signal) error {
	const ignoringNone = `pkill --signal "$0" --exact "$1"; [ $? -le 1 ]`
	_, err := c.Exec(ctx, node, "sh", "-c", ignoringNone, strconv.Itoa(int(sig)), program)
	return err
}

// Exec runs a command on a node, as root and in the node's own mount
// namespace, and returns its output, stdout and stderr in one. The error of a
// command that fails has the end of it.
func (c *Cluster) Exec(ctx context.Context, node string, argv ...string) (string, error) {
	s := c.snapshot()
	_, i, err := s.node(node)
	if err != nil {
		return "", err
	}
	out, err := s.exec(ctx, i, argv)
	if err != nil {
		return out, fmt.Errorf("running %q on node %q: %w%s", argv, node, err, lastLines(out, 5))
	}
	return out, nil
}

func (s state) exec(ctx context.Context, i int, argv []string) (string, error) {
	if s.Config.Nodes[i].VM != "" {
		return s.runInMachine(ctx, i, argv)
	}
	argv = s.inNode(i, argv...)
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	return string(out), err
}
