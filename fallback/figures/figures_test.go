package figures_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/podresize/podresize/fallback/figures"
	"github.com/podresize/podresize/resize/v1alpha1"
)

const mi = 1 << 20

// list makes a resource list; an empty string leaves a resource out.
func list(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	if cpu != "" {
		out[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		out[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return out
}

func needs(requests, limits corev1.ResourceList) v1alpha1.Requirements {
	return v1alpha1.Requirements{Requests: requests, Limits: limits}
}

func TestContainer(t *testing.T) {
	unlimited := int64(figures.Unlimited)
	for name, tc := range map[string]struct {
		wanted v1alpha1.Requirements
		want   figures.Cgroup
	}{
		"requests and limits":            {needs(list("100m", "64Mi"), list("200m", "128Mi")), figures.Cgroup{Shares: 102, Quota: 20000, Period: 100000, Memory: 128 * mi}},
		"333m is rounded down once":      {needs(list("333m", ""), list("333m", "")), figures.Cgroup{Shares: 340, Quota: 33300, Period: 100000, Memory: unlimited}},
		"no request takes the limit":     {needs(nil, list("500m", "")), figures.Cgroup{Shares: 512, Quota: 50000, Period: 100000, Memory: unlimited}},
		"nothing":                        {needs(nil, nil), figures.Cgroup{Shares: 2, Quota: unlimited, Period: 100000, Memory: unlimited}},
		"case-43 the smallest request":   {needs(list("1m", ""), nil), figures.Cgroup{Shares: 2, Quota: unlimited, Period: 100000, Memory: unlimited}},
		"case-81 the smallest quota":     {needs(list("5m", ""), list("5m", "")), figures.Cgroup{Shares: 5, Quota: 1000, Period: 100000, Memory: unlimited}},
		"case-76 more than four CPUs":    {needs(list("4096m", ""), list("4096m", "")), figures.Cgroup{Shares: 4194, Quota: 409600, Period: 100000, Memory: unlimited}},
		"the most shares a kernel takes": {needs(list("300", ""), nil), figures.Cgroup{Shares: 262144, Quota: unlimited, Period: 100000, Memory: unlimited}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBurstable, Containers: []v1alpha1.Container{{Name: "app", Wanted: tc.wanted}}}
			if diff := cmp.Diff(tc.want, figures.Wanted(spec).Containers["app"]); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPod(t *testing.T) {
	unlimited := int64(figures.Unlimited)
	small := needs(list("100m", "64Mi"), list("200m", "128Mi"))
	for name, tc := range map[string]struct {
		spec v1alpha1.CRIResizeSpec
		want figures.Cgroup
	}{
		"two containers are added up": {
			v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBurstable, Containers: containers(small, small)},
			figures.Cgroup{Shares: 204, Quota: 40000, Period: 100000, Memory: 256 * mi},
		},
		"one without limits leaves the pod without": {
			v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBurstable, Containers: containers(small, needs(list("100m", "64Mi"), nil))},
			figures.Cgroup{Shares: 204, Quota: unlimited, Period: 100000, Memory: unlimited},
		},
		"an init container without limits too": {
			v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBurstable, Containers: containers(small), InitContainers: []v1alpha1.InitContainer{{Name: "init"}}},
			figures.Cgroup{Shares: 102, Quota: unlimited, Period: 100000, Memory: unlimited},
		},
		"an init container that needs more": {
			v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBurstable, Containers: containers(small), InitContainers: []v1alpha1.InitContainer{
				{Name: "init", Resources: needs(list("1", "1Gi"), list("2", "2Gi"))},
			}},
			figures.Cgroup{Shares: 1024, Quota: 200000, Period: 100000, Memory: 2048 * mi},
		},
		"a sidecar runs beside, and beside the init containers after it": {
			v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBurstable, Containers: containers(small), InitContainers: []v1alpha1.InitContainer{
				{Name: "side", Sidecar: true, Resources: small},
				{Name: "init", Resources: needs(list("200m", "64Mi"), list("300m", "64Mi"))},
			}},
			figures.Cgroup{Shares: 307, Quota: 50000, Period: 100000, Memory: 256 * mi},
		},
		"overhead counts, towards limits only where there are any": {
			v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBurstable, Overhead: list("250m", "120Mi"), Containers: containers(needs(list("100m", "64Mi"), list("200m", "")))},
			figures.Cgroup{Shares: 358, Quota: 45000, Period: 100000, Memory: unlimited},
		},
		"best effort": {
			v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBestEffort, Containers: containers(needs(nil, nil))},
			figures.Cgroup{Shares: 2, Quota: unlimited, Period: 100000, Memory: unlimited},
		},
		"millicores are added before they are rounded": {
			v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBurstable, Containers: containers(needs(list("333m", ""), nil), needs(list("333m", ""), nil))},
			figures.Cgroup{Shares: 681, Quota: unlimited, Period: 100000, Memory: unlimited},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, figures.Wanted(&tc.spec).Cgroup); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBeforeAndWantedAreApart(t *testing.T) {
	spec := &v1alpha1.CRIResizeSpec{QOSClass: corev1.PodQOSBurstable, Containers: []v1alpha1.Container{
		{Name: "app", Before: needs(list("100m", ""), list("200m", "")), Wanted: needs(list("300m", ""), list("400m", ""))},
	}}
	if got := figures.Before(spec).Containers["app"].Quota; got != 20000 {
		t.Errorf("before: quota %d, want 20000", got)
	}
	if got := figures.Wanted(spec).Containers["app"].Quota; got != 40000 {
		t.Errorf("wanted: quota %d, want 40000", got)
	}
}

func containers(all ...v1alpha1.Requirements) []v1alpha1.Container {
	out := make([]v1alpha1.Container, 0, len(all))
	for i, r := range all {
		out = append(out, v1alpha1.Container{Name: string(rune('a' + i)), Wanted: r})
	}
	return out
}
