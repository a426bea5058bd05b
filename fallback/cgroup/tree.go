package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Tree is a mounted cgroup hierarchy. It keeps no state but where its
// controllers are, and is safe for concurrent use.
type Tree struct {
	cpu, memory string // directories of the two controllers; the same one on v2
	unified     bool
}

// Open finds out what kind of hierarchy is mounted at root, /sys/fs/cgroup on
// most hosts. A hybrid host, which has v1 controllers and a v2 tree for systemd
// alone, is v1.
func Open(root string) (*Tree, error) {
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err == nil {
		return openV2(root, strings.Fields(string(controllers)))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening cgroup root %q: %w", root, err)
	}
	return openV1(root)
}

func openV2(root string, controllers []string) (*Tree, error) {
	for _, name := range []string{"cpu", "memory"} {
		if !slices.Contains(controllers, name) {
			return nil, fmt.Errorf("opening cgroup root %q: cgroup v2 without the %s controller", root, name)
		}
	}
	return &Tree{cpu: root, memory: root, unified: true}, nil
}

// openV1 also knows the joint mounts that hosts without the usual symbolic link
// "cpu" have.
func openV1(root string) (*Tree, error) {
	cpu, found := firstDir(root, "cpu", "cpu,cpuacct", "cpuacct,cpu")
	if !found {
		return nil, fmt.Errorf("opening cgroup root %q: neither cgroup v2 (no cgroup.controllers) nor v1 (no directory cpu)", root)
	}
	memory, found := firstDir(root, "memory")
	if !found {
		return nil, fmt.Errorf("opening cgroup root %q: cgroup v1 without the memory controller (no directory memory)", root)
	}
	return &Tree{cpu: cpu, memory: memory}, nil
}

func firstDir(root string, names ...string) (string, bool) {
	for _, name := range names {
		dir := filepath.Join(root, name)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, true
		}
	}
	return "", false
}

// Children are the paths of the cgroups in the one at path. The error is fs.ErrNotExist when there is no such cgroup.
func (t *Tree) Children(path string) ([]string, error) {
	f, err := t.cpuFile(path, "")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("listing cgroup %q: %w", path, gone(err))
	}
	var children []string
	for _, e := range entries {
		if e.IsDir() {
			children = append(children, path+"/"+e.Name())
		}
	}
	return children, nil
}

// Unified reports whether this is cgroup v2.
func (t *Tree) Unified() bool { return t.unified }

// file is one cgroup file: its directory on disk and its name.
type file struct{ dir, name string }

func (f file) path() string { return filepath.Join(f.dir, f.name) }

// cpuFile and memoryFile name a file of the cgroup at path, which comes from
// Locate but may come from anywhere: one that leaves the tree, or means its root,
// is refused.
func (t *Tree) cpuFile(path, name string) (file, error) { return fileOf(t.cpu, path, name) }

func (t *Tree) memoryFile(path, name string) (file, error) { return fileOf(t.memory, path, name) }

func fileOf(controller, path, name string) (file, error) {
	relative := strings.TrimPrefix(path, "/")
	if !fs.ValidPath(relative) || relative == "." {
		return file{}, fmt.Errorf("invalid cgroup path %q", path)
	}
	return file{dir: filepath.Join(controller, relative), name: name}, nil
}

func (f file) read() (string, error) {
	content, err := readAll(f.path())
	if err != nil {
		return "", gone(&fs.PathError{Op: "read", Path: f.path(), Err: err})
	}
	return strings.TrimSpace(string(content)), nil
}

// readAll is os.ReadFile with half of its system calls: an agent at rest does
// little else than reading short files. Such a file is whole when a read does
// not fill the buffer.
func readAll(path string) ([]byte, error) {
	fd, err := retried(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }() // nothing was written
	content := make([]byte, 0, 512)
	for {
		n, err := retried(func() (int, error) { return syscall.Read(fd, content[len(content):cap(content)]) })
		if err != nil {
			return nil, err
		}
		content = content[:len(content)+n]
		if n == 0 || len(content) < cap(content) {
			return content, nil
		}
		content = slices.Grow(content, len(content))
	}
}

// retried repeats a system call that a signal has interrupted.
func retried(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// write opens without O_CREATE: a cgroup that is gone must not come back as a
// plain file. It is no os.File, which takes EAGAIN, the answer of memory.reclaim
// that it could not reclaim as much, for a reason to wait: cgroup files of v2 can
// be polled, and nothing ever wakes that one.
func (f file) write(value string) error {
	fd, err := retried(func() (int, error) {
		return syscall.Open(f.path(), syscall.O_WRONLY|syscall.O_TRUNC|syscall.O_CLOEXEC, 0)
	})
	if err == nil {
		_, err = retried(func() (int, error) { return syscall.Write(fd, []byte(value)) })
		err = errors.Join(err, syscall.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("writing %q: %w", value, gone(&fs.PathError{Op: "write", Path: f.path(), Err: err}))
	}
	return nil
}

// gone makes ENODEV, which the kernel answers when a cgroup is removed under an
// open file, the same as not finding the file at all.
func gone(err error) error {
	if errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

func (f file) readInt() (int64, error) {
	text, err := f.read()
	if err != nil {
		return 0, err
	}
	return f.parse(text)
}

// parse reads a number or NoLimit. Both kernels' words for no limit end here:
// "max" of v2, -1 of a v1 quota, and the largest page count there is of a v1
// memory limit, which depends on the page size but is beyond any machine.
func (f file) parse(text string) (int64, error) {
	const unreachable = 1 << 62
	if text == "max" {
		return NoLimit, nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", f.path(), err)
	}
	if value < 0 || value >= unreachable {
		return NoLimit, nil
	}
	return value, nil
}
