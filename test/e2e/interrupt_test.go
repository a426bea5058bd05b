//go:build e2e

package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// testInterrupt: Ctrl-C ends a wait that could last for ever, at once and in one line; what was asked for can be taken back.
func (e *env) testInterrupt(t *testing.T) {
	busy := e.run(t, pod("busy", container("app", amounts{"100m/200m", "64Mi/128Mi"}, "alloc", "64Mi")))
	eventually(t, "it holds its memory", func() error { return e.logged(t, busy, "holding 67108864") })
	held := e.read(t, busy)
	args := []string{"set", "busy", "--memory-request", "32Mi", "--memory-limit", "40Mi", "--wait"} // less than it holds
	login := e.kubeconfig(t, resizerUser, resizers)

	t.Run("as soon as it is asked for", func(t *testing.T) {
		stderr := e.interrupt(t, login, args, func(*watched) error { return e.asked(t, busy) })
		checkLine(t, stderr, "Interrupted", "podresize status busy")
	})
	t.Run("while it tells that it waits", func(t *testing.T) {
		stderr := e.interrupt(t, login, args, func(w *watched) error {
			if !strings.Contains(w.String(), "\n") {
				return errors.New("no line yet")
			}
			return nil
		})
		told, last, _ := strings.Cut(stderr, "\npodresize: ")
		checkLine(t, "podresize: "+last, "Interrupted", "podresize status busy")
		if !regexp.MustCompile(`^[0-9]+s: (InProgress|Deferred) \([A-Za-z]+\): .+$`).MatchString(told) {
			t.Errorf("what it told: %s", told)
		}
	})
	equal(t, "the kernel, where memory is in use", e.read(t, busy), held)
	e.resizeTo(t, e.newResizer(t), busy, want{"app": {memory: "64Mi/128Mi"}}.resources())
	equal(t, "the kernel after taking it back", e.read(t, busy), held)
}

// logged is nil when the pod's first container has written that to its log.
func (e *env) logged(t *testing.T, pod *corev1.Pod, text string) error {
	t.Helper()
	log, err := e.Client().CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: pod.Spec.Containers[0].Name}).DoRaw(t.Context())
	if err == nil && !strings.Contains(string(log), text) {
		err = fmt.Errorf("its log is %q", log)
	}
	return err
}

// asked is nil when the resize has been written down, by whichever path.
func (e *env) asked(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	limit := e.latest(t, pod).Spec.Containers[0].Resources.Limits.Memory()
	if e.criResize(t, pod) == nil && limit.Value() == 128*mi {
		return errors.New("not yet asked for")
	}
	return nil
}

// interrupt sends the command a SIGINT when it is time, and gives what it wrote to stderr.
func (e *env) interrupt(t *testing.T, login string, args []string, when func(*watched) error) string {
	t.Helper()
	cmd, stdout, _ := e.command(t, login, args...)
	stderr := &watched{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command waits", func() error { return when(stderr) })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_ = cmd.Wait() // the exit code tells
	if took := time.Since(began); took > time.Second {
		t.Errorf("it ended %s after the interrupt", took)
	}
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || stdout.Len() > 0 {
		t.Errorf("exit code %d, stdout %q", code, stdout)
	}
	return stderr.String()
}

// watched is a buffer that may be read while it is written.
type watched struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buffer.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buffer.String()
}
