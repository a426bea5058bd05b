package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// lockFile takes an exclusive lock on the file at path, which the kernel gives
// back when this process ends, however it ends. It waits for another holder
// until ctx is done, and says so if that takes long. Whoever unlocks removes the file too.
func lockFile(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	start, said := time.Now(), false
	err = poll(ctx, 100*time.Millisecond, func() error {
		f, err := tryLock(path)
		switch {
		case err == nil:
			unlock = func() { _, _ = os.Remove(path), f.Close() }
			return nil
		case !errors.Is(err, errLocked):
			return fatalError{err}
		case !said && time.Since(start) > time.Second:
			sayf(progress, "Waiting for another process (it holds %s)", path)
			said = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("locking %q: %w", path, err)
	}
	return unlock, nil
}

var errLocked = errors.New("another process holds it")

// tryLock returns errLocked where there is a holder, or where the last one
// removed the file between our opening and locking it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	locked, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if current, err := os.Stat(path); err != nil || !os.SameFile(locked, current) {
		_ = f.Close()
		return nil, errLocked
	}
	return f, nil
}
