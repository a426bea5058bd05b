package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// programs are the binaries that make a cluster, all of them main packages
// below k8s.io/kubernetes/cmd.
func programs() []string {
	return []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}
}

// Binaries returns the directory that holds the binaries of release v, and
// builds them first if they are not there: once per user and release, into
// the user's cache. That takes minutes; progress gets a line every 15 s.
// Two builders at once are safe, the second waits; an interrupted build leaves
// nothing that looks finished and is taken up again by the next one.
func Binaries(ctx context.Context, v Version, progress io.Writer) (string, error) {
	return build{version: v, programs: programs(), progress: progress}.cached(ctx, v.String())
}

// Kubectl returns the path of kubectl of the newest release, built like the
// Binaries.
func Kubectl(ctx context.Context, progress io.Writer) (string, error) {
	all := Versions()
	b := build{version: all[len(all)-1], programs: []string{"kubectl"}, progress: progress}
	dir, err := b.cached(ctx, "kubectl-"+b.version.String())
	return filepath.Join(dir, "kubectl"), err
}

// product is what one directory of the cache holds.
type product struct {
	name string

	// files are what it is complete with.
	files []string

	// what is the line of progress while it is built.
	what     string
	progress io.Writer
}

// cached returns the product's directory. If it is not complete, fill makes it
// in directory out; what it leaves in work besides that helps the next one when
// it is interrupted.
func (p product) cached(ctx context.Context, fill func(ctx context.Context, work, out string) error) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, p.name)
	if p.complete(dir) {
		return dir, nil
	}
	unlock, err := lockFile(ctx, dir+".lock", p.progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if p.complete(dir) {
		return dir, nil
	}
	sayf(p.progress, "%s", p.what)
	err = step(p.progress, p.what, func() error { return p.build(ctx, dir, fill) })
	return dir, err
}

func (p product) complete(dir string) bool {
	for _, file := range p.files {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return false
		}
	}
	return true
}

func (p product) build(ctx context.Context, target string, fill func(ctx context.Context, work, out string) error) error {
	work := target + ".build"
	out := filepath.Join(work, "out")
	// What a killed builder left half-written is not worth keeping.
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("clearing an interrupted build: %w", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("making the build directory: %w", err)
	}
	if err := fill(ctx, work, out); err != nil {
		return err
	}
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("replacing an incomplete build: %w", err)
	}
	if err := os.Rename(out, target); err != nil {
		return fmt.Errorf("putting what was built in place: %w", err)
	}
	return os.RemoveAll(work)
}

func cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache: %w", err)
	}
	dir := filepath.Join(user, "podresize")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	return dir, nil
}

// build is one build of programs of one release. Everything it writes is below work, with
// a go cache of its own: it grows by more than 2 GB per release, is of use to
// no other release, and goes away with work.
type build struct {
	version  Version
	programs []string
	work     string
	progress io.Writer
}

func (b build) cached(ctx context.Context, name string) (string, error) {
	what := fmt.Sprintf("Building Kubernetes %s (once; some minutes)", b.version)
	p := product{name: name, files: b.programs, what: what, progress: b.progress}
	dir, err := p.cached(ctx, func(ctx context.Context, work, out string) error {
		b.work = work
		return b.run(ctx, out)
	})
	if err != nil {
		return "", fmt.Errorf("building Kubernetes %s: %w", b.version, err)
	}
	return dir, nil
}

func (b build) run(ctx context.Context, out string) error {
	if err := b.writeModule(ctx); err != nil {
		return err
	}
	_, err := b.goTool(ctx, b.arguments(out)...)
	return err
}

// writeModule generates the go.mod from that of the release itself.
func (b build) writeModule(ctx context.Context) error {
	path, err := b.goTool(ctx, "list", "-m", "-f", "{{.GoMod}}", "k8s.io/kubernetes@"+b.version.String())
	if err != nil {
		return err
	}
	edit, err := b.goTool(ctx, "mod", "edit", "-json", strings.TrimSpace(path))
	if err != nil {
		return err
	}
	upstream, err := parseModule([]byte(edit))
	if err != nil {
		return err
	}
	file := filepath.Join(b.work, "go.mod")
	if err := os.WriteFile(file, []byte(goMod(upstream, b.version)), 0o644); err != nil {
		return fmt.Errorf("writing %q: %w", file, err)
	}
	return nil
}

func (b build) arguments(out string) []string {
	args := []string{"build", "-mod=mod", "-buildvcs=false", "-trimpath", "-tags=providerless", "-ldflags=" + b.linkFlags(), "-o", out}
	for _, p := range b.programs {
		args = append(args, "k8s.io/kubernetes/cmd/"+p)
	}
	return args
}

// linkFlags stamps the version. Without it every component reports v0.0.0,
// and clients that decide by version decide wrongly.
func (b build) linkFlags() string {
	stamp := [][2]string{
		{"gitVersion", b.version.String()},
		{"gitMajor", "1"},
		{"gitMinor", fmt.Sprint(b.version.Minor)},
		{"gitCommit", "unknown"},
		{"gitTreeState", "clean"},
		{"buildDate", "1970-01-01T00:00:00Z"},
	}
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, s := range stamp {
			flags = append(flags, "-X", pkg+"."+s[0]+"="+s[1])
		}
	}
	return strings.Join(flags, " ")
}

// goTool runs the go command in the build's directory and returns its stdout.
func (b build) goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.work
	cmd.Env = buildEnv(os.Environ(), filepath.Join(b.work, "gocache"))
	// The compilers are children of go: stop the whole group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("running go %s: %w%s", args[0], err, lastLines(stderrOf(err), 10))
	}
	return string(out), nil
}

// buildEnv is the caller's environment without what would change the result.
func buildEnv(environ []string, goCache string) []string {
	drop := map[string]bool{
		"GOFLAGS": true, "GOWORK": true, "GOOS": true, "GOARCH": true, "GOEXPERIMENT": true, "GODEBUG": true,
		"CGO_ENABLED": true, "GO111MODULE": true, "GOCACHE": true, "PWD": true, "GOCACHEPROG": true,
	}
	env := []string{"GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0", "GOCACHE=" + goCache}
	for _, kv := range environ {
		if key, _, _ := strings.Cut(kv, "="); !drop[key] {
			env = append(env, kv)
		}
	}
	return env
}

func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}

// lastLines is the end of a log, on lines of its own, for an error message.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return ""
	}
	return "\n  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}
