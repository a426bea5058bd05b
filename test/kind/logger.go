package kind

import (
	"fmt"
	"io"

	"sigs.k8s.io/kind/pkg/log"
)

// logger writes what kind tells its users, and no more.
type logger struct{ to io.Writer }

var _ log.Logger = logger{}

// A reader that went away is no reason to stop, so that errors of writing are dropped.
func (l logger) say(message string) { _, _ = fmt.Fprintln(l.to, message) }

func (l logger) Warn(message string)               { l.say(message) }
func (l logger) Warnf(format string, args ...any)  { l.say(fmt.Sprintf(format, args...)) }
func (l logger) Error(message string)              { l.say(message) }
func (l logger) Errorf(format string, args ...any) { l.say(fmt.Sprintf(format, args...)) }
func (l logger) Info(message string)               { l.say(message) }
func (l logger) Infof(format string, args ...any)  { l.say(fmt.Sprintf(format, args...)) }
func (l logger) Enabled() bool                     { return true }

func (l logger) V(level log.Level) log.InfoLogger {
	if level > 0 {
		return log.NoopInfoLogger{}
	}
	return l
}
