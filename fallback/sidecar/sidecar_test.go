package sidecar_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/podresize/podresize/fallback/sidecar"
	"github.com/podresize/podresize/resize/v1alpha1"
)

var options = sidecar.Options{Image: "localhost/podresize-agent:dev"}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// newSpec is a Burstable pod's.
func newSpec() *corev1.PodSpec {
	return &corev1.PodSpec{
		ServiceAccountName: "web",
		InitContainers:     []corev1.Container{{Name: "setup"}},
		Containers:         []corev1.Container{{Name: "app", Image: "localhost/web", Resources: corev1.ResourceRequirements{Requests: list("100m", "64Mi")}}},
	}
}

func mustAdd(t *testing.T, spec *corev1.PodSpec, opts sidecar.Options) corev1.Container {
	t.Helper()
	if err := sidecar.Add(spec, opts); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == v1alpha1.SidecarContainer })
	if i != len(spec.Containers)-1 {
		t.Fatalf("the sidecar is container %d of %d", i, len(spec.Containers))
	}
	return spec.Containers[i]
}

// tokensOf are the containers that have a mount where clients look for a token.
func tokensOf(spec *corev1.PodSpec) []string {
	var names []string
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, m := range c.VolumeMounts {
			if m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount" {
				names = append(names, c.Name+" "+m.Name)
			}
		}
	}
	return names
}

func TestAdd(t *testing.T) {
	spec := newSpec()
	workload := spec.DeepCopy().Containers
	c := mustAdd(t, spec, options)
	if diff := cmp.Diff(workload, spec.Containers[:1]); diff != "" {
		t.Errorf("the workload's container: %s", diff)
	}
	if diff := cmp.Diff(list("100m", "64Mi"), c.Resources.Limits); diff != "" || !cmp.Equal(c.Resources.Requests, c.Resources.Limits) {
		t.Errorf("requests %v; limits: %s", c.Resources.Requests, diff)
	}
	if c.ReadinessProbe != nil || c.LivenessProbe != nil || c.StartupProbe != nil || c.Lifecycle != nil {
		t.Error("the sidecar has probes")
	}
	if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
		t.Error("the pod's containers are given a token")
	}
	if diff := cmp.Diff([]string{"podresize-agent podresize-token"}, tokensOf(spec)); diff != "" {
		t.Errorf("containers with a token: %s", diff)
	}
}

// TestOptions: each of them is where it belongs.
func TestOptions(t *testing.T) {
	spec, opts := newSpec(), options
	opts.ImagePullPolicy, opts.RuntimeDir, opts.Socket = corev1.PullNever, "/run/crio", "crio.sock"
	opts.CPU, opts.Memory = resource.MustParse("200m"), resource.MustParse("100Mi")
	c := mustAdd(t, spec, opts)
	if !slices.Contains(c.Args, "--runtime-endpoint=unix:///host/run/runtime/crio.sock") || c.ImagePullPolicy != corev1.PullNever || c.Image != opts.Image {
		t.Errorf("the container is %+v", c)
	}
	if diff := cmp.Diff(list("200m", "100Mi"), c.Resources.Limits); diff != "" {
		t.Error(diff)
	}
	if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == "/run/crio" }) {
		t.Errorf("volumes %+v", spec.Volumes)
	}
}

// admit does to a spec what an API server does, as far as it matters here.
func admit(spec *corev1.PodSpec) {
	const name = "kube-api-access-x7k2p"
	injects := spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken
	if injects {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}})
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			c.TerminationMessagePath, c.TerminationMessagePolicy = "/dev/termination-log", corev1.TerminationMessageReadFile
			if c.ImagePullPolicy == "" {
				c.ImagePullPolicy = corev1.PullIfNotPresent
			}
			for j := range c.Env {
				c.Env[j].ValueFrom.FieldRef.APIVersion = "v1"
			}
			if injects {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true})
			}
		}
	}
}

// TestAgain: a spec that has the sidecar stays as it is, before its admission and after; of one that was admitted without, the token
// goes that all containers were given.
func TestAgain(t *testing.T) {
	spec := newSpec()
	mustAdd(t, spec, options)
	for _, step := range []func(*corev1.PodSpec){func(*corev1.PodSpec) {}, admit} {
		step(spec)
		before := spec.DeepCopy()
		mustAdd(t, spec, options)
		if diff := cmp.Diff(before, spec); diff != "" {
			t.Error(diff)
		}
	}
	admitted := newSpec()
	admit(admitted)
	if len(tokensOf(admitted)) != 2 {
		t.Fatalf("containers with a token: %q", tokensOf(admitted))
	}
	mustAdd(t, admitted, options)
	if diff := cmp.Diff([]string{"podresize-agent podresize-token"}, tokensOf(admitted)); diff != "" {
		t.Error(diff)
	}
	if slices.ContainsFunc(admitted.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "kube-api-access-") }) {
		t.Error("the volume of the token is left")
	}
}

// TestQOSStays for each class that can be resized. The rules are those of the API server.
func TestQOSStays(t *testing.T) {
	both := corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")}
	limits := corev1.ResourceRequirements{Limits: list("1", "1Gi")}
	for name, c := range map[string]struct {
		resources []corev1.ResourceRequirements
		want      corev1.PodQOSClass
	}{
		"guaranteed":           {[]corev1.ResourceRequirements{both, both}, corev1.PodQOSGuaranteed},
		"guaranteed by limits": {[]corev1.ResourceRequirements{limits}, corev1.PodQOSGuaranteed},
		"burstable":            {[]corev1.ResourceRequirements{{Requests: list("1", "1Gi")}}, corev1.PodQOSBurstable},
		"burstable in part":    {[]corev1.ResourceRequirements{both, {}}, corev1.PodQOSBurstable},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{}
			for i, r := range c.resources {
				spec.Containers = append(spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Resources: r})
			}
			before := class(spec)
			mustAdd(t, spec, options)
			if after := class(spec); before != c.want || after != c.want {
				t.Errorf("%s became %s, expected %s", before, after, c.want)
			}
		})
	}
}

