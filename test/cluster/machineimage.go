package cluster

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// machineFiles make an image out of a root file system: finish.sh tells how.
//
//go:embed machine
var machineFiles embed.FS

// guestPackages are what a machine has besides Debian's minimal base.
func guestPackages() string {
	return "systemd,systemd-sysv,busybox-static,kmod,procps,containerd,runc,containernetworking-plugins,iptables,iproute2,conntrack,ethtool,socat"
}

// machineImage is a directory with what machines start from. They do not
// change it.
type machineImage struct{ dir string }

func (m machineImage) rootfs() string { return filepath.Join(m.dir, "rootfs") }
func (m machineImage) kernel() string { return filepath.Join(m.dir, "vmlinuz") }
func (m machineImage) initrd() string { return filepath.Join(m.dir, "initrd.cpio") }

// ensureMachineImage builds the image if it is not there: once per user and
// recipe, into the user's cache, in one or two minutes. It consists of this
// machine's own Debian, from where this machine has its packages.
func ensureMachineImage(ctx context.Context, progress io.Writer) (machineImage, error) {
	suite, err := debianSuite()
	if err != nil {
		return machineImage{}, err
	}
	key, err := imageKey(suite)
	if err != nil {
		return machineImage{}, err
	}
	p := product{
		name: "machine-" + key, files: []string{"rootfs", "vmlinuz", "initrd.cpio"},
		what: fmt.Sprintf("Building the image of virtual machines from Debian %s (once; a minute or two)", suite), progress: progress,
	}
	dir, err := p.cached(ctx, func(ctx context.Context, _, out string) error { return buildMachineImage(ctx, out, suite) })
	if err != nil {
		return machineImage{}, fmt.Errorf("building the image of virtual machines: %w", err)
	}
	return machineImage{dir}, nil
}

// provideMachines makes sure that machines can be started.
func provideMachines(ctx context.Context, progress io.Writer) error {
	if err := ensurePackages(ctx, machinePackages(), progress); err != nil {
		return err
	}
	_, err := ensureMachineImage(ctx, progress)
	return err
}

// debianSuite is the code name of this machine's Debian.
func debianSuite() (string, error) {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", fmt.Errorf("finding out which Debian this is: %w", err)
	}
	name := regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`).FindStringSubmatch(string(data))
	if !regexp.MustCompile(`(?m)^ID=debian$`).Match(data) || name == nil || runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("nodes in virtual machines are made on Debian on amd64 only")
	}
	return name[1], nil
}

// imageKey tells images apart that are made of different things.
func imageKey(suite string) (string, error) {
	recipe := []string{suite, guestPackages()}
	err := fs.WalkDir(machineFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := machineFiles.ReadFile(path)
		recipe = append(recipe, path, string(content))
		return err
	})
	sum := sha256.Sum256([]byte(strings.Join(recipe, "\x00")))
	return hex.EncodeToString(sum[:6]), err
}

// buildMachineImage makes the files of an image in out.
func buildMachineImage(ctx context.Context, out, suite string) error {
	image := machineImage{out}
	if err := bootstrap(ctx, image.rootfs(), suite); err != nil {
		return err
	}
	work := filepath.Join(image.rootfs(), "image")
	files, err := fs.Sub(machineFiles, "machine")
	if err != nil {
		return err
	}
	if err := os.CopyFS(work, files); err != nil {
		return fmt.Errorf("copying the files of the image: %w", err)
	}
	if err := downloadKernel(ctx, work); err != nil {
		return err
	}
	if err := runIn(ctx, out, isolated("chroot", image.rootfs(), "sh", "/image/finish.sh")...); err != nil {
		return err
	}
	for _, file := range []string{image.kernel(), image.initrd()} {
		if err := os.Rename(filepath.Join(work, filepath.Base(file)), file); err != nil {
			return fmt.Errorf("putting the image together: %w", err)
		}
	}
	return os.RemoveAll(work)
}

// bootstrap makes a root file system of Debian.
func bootstrap(ctx context.Context, rootfs, suite string) error {
	if err := aptGet(ctx, "update"); err != nil {
		return err
	}
	mirror, err := debianMirror(ctx)
	if err != nil {
		return err
	}
	argv := []string{"debootstrap", "--variant=minbase", "--include=" + guestPackages(), suite, rootfs, mirror}
	return runIn(ctx, filepath.Dir(rootfs), isolated(argv...)...)
}

// debianMirror is where apt-get finds the packages of this machine's Debian:
// base-files is one of those that are in no other collection.
func debianMirror(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "download", "--print-uris", "base-files").Output()
	if err != nil {
		return "", fmt.Errorf("finding this machine's Debian mirror: %w%s", err, lastLines(stderrOf(err), 3))
	}
	mirror, _, found := strings.Cut(strings.TrimPrefix(string(out), "'"), "/pool/")
	if !found {
		return "", fmt.Errorf("finding this machine's Debian mirror: base-files comes from %q", out)
	}
	return mirror, nil
}

// downloadKernel puts Debian's current kernel into dir as kernel.deb. It is
// the ordinary one: the one for clouds cannot mount 9p.
func downloadKernel(ctx context.Context, dir string) error {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", "linux-image-amd64").Output()
	if err != nil {
		return fmt.Errorf("finding Debian's kernel: %w%s", err, lastLines(stderrOf(err), 3))
	}
	name := regexp.MustCompile(`Depends: (linux-image-\S+)`).FindStringSubmatch(string(out))
	if name == nil {
		return fmt.Errorf("finding Debian's kernel: linux-image-amd64 depends on none: %q", out)
	}
	if err := runIn(ctx, dir, "apt-get", "download", name[1]); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("downloading %s left %q", name[1], found)
	}
	return os.Rename(found[0], filepath.Join(dir, "kernel.deb"))
}

// runIn runs a command in a directory; the error has the end of its output.
func runIn(ctx context.Context, dir string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w%s", argv[0], err, lastLines(string(out), 8))
	}
	return nil
}

// isolated is a command whose mounts and processes go with it.
func isolated(argv ...string) []string {
	return append([]string{"unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--"}, argv...)
}
