package cgroup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// Watcher tells when something happens in cgroups: a child comes or goes, or a limit is written, by whomever and in whatever
// mount namespace. It is safe for concurrent use. A nil Watcher tells of nothing.
type Watcher struct {
	tree *Tree
	fs   *fsnotify.Watcher
}

// NewWatcher makes a Watcher that watches nothing yet.
func (t *Tree) NewWatcher() (*Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("starting inotify: %w", err)
	}
	return &Watcher{tree: t, fs: w}, nil
}

// Add watches the cgroup at path; adding it again does nothing.
func (w *Watcher) Add(path string) error {
	if w == nil {
		return nil
	}
	for _, controller := range w.controllers() {
		f, err := fileOf(controller, path, "")
		if err != nil {
			return err
		}
		if err := w.fs.Add(f.dir); err != nil {
			return fmt.Errorf("watching cgroup %q: %w", path, gone(err))
		}
	}
	return nil
}

// Remove ends the watch of the cgroup at path, if there is one.
func (w *Watcher) Remove(path string) {
	if w == nil {
		return
	}
	for _, controller := range w.controllers() {
		if f, err := fileOf(controller, path, ""); err == nil {
			_ = w.fs.Remove(f.dir) // the kernel ended the watch itself if the cgroup is gone
		}
	}
}

// Run calls told with the path of each watched cgroup that something happens in, until ctx ends. Then the Watcher is of no more
// use. If the kernel drops events since told is slow, nobody says which: look at everything now and then.
func (w *Watcher) Run(ctx context.Context, told func(path string)) error {
	if w == nil {
		<-ctx.Done()
		return nil
	}
	defer func() { _ = w.fs.Close() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, open := <-w.fs.Events:
			if !open {
				return errors.New("inotify ended")
			}
			if path, ok := w.pathOf(e.Name); ok && matters(e) {
				told(path)
			}
		case _, open := <-w.fs.Errors: // an overflow: see above
			if !open {
				return errors.New("inotify ended")
			}
		}
	}
}

// matters leaves out writes to other files than those of the limits: the kernel itself writes memory.events at every reclaim.
func matters(e fsnotify.Event) bool {
	if !e.Has(fsnotify.Write) {
		return e.Has(fsnotify.Create) || e.Has(fsnotify.Remove)
	}
	switch filepath.Base(e.Name) {
	case "cpu.max", "cpu.weight", "memory.max", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes":
		return true
	default:
		return false
	}
}

// pathOf gives the watched cgroup of an event, which names a child or a file of it.
func (w *Watcher) pathOf(name string) (string, bool) {
	for _, controller := range w.controllers() {
		if below, ok := strings.CutPrefix(filepath.Dir(name), controller+"/"); ok {
			return "/" + below, true
		}
	}
	return "", false
}

func (w *Watcher) controllers() []string {
	if w.tree.unified {
		return []string{w.tree.cpu}
	}
	return []string{w.tree.cpu, w.tree.memory}
}
