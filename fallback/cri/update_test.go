package cri_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podresize/podresize/fallback/cri"
)

func valid() cri.Resources {
	return cri.Resources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryLimit: 64 << 20, MemorySwap: 64 << 20}
}

// TestUpdate is case-73: the request carries what was asked for and not a field more.
func TestUpdate(t *testing.T) {
	for name, tc := range map[string]struct {
		resources cri.Resources
		want      *runtimeapi.LinuxContainerResources
	}{
		"limited": {valid(), &runtimeapi.LinuxContainerResources{
			CpuShares: 102, CpuQuota: 20000, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20,
		}},
		"unlimited": {
			cri.Resources{CPUShares: 2, CPUQuota: cri.Unlimited, CPUPeriod: 100000, MemoryLimit: cri.Unlimited, MemorySwap: cri.Unlimited},
			&runtimeapi.LinuxContainerResources{CpuShares: 2, CpuQuota: -1, CpuPeriod: 100000, MemoryLimitInBytes: -1, MemorySwapLimitInBytes: -1},
		},
		"no swap accounting": {
			cri.Resources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryLimit: 64 << 20},
			&runtimeapi.LinuxContainerResources{CpuShares: 102, CpuQuota: 20000, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20},
		},
		"some swap": {
			cri.Resources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryLimit: 64 << 20, MemorySwap: 96 << 20},
			&runtimeapi.LinuxContainerResources{CpuShares: 102, CpuQuota: 20000, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 96 << 20},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &fakeRuntime{}
			if err := connect(t, fake, cri.Options{}).Update(t.Context(), "c1", tc.resources); err != nil {
				t.Fatal(err)
			}
			want := []*runtimeapi.UpdateContainerResourcesRequest{{ContainerId: "c1", Linux: tc.want}}
			if diff := cmp.Diff(want, fake.seen(), protocmp.Transform()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestUpdateKeepsMemory: CRI-O refuses to be told of no memory limit (cri-o#9385) and ignores swap, so it is not told of memory that is
// to stay what it is.
func TestUpdateKeepsMemory(t *testing.T) {
	const limit, swap = 64 << 20, 96 << 20
	for _, tc := range []struct {
		runtime           string
		held, limit, swap int64
		sent              bool
	}{
		{runtime: "cri-o", held: cri.Unlimited, limit: cri.Unlimited, swap: cri.Unlimited},
		{runtime: "cri-o", held: limit, limit: limit, swap: swap},
		{runtime: "cri-o", held: limit, limit: cri.Unlimited, swap: cri.Unlimited, sent: true}, // the refusal is its answer
		{runtime: "cri-o", held: limit / 2, limit: limit, swap: limit, sent: true},
		{runtime: "cri-o", limit: cri.Unlimited, swap: cri.Unlimited, sent: true}, // not known
		{runtime: "containerd", held: cri.Unlimited, limit: cri.Unlimited, swap: cri.Unlimited, sent: true},
		{runtime: "containerd", held: limit, limit: limit, swap: swap, sent: true},
	} {
		t.Run(fmt.Sprint(tc.runtime, " from ", tc.held, " to ", tc.limit), func(t *testing.T) {
			fake := &fakeRuntime{name: tc.runtime}
			r := cri.Resources{CPUShares: 2, CPUQuota: 20000, CPUPeriod: 100000, MemoryLimit: tc.limit, MemorySwap: tc.swap, MemoryHeld: tc.held}
			if err := connect(t, fake, cri.Options{}).Update(t.Context(), "c1", r); err != nil {
				t.Fatal(err)
			}
			linux := &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuQuota: 20000, CpuPeriod: 100000}
			if tc.sent {
				linux.MemoryLimitInBytes, linux.MemorySwapLimitInBytes = tc.limit, tc.swap
			}
			want := []*runtimeapi.UpdateContainerResourcesRequest{{ContainerId: "c1", Linux: linux}}
			if diff := cmp.Diff(want, fake.seen(), protocmp.Transform()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestUpdateRefusesResources is case-73: no field is sent as zero.
func TestUpdateRefusesResources(t *testing.T) {
	for name, tc := range map[string]struct {
		field  string
		change func(*cri.Resources)
	}{
		"no shares":                   {"CPUShares", func(r *cri.Resources) { r.CPUShares = 0 }},
		"unlimited shares":            {"CPUShares", func(r *cri.Resources) { r.CPUShares = -1 }},
		"no quota":                    {"CPUQuota", func(r *cri.Resources) { r.CPUQuota = 0 }},
		"negative quota":              {"CPUQuota", func(r *cri.Resources) { r.CPUQuota = -2 }},
		"no period":                   {"CPUPeriod", func(r *cri.Resources) { r.CPUPeriod = 0 }},
		"unlimited period":            {"CPUPeriod", func(r *cri.Resources) { r.CPUPeriod = -1 }},
		"no period, unlimited quota":  {"CPUPeriod", func(r *cri.Resources) { r.CPUQuota, r.CPUPeriod = -1, 0 }},
		"no memory":                   {"MemoryLimit", func(r *cri.Resources) { r.MemoryLimit = 0 }},
		"negative memory":             {"MemoryLimit", func(r *cri.Resources) { r.MemoryLimit = -2 }},
		"swap below memory":           {"MemorySwap", func(r *cri.Resources) { r.MemorySwap-- }},
		"negative swap":               {"MemorySwap", func(r *cri.Resources) { r.MemorySwap = -2 }},
		"swap below unlimited memory": {"MemorySwap", func(r *cri.Resources) { r.MemoryLimit = -1 }},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &fakeRuntime{}
			resources := valid()
			tc.change(&resources)
			err := connect(t, fake, cri.Options{}).Update(t.Context(), "c1", resources)
			if err == nil || !strings.Contains(err.Error(), tc.field+" ") {
				t.Errorf("got %v, want an error that names %s", err, tc.field)
			}
			if len(fake.seen()) != 0 {
				t.Error("the runtime was asked")
			}
		})
	}
}

func TestUpdateErrors(t *testing.T) {
	kinds := []error{cri.ErrUnavailable, cri.ErrNotFound, cri.ErrRefused}
	for name, tc := range map[string]struct {
		answer, want error
	}{
		"not found":   {status.Error(codes.NotFound, "no such container"), cri.ErrNotFound},
		"unavailable": {status.Error(codes.Unavailable, "shutting down"), cri.ErrUnavailable},
		"too late":    {status.Error(codes.DeadlineExceeded, "shim"), cri.ErrUnavailable},
		"cancelled":   {status.Error(codes.Canceled, "shutting down"), cri.ErrUnavailable},
		"runc":        {errors.New("runc: write cpu.cfs_quota_us: invalid argument"), cri.ErrRefused},
		"no CRI v1":   {status.Error(codes.Unimplemented, "unknown service"), cri.ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			err := connect(t, &fakeRuntime{updateErr: tc.answer}, cri.Options{}).Update(t.Context(), "c1", valid())
			for _, kind := range kinds {
				if errors.Is(err, kind) != errors.Is(tc.want, kind) {
					t.Errorf("errors.Is(%v, %v) = %t", err, kind, errors.Is(err, kind))
				}
			}
			message := status.Convert(tc.answer).Message()
			if err == nil || !strings.Contains(err.Error(), message) || !strings.Contains(err.Error(), `container "c1"`) {
				t.Errorf("got %v, want the runtime's message and the container", err)
			}
			if status.Code(err) != status.Code(tc.answer) {
				t.Errorf("got code %v, want %v", status.Code(err), status.Code(tc.answer))
			}
		})
	}
}
