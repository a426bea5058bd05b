package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// cniPlugins is where Debian keeps the CNI plugins.
const cniPlugins = "/usr/lib/cni"

// packages are the Debian packages that a cluster runs with, each by a program
// that tells that it is installed.
func packages() map[string]string {
	return map[string]string{
		"containerd":                  "containerd",
		"runc":                        "runc",
		"etcd-server":                 "etcd",
		"containernetworking-plugins": filepath.Join(cniPlugins, "bridge"),
		"iptables":                    "iptables",
		"conntrack":                   "conntrack",
		"iproute2":                    "ip",
		"ethtool":                     "ethtool",
		"socat":                       "socat",
	}
}

// machinePackages are what nodes in virtual machines take besides.
func machinePackages() map[string]string {
	return map[string]string{"qemu-system-x86": "qemu-system-x86_64", "debootstrap": "debootstrap", "curl": "curl"}
}

func missingPackages(packages map[string]string) []string {
	var missing []string
	for name, program := range packages {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// ensurePackages installs what is missing, where that can be done with apt-get;
// elsewhere the error names it.
func ensurePackages(ctx context.Context, packages map[string]string, progress io.Writer) error {
	missing := missingPackages(packages)
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, " ")
	if _, err := os.Stat("/etc/debian_version"); errors.Is(err, fs.ErrNotExist) || os.Geteuid() != 0 {
		return fmt.Errorf("please install (the names are Debian's): %s", list)
	}
	what := "Installing " + list
	sayf(progress, "%s", what)
	err := step(progress, what, func() error {
		if err := aptGet(ctx, "update"); err != nil {
			return err
		}
		return aptGet(ctx, append([]string{"install", "--yes", "--no-install-recommends"}, missing...)...)
	})
	if err != nil {
		return fmt.Errorf("installing %s: %w", list, err)
	}
	return nil
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"--quiet"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running apt-get %s: %w%s", args[0], err, lastLines(string(out), 8))
	}
	return nil
}
