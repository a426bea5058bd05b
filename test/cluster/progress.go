package cluster

import (
	"fmt"
	"io"
	"time"
)

// progressEvery is how often a long step says that it is still at work.
const progressEvery = 15 * time.Second

// step runs do and, while it lasts, writes a line with the elapsed time every
// progressEvery, so that nobody takes a long step for a hang.
func step(w io.Writer, what string, do func() error) error {
	start := time.Now()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				sayf(w, "%s … %s", what, elapsed(start))
			}
		}
	}()
	err := do()
	close(stop)
	<-stopped
	if err == nil && time.Since(start) > 2*time.Second {
		sayf(w, "%s: done in %s", what, elapsed(start))
	}
	return err
}

func elapsed(start time.Time) time.Duration { return time.Since(start).Round(time.Second) }

// sayf writes one line of progress. A reader that went away is no reason to
// stop, so the write's error is dropped.
func sayf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}
