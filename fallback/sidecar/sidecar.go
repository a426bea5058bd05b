package sidecar

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/podresize/podresize/resize/v1alpha1"
)

// Options say how the sidecar is made. All but Image may be left out.
type Options struct {
	// Image is that of podresize-agent, as make images builds it.
	Image string
	// ImagePullPolicy; empty: as the API server sets it, by the image's tag.
	ImagePullPolicy corev1.PullPolicy
	// RuntimeDir is the directory on the node that has the runtime's CRI socket; empty: /run/containerd.
	RuntimeDir string
	// Socket is the name of the socket in RuntimeDir; empty: containerd.sock.
	Socket string
	// CPU and Memory are requests and limits at once, so that the pod's QoS class stays; zero: 100m and 64Mi.
	CPU, Memory resource.Quantity
}

// complete fills in the defaults, and gives everything that is wrong, each in a line that names the option.
func (o Options) complete() (Options, error) {
	var errs []error
	if o.Image == "" {
		errs = append(errs, errors.New("image: must be that of podresize-agent"))
	}
	if o.RuntimeDir == "" {
		o.RuntimeDir = "/run/containerd"
	}
	if !path.IsAbs(o.RuntimeDir) || path.Clean(o.RuntimeDir) != o.RuntimeDir || o.RuntimeDir == "/" {
		errs = append(errs, fmt.Errorf("runtimeDir: %q is not the absolute path of a directory, without a slash at its end", o.RuntimeDir))
	}
	if o.Socket == "" {
		o.Socket = "containerd.sock"
	}
	if strings.Contains(o.Socket, "/") {
		errs = append(errs, fmt.Errorf("socket: %q is not the name of a file in runtimeDir", o.Socket))
	}
	if !slices.Contains([]corev1.PullPolicy{"", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}, o.ImagePullPolicy) {
		errs = append(errs, fmt.Errorf("imagePullPolicy: %q is none", o.ImagePullPolicy))
	}
	var err error
	o.CPU, err = positive("cpu", o.CPU, "100m")
	errs = append(errs, err)
	o.Memory, err = positive("memory", o.Memory, "64Mi")
	return o, errors.Join(append(errs, err)...)
}

func positive(field string, q resource.Quantity, otherwise string) (resource.Quantity, error) {
	switch q.Sign() {
	case -1:
		return q, fmt.Errorf("%s: %s is negative", field, q.String())
	case 0:
		return resource.MustParse(otherwise), nil
	default:
		return q, nil
	}
}

// Add puts the sidecar into the spec of a pod, or of a pod template: the container, its volumes, and a token that it alone has. The pod's
// QoS class stays. A spec that has this sidecar is left as it is; so is one for which there is an error, which tells all that
// stands in the way, each in a line that names the field. The pod's service account needs the Role of manifests/components/sidecar.
func Add(spec *corev1.PodSpec, opts Options) error {
	opts, err := opts.complete()
	if err != nil {
		return err
	}
	added := spec.DeepCopy()
	removeInjectedToken(added)
	added.AutomountServiceAccountToken = ptr.To(false)
	err = errors.Join(suits(spec), addVolumes(added, volumes(opts)), addContainer(added, container(opts)))
	if err != nil {
		return err
	}
	*spec = *added
	return nil
}

func addContainer(spec *corev1.PodSpec, c corev1.Container) error {
	named := func(other corev1.Container) bool { return other.Name == c.Name }
	if slices.ContainsFunc(spec.InitContainers, named) {
		return fmt.Errorf("initContainers: there is a container %q already", c.Name)
	}
	i := slices.IndexFunc(spec.Containers, named)
	if i < 0 {
		spec.Containers = append(spec.Containers, c)
		return nil
	}
	if have := spec.Containers[i]; !equality.Semantic.DeepEqual(defaulted(have, c), defaulted(c, have)) {
		return fmt.Errorf("containers: there is a container %q already, and it is defined otherwise", c.Name)
	}
	return nil
}

// defaulted fills in what an API server does, as far as it depends on nothing else; the pull policy as the other one has it.
func defaulted(c, other corev1.Container) corev1.Container {
	out := *c.DeepCopy()
	if out.TerminationMessagePath == "" {
		out.TerminationMessagePath = corev1.TerminationMessagePathDefault
	}
	if out.TerminationMessagePolicy == "" {
		out.TerminationMessagePolicy = corev1.TerminationMessageReadFile
	}
	if out.ImagePullPolicy == "" {
		out.ImagePullPolicy = other.ImagePullPolicy
	}
	for i := range out.Env {
		if from := out.Env[i].ValueFrom; from != nil && from.FieldRef != nil && from.FieldRef.APIVersion == "" {
			from.FieldRef.APIVersion = "v1"
		}
	}
	return out
}

func addVolumes(spec *corev1.PodSpec, volumes []corev1.Volume) error {
	var errs []error
	for _, v := range volumes {
		i := slices.IndexFunc(spec.Volumes, func(other corev1.Volume) bool { return other.Name == v.Name })
		switch {
		case i < 0:
			spec.Volumes = append(spec.Volumes, v)
		case !equality.Semantic.DeepDerivative(v, spec.Volumes[i]): // an API server adds defaults to those that are there
			errs = append(errs, fmt.Errorf("volumes: there is a volume %q already, and it is defined otherwise", v.Name))
		}
	}
	return errors.Join(errs...)
}

// removeInjectedToken takes away what the API server has given the containers of a spec that it has admitted already: a token.
func removeInjectedToken(spec *corev1.PodSpec) {
	injected := func(name string) bool { return strings.HasPrefix(name, "kube-api-access-") }
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return injected(v.Name) && v.Projected != nil })
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool {
				return injected(m.Name) && m.MountPath == tokenPath
			})
		}
	}
}

// container is that of the DaemonSet in manifests/base, but for what a single pod has no need of: it keeps no Lease, and it has no
// probes, by which a sidecar in trouble would take the workload out of its Services, or restart.
func container(o Options) corev1.Container {
	own := func(name, field string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}}
	}
	amount := func() corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: o.CPU.DeepCopy(), corev1.ResourceMemory: o.Memory.DeepCopy()}
	}
	return corev1.Container{
		Name: v1alpha1.SidecarContainer, Image: o.Image, ImagePullPolicy: o.ImagePullPolicy,
		Args: []string{
			"--sidecar",
			"--runtime-endpoint=unix:///host/run/runtime/" + o.Socket,
			"--cgroup-root=/host/cgroup",
			"--systemd-socket=/host/run/systemd/private",
		},
		Env:       []corev1.EnvVar{own("POD_UID", "metadata.uid"), own("POD_NAMESPACE", "metadata.namespace")},
		Resources: corev1.ResourceRequirements{Requests: amount(), Limits: amount()},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: ptr.To[int64](0), RunAsNonRoot: ptr.To(false), // whatever the pod says: the socket is root's
			ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: runtimeVolume, MountPath: "/host/run/runtime", MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)},
			{Name: cgroupVolume, MountPath: "/host/cgroup", MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)},
			{Name: systemdVolume, MountPath: "/host/run/systemd", ReadOnly: true, MountPropagation: ptr.To(corev1.MountPropagationHostToContainer)},
			{Name: tokenVolume, MountPath: tokenPath, ReadOnly: true},
		},
	}
}
