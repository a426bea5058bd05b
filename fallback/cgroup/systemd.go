package cgroup

import (
	"context"
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// IsSlice reports whether the cgroup at path is a slice of systemd. What is
// written into its files holds until systemd is reloaded: then it writes the
// properties of the slice again, all of them, and a memory limit below what is in
// use kills. So they must be set too.
func IsSlice(path string) bool { return strings.HasSuffix(path, ".slice") }

// Slice is what a slice of systemd is to have.
type Slice struct {
	// Shares is the weight as cgroup v1 counts it; 0 leaves it.
	Shares uint64
	// Quota of CPU time in microseconds in each Period, or NoLimit.
	Quota, Period int64
	// Memory is the limit in bytes, or NoLimit.
	Memory int64
}

// Systemd sets the properties of slices for as long as they live. It connects
// when it is needed, and again after systemd was restarted. It is safe for
// concurrent use.
type Systemd struct {
	socket  string
	unified bool

	mu   sync.Mutex
	conn *dbus.Conn
}

// NewSystemd is for the systemd that has its private socket there:
// /run/systemd/private on every host. It takes requests of root.
func (t *Tree) NewSystemd(socket string) *Systemd {
	return &Systemd{socket: socket, unified: t.unified}
}

// Set sets the properties of the slice at path, and systemd writes the files.
func (s *Systemd) Set(ctx context.Context, slice string, want Slice) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return fmt.Errorf("connecting to systemd at %q: %w", s.socket, err)
	}
	unit := path.Base(slice)
	if err := conn.SetUnitPropertiesContext(ctx, unit, true, s.properties(want)...); err != nil {
		return fmt.Errorf("setting properties of %q: %w", unit, err)
	}
	return nil
}

// Close ends the connection.
func (s *Systemd) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
	}
}

func (s *Systemd) connect(ctx context.Context) (*dbus.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.conn.Connected() {
		return s.conn, nil
	}
	conn, err := dbus.NewConnection(func() (*godbus.Conn, error) { return dial(s.socket) })
	if err != nil {
		return nil, err
	}
	s.conn = conn
	return conn, ctx.Err()
}

func dial(socket string) (*godbus.Conn, error) {
	conn, err := godbus.Dial("unix:path=" + socket)
	if err != nil {
		return nil, err
	}
	if err := conn.Auth([]godbus.Auth{godbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		_ = conn.Close() // the failure before is what counts
		return nil, err
	}
	return conn, nil
}

// properties are those that the kubelet sets through runc's library
// (cgroups/systemd in opencontainers/cgroups).
func (s *Systemd) properties(want Slice) []dbus.Property {
	weightName, weight, memoryName := "CPUShares", want.Shares, "MemoryLimit"
	if s.unified {
		weightName, memoryName = "CPUWeight", "MemoryMax"
		if weight != 0 {
			weight = Weight(weight)
		}
	}
	all := []dbus.Property{
		property("CPUQuotaPerSecUSec", perSecond(want.Quota, want.Period)),
		property("CPUQuotaPeriodUSec", uint64(want.Period)), //nolint:gosec // G115: a period is positive
		property(memoryName, infinite(want.Memory)),
	}
	if weight != 0 {
		all = append(all, property(weightName, weight))
	}
	return all
}

func property(name string, value uint64) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

// perSecond rounds up to whole percents of a CPU, as systemd itself does in the
// end: rounded down, the slice would have less than its container.
func perSecond(quota, period int64) uint64 {
	if quota == NoLimit {
		return math.MaxUint64
	}
	const second, percent = 1_000_000, 10_000
	exact := quota * second / period
	return uint64((exact + percent - 1) / percent * percent) //nolint:gosec // G115: quotas are positive
}

// infinite makes no limit what systemd calls infinity.
func infinite(limit int64) uint64 {
	if limit == NoLimit {
		return math.MaxUint64
	}
	return uint64(limit) //nolint:gosec // G115: limits are positive
}
