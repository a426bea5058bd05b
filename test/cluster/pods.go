package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// patience bounds what a caller's context does not: a dozen pods that are started at once in an emulated machine.
const patience = 5 * time.Minute

// RunPod creates a pod and returns it when it is Running and Ready. An empty
// namespace is "default"; a namespace that does not exist is created. The error
// of a pod that does not get there says what its containers wait for.
func (a *API) RunPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pod = pod.DeepCopy()
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	created, err := a.createPod(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("creating pod %q: %w", pod.Namespace+"/"+pod.Name, err)
	}
	return a.WaitPod(ctx, created.Namespace, created.Name, podReady)
}

// createPod waits for what every new namespace lacks for a moment: the default
// service account, which admission insists on.
func (a *API) createPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}}
	_, err := a.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	var created *corev1.Pod
	err = poll(ctx, 50*time.Millisecond, func() error {
		var err error
		created, err = a.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "error looking up service account") {
			return err
		}
		if err != nil {
			return fatalError{err}
		}
		return nil
	})
	return created, err
}

// WaitPod returns the pod as soon as done returns nil for it. While done
// returns an error the wait goes on, for two minutes at most; then that error
// is returned with what the pod's status says.
func (a *API) WaitPod(ctx context.Context, namespace, name string, done func(*corev1.Pod) error) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var pod *corev1.Pod
	err := poll(ctx, 50*time.Millisecond, func() error {
		latest, err := a.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fatalError{err}
		}
		if err != nil {
			return err
		}
		pod = latest
		return done(pod)
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for pod %q: %w%s", namespace+"/"+name, err, podTrouble(pod))
	}
	return pod, nil
}

func podReady(pod *corev1.Pod) error {
	switch pod.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded:
		return fatalError{fmt.Errorf("it is %s", pod.Status.Phase)}
	case corev1.PodRunning:
	default:
		return fmt.Errorf("it is %s", pod.Status.Phase)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("it is not Ready")
}

// podTrouble is what a pod's status says about why it does not run.
func podTrouble(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	var says []string
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue && condition.Message != "" {
			says = append(says, fmt.Sprintf("%s: %s", condition.Type, condition.Message))
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			says = append(says, fmt.Sprintf("container %q waits: %s %s", status.Name, waiting.Reason, waiting.Message))
		}
		if ended := status.State.Terminated; ended != nil {
			says = append(says, fmt.Sprintf("container %q ended: %s %s", status.Name, ended.Reason, ended.Message))
		}
	}
	return lastLines(strings.Join(says, "\n"), 10)
}

// DeletePod deletes a pod with a grace of one second and returns when it is gone
// from the API.
func (a *API) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	grace, uid := int64(1), pod.UID
	options := metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &uid}}
	err := a.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %q: %w", pod.Namespace+"/"+pod.Name, err)
	}
	return a.waitGone(ctx, pod.Namespace, pod.Name, uid)
}

func (a *API) waitGone(ctx context.Context, namespace, name string, uid types.UID) error {
	err := poll(ctx, 50*time.Millisecond, func() error {
		pod, err := a.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || (err == nil && pod.UID != uid) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.New("it is still there")
	})
	if err != nil {
		return fmt.Errorf("waiting for the end of pod %q: %w", namespace+"/"+name, err)
	}
	return nil
}
