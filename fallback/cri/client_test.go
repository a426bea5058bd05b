package cri_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/podresize/podresize/fallback/cri"
)

func TestDialRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		endpoint string
		opts     cri.Options
	}{
		"empty":            {"", cri.Options{}},
		"only the scheme":  {"unix://", cri.Options{}},
		"relative":         {"run/containerd.sock", cri.Options{}},
		"relative unix":    {"unix://run/containerd.sock", cri.Options{}},
		"tcp":              {"tcp://127.0.0.1:1", cri.Options{}},
		"negative timeout": {"/run/containerd.sock", cri.Options{Timeout: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := cri.Dial(tc.endpoint, tc.opts); err == nil {
				t.Error("got no error")
			}
		})
	}
}

func TestEndpoint(t *testing.T) {
	for _, scheme := range []string{"", "unix://"} {
		socket := socketPath(t)
		(&fakeRuntime{}).serve(t, socket)
		if err := dial(t, scheme+socket, cri.Options{}).Check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A runtime that is not there fails a request at once, not at its deadline.
func TestNoRuntime(t *testing.T) {
	client := dial(t, socketPath(t), cri.Options{Timeout: time.Hour})
	err := client.Check(t.Context())
	if !errors.Is(err, cri.ErrUnavailable) || !strings.Contains(err.Error(), "asking version") {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

func TestReconnect(t *testing.T) {
	socket := socketPath(t)
	stop := (&fakeRuntime{}).serve(t, socket)
	client := dial(t, socket, cri.Options{})
	if err := client.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := client.Check(t.Context()); !errors.Is(err, cri.ErrUnavailable) {
		t.Fatalf("got %v while the runtime is gone, want ErrUnavailable", err)
	}
	(&fakeRuntime{}).serve(t, socket)
	eventually(t, func() error {
		return client.Check(t.Context())
	})
}

// TestDeadline is case-69 and case-90: a runtime that blocks, for an exiting container or in a plugin, is given up for the moment, and
// the connection is still good.
func TestDeadline(t *testing.T) {
	client := connect(t, &fakeRuntime{hang: true}, cri.Options{Timeout: 50 * time.Millisecond})
	err := client.Update(t.Context(), "c1", valid())
	if !errors.Is(err, cri.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if err := client.Check(t.Context()); err != nil {
		t.Errorf("after a request that hung: %v", err)
	}
}

func TestCallerGivesUp(t *testing.T) {
	fake := &fakeRuntime{hang: true}
	client := connect(t, fake, cri.Options{Timeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- client.Update(ctx, "c1", valid()) }()
	eventually(t, func() error {
		if len(fake.seen()) == 0 {
			return errors.New("no update seen")
		}
		return nil
	})
	cancel()
	err := <-done
	if !errors.Is(err, context.Canceled) || errors.Is(err, cri.ErrUnavailable) || errors.Is(err, cri.ErrRefused) {
		t.Errorf("got %v, want context.Canceled alone", err)
	}
}

func TestClosed(t *testing.T) {
	client := connect(t, &fakeRuntime{}, cri.Options{})
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := client.Check(t.Context()); !errors.Is(err, cri.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
