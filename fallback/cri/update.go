package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// crio is the name by which CRI-O knows itself.
const crio = "cri-o"

// Unlimited is a quota or a limit that does not limit.
const Unlimited = -1

// Resources are all the figures of a container that an update sets. None of the
// first four may be 0, which a runtime reads as "leave it".
type Resources struct {
	// CPUShares is the weight against the pod's other containers, 2 to 262144.
	CPUShares int64
	// CPUQuota is the microseconds of CPU time in each CPUPeriod, or Unlimited.
	CPUQuota int64
	// CPUPeriod is in microseconds.
	CPUPeriod int64
	// MemoryLimit is in bytes, or Unlimited.
	MemoryLimit int64
	// MemoryHeld is the memory limit that the kernel holds now, or Unlimited; 0
	// says that it is not known. It is not sent, and tells whether there is
	// anything to send: see Update.
	MemoryHeld int64
	// MemorySwap is the limit in bytes on memory and swap together, or
	// Unlimited: MemoryLimit again means no swap. It belongs here whenever the
	// kernel accounts swap, because an old containerd (1.6.9 is, 1.6.15 is
	// not) otherwise keeps the limit it had, which a raised MemoryLimit must
	// not pass. Where the kernel does not account swap it must be 0, which
	// sends none: on cgroup v1 runc fails for the missing file.
	MemorySwap int64
}

// Update sets the resources of the running container with that id. CRI-O
// refuses to be sent a MemoryLimit that is Unlimited (cri-o#9385), and with any
// other takes away the container's swap, since it ignores MemorySwap. It leaves
// as it is what it is not sent: so it is sent no memory where the kernel holds
// the limit already. Containerd is sent it always: it writes its whole record of
// the container again, and that may have another limit.
//
// A nil error
// says that the runtime is content, which for a container that just ended it is
// too; after ErrUnavailable the update may have been applied, and after
// ErrRefused some of it is: runc stops at the first file that the kernel refuses.
// So proof is in the cgroup, after an error too.
func (c *Client) Update(ctx context.Context, id string, r Resources) error {
	if err := r.validate(); err != nil {
		return fmt.Errorf("updating container %q: %w", id, err)
	}
	linux, err := c.request(ctx, r)
	if err == nil {
		_, err = c.runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: linux})
	}
	if err != nil {
		return fmt.Errorf("updating container %q: %w", id, err)
	}
	return nil
}

// request is what is sent to the runtime that there is.
func (c *Client) request(ctx context.Context, r Resources) (*runtimeapi.LinuxContainerResources, error) {
	linux := &runtimeapi.LinuxContainerResources{
		CpuShares:              r.CPUShares,
		CpuQuota:               r.CPUQuota,
		CpuPeriod:              r.CPUPeriod,
		MemoryLimitInBytes:     r.MemoryLimit,
		MemorySwapLimitInBytes: r.MemorySwap,
	}
	if r.MemoryHeld != r.MemoryLimit {
		return linux, nil
	}
	name, err := c.runtimeName(ctx)
	if name == crio {
		linux.MemoryLimitInBytes, linux.MemorySwapLimitInBytes = 0, 0
	}
	return linux, err
}

// validate names the first field that is not a figure to send.
func (r Resources) validate() error {
	for _, field := range []struct {
		name      string
		value     int64
		unlimited bool // may be
	}{
		{"CPUShares", r.CPUShares, false},
		{"CPUQuota", r.CPUQuota, true},
		{"CPUPeriod", r.CPUPeriod, false},
		{"MemoryLimit", r.MemoryLimit, true},
	} {
		if field.value > 0 || field.unlimited && field.value == Unlimited {
			continue
		}
		return fmt.Errorf("invalid %s %d", field.name, field.value)
	}
	if r.MemorySwap != 0 && r.MemorySwap != Unlimited && (r.MemoryLimit == Unlimited || r.MemorySwap < r.MemoryLimit) {
		return fmt.Errorf("invalid MemorySwap %d below MemoryLimit %d", r.MemorySwap, r.MemoryLimit)
	}
	return nil
}