// class is the QoS class of a pod some of whose containers ask for something (ComputePodQOS in pkg/apis/core/v1/helper/qos).
func class(spec *corev1.PodSpec) corev1.PodQOSClass {
	for _, c := range spec.Containers {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := c.Resources.Limits[name]
			request, requested := c.Resources.Requests[name]
			if !limited || requested && request.Cmp(limit) != 0 {
				return corev1.PodQOSBurstable
			}
		}
	}
	return corev1.PodQOSGuaranteed
}

// TestRefused: each refusal names its field in one line, and leaves the spec as it was.
func TestRefused(t *testing.T) {
	sidecarWith := func(change func(*corev1.PodSpec)) func(*corev1.PodSpec, *sidecar.Options) {
		return func(s *corev1.PodSpec, o *sidecar.Options) {
			if err := sidecar.Add(s, *o); err != nil {
				t.Fatal(err)
			}
			change(s)
		}
	}
	for name, c := range map[string]struct {
		make func(*corev1.PodSpec, *sidecar.Options)
		say  string
	}{
		"no image":           {func(_ *corev1.PodSpec, o *sidecar.Options) { o.Image = "" }, "image: "},
		"pull policy":        {func(_ *corev1.PodSpec, o *sidecar.Options) { o.ImagePullPolicy = "Sometimes" }, `imagePullPolicy: "Sometimes"`},
		"relative directory": {func(_ *corev1.PodSpec, o *sidecar.Options) { o.RuntimeDir = "run/crio" }, `runtimeDir: "run/crio"`},
		"the node's root":    {func(_ *corev1.PodSpec, o *sidecar.Options) { o.RuntimeDir = "/" }, `runtimeDir: "/"`},
		"socket with a path": {func(_ *corev1.PodSpec, o *sidecar.Options) { o.Socket = "../x.sock" }, `socket: "../x.sock"`},
		"negative CPU":       {func(_ *corev1.PodSpec, o *sidecar.Options) { o.CPU = resource.MustParse("-1") }, "cpu: -1"},
		"negative memory":    {func(_ *corev1.PodSpec, o *sidecar.Options) { o.Memory = resource.MustParse("-1Mi") }, "memory: -1Mi"},
		"Windows":            {func(s *corev1.PodSpec, _ *sidecar.Options) { s.OS = &corev1.PodOS{Name: corev1.Windows} }, "os: "},
		"Windows by its node": {func(s *corev1.PodSpec, _ *sidecar.Options) {
			s.NodeSelector = map[string]string{"kubernetes.io/os": "windows"}
		}, "os: "},
		"user namespace":                {func(s *corev1.PodSpec, _ *sidecar.Options) { s.HostUsers = ptr.To(false) }, "hostUsers: "},
		"shared processes":              {func(s *corev1.PodSpec, _ *sidecar.Options) { s.ShareProcessNamespace = ptr.To(true) }, "shareProcessNamespace: "},
		"the host's processes":          {func(s *corev1.PodSpec, _ *sidecar.Options) { s.HostPID = true }, "hostPID: "},
		"a Job":                         {func(s *corev1.PodSpec, _ *sidecar.Options) { s.RestartPolicy = corev1.RestartPolicyOnFailure }, "restartPolicy: "},
		"a token for all":               {func(s *corev1.PodSpec, _ *sidecar.Options) { s.AutomountServiceAccountToken = ptr.To(true) }, "automountServiceAccountToken: "},
		"pod-level resources":           {func(s *corev1.PodSpec, _ *sidecar.Options) { s.Resources = &corev1.ResourceRequirements{} }, "resources: "},
		"best effort":                   {func(s *corev1.PodSpec, _ *sidecar.Options) { s.Containers[0].Resources = corev1.ResourceRequirements{} }, "containers: none of them"},
		"best effort, with the sidecar": {sidecarWith(func(s *corev1.PodSpec) { s.Containers[0].Resources = corev1.ResourceRequirements{} }), "containers: none of them"},
		"another such container": {func(s *corev1.PodSpec, _ *sidecar.Options) {
			s.Containers = append(s.Containers, corev1.Container{Name: v1alpha1.SidecarContainer, Image: "localhost/other"})
		}, `containers: there is a container "podresize-agent" already`},
		"with more rights":  {sidecarWith(func(s *corev1.PodSpec) { s.Containers[1].SecurityContext.Privileged = ptr.To(true) }), `containers: there is a container "podresize-agent" already`},
		"an init container": {func(s *corev1.PodSpec, _ *sidecar.Options) { s.InitContainers[0].Name = v1alpha1.SidecarContainer }, `initContainers: there is a container "podresize-agent" already`},
		"another such volume": {func(s *corev1.PodSpec, _ *sidecar.Options) {
			s.Volumes = []corev1.Volume{{Name: "podresize-token", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, `volumes: there is a volume "podresize-token" already`},
	} {
		t.Run(name, func(t *testing.T) {
			spec, opts := newSpec(), options
			c.make(spec, &opts)
			before := spec.DeepCopy()
			err := sidecar.Add(spec, opts)
			if err == nil || !strings.HasPrefix(err.Error(), c.say) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, expected %s", err, c.say)
			}
			if diff := cmp.Diff(before, spec); diff != "" {
				t.Errorf("the spec was changed: %s", diff)
			}
		})
	}
}
