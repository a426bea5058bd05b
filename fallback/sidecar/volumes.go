package sidecar

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	runtimeVolume = "podresize-runtime"
	cgroupVolume  = "podresize-cgroup"
	systemdVolume = "podresize-systemd"
	tokenVolume   = "podresize-token" //nolint:gosec // G101: a name

	// tokenPath is where clients in a pod look for their token.
	tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // G101: a path
	// tokenSeconds is how long a token is good for. The kubelet makes another one in time, the agent reads it every minute.
	tokenSeconds = 3600
	// readable is the mode that API servers give such files by default.
	readable = 0o644
)

// volumes are the directories of the node that the DaemonSet in manifests/base has too, and the token.
func volumes(o Options) []corev1.Volume {
	host := func(name, path string, kind corev1.HostPathType) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
	}
	return []corev1.Volume{
		host(runtimeVolume, o.RuntimeDir, corev1.HostPathDirectory),
		host(cgroupVolume, "/sys/fs/cgroup", corev1.HostPathDirectory),
		host(systemdVolume, "/run/systemd", corev1.HostPathDirectoryOrCreate),
		{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Projected: token()}},
	}
}

// token is what the API server would give to all containers of the pod.
func token() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To[int32](readable),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](tokenSeconds)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		},
	}
}
