package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Paths are the cgroups of a container and of its pod, as absolute paths below
// the root of a Tree.
type Paths struct {
	Pod, Container string
}

// Locate turns the cgroupsPath of a container's OCI runtime spec into paths. It
// has one form for each cgroup driver:
//
//	/kubepods/burstable/pod<uid>/<id>                      cgroupfs
//	kubepods-burstable-pod<uid>.slice:cri-containerd:<id>  systemd
//
// The parent must look like the cgroup of a pod, so that no writer reaches one
// that several pods share. A cgroup that the runtime makes inside the
// container's, as crun does, holds no limits and is not told.
func Locate(cgroupsPath string) (Paths, error) {
	locate := locateCgroupfs
	if strings.Contains(cgroupsPath, ":") {
		locate = locateSystemd
	}
	paths, err := locate(cgroupsPath)
	if err != nil {
		return Paths{}, fmt.Errorf("locating cgroup %q: %w", cgroupsPath, err)
	}
	return paths, nil
}

func locateCgroupfs(cgroupsPath string) (Paths, error) {
	relative, absolute := strings.CutPrefix(cgroupsPath, "/")
	if !absolute || !fs.ValidPath(relative) {
		return Paths{}, errors.New("not a clean absolute path")
	}
	pod := path.Dir(cgroupsPath)
	if !strings.HasPrefix(path.Base(pod), "pod") {
		return Paths{}, fmt.Errorf("%q is not the cgroup of a pod", pod)
	}
	return Paths{Pod: pod, Container: cgroupsPath}, nil
}

func locateSystemd(cgroupsPath string) (Paths, error) {
	parts := strings.Split(cgroupsPath, ":")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" || strings.Contains(parts[1]+parts[2], "/") {
		return Paths{}, errors.New("not of the form slice:prefix:name")
	}
	pod, err := expandSlice(parts[0])
	if err != nil {
		return Paths{}, err
	}
	return Paths{Pod: pod, Container: pod + "/" + parts[1] + "-" + parts[2] + ".scope"}, nil
}

// expandSlice returns the path of a pod's slice: every dash in the name of a
// slice is a level of the hierarchy (systemd.slice(5)).
func expandSlice(slice string) (string, error) {
	name, isSlice := strings.CutSuffix(slice, ".slice")
	if !isSlice || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q is not the name of a slice", slice)
	}
	var expanded, prefix, last string
	for part := range strings.SplitSeq(name, "-") {
		if part == "" {
			return "", fmt.Errorf("%q is not the name of a slice", slice)
		}
		prefix, last = prefix+part, part
		expanded += "/" + prefix + ".slice"
		prefix += "-"
	}
	if !strings.HasPrefix(last, "pod") {
		return "", fmt.Errorf("%q is not the slice of a pod", slice)
	}
	return expanded, nil
}

// Tops are the cgroups in which pods have theirs: the one of all pods, of which podPath is some pod's, and those of the QoS classes in it.
func Tops(podPath string) ([]string, error) {
	for top := path.Dir(podPath); top != "/"; top = path.Dir(top) {
		base := strings.TrimSuffix(path.Base(top), ".slice")
		if parts := strings.Split(base, "-"); parts[len(parts)-1] != "kubepods" {
			continue
		}
		if base == path.Base(top) {
			return []string{top, top + "/burstable", top + "/besteffort"}, nil
		}
		return []string{top, top + "/" + base + "-burstable.slice", top + "/" + base + "-besteffort.slice"}, nil
	}
	return nil, fmt.Errorf("locating the cgroup of all pods: %q is not below one named kubepods", podPath)
}

// PodUID is the UID of the pod whose cgroup is at path, as a kubelet names it; "" if it is not a pod's.
func PodUID(podPath string) string {
	name, isSlice := strings.CutSuffix(path.Base(podPath), ".slice")
	if isSlice { // a dash would be a level of the hierarchy
		name = strings.ReplaceAll(name[strings.LastIndex(name, "-")+1:], "_", "-")
	}
	uid, isPod := strings.CutPrefix(name, "pod")
	if !isPod {
		return ""
	}
	return uid
}
