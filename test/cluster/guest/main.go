// Command guest runs in the virtual machine of a node and does there what the
// test bed does by itself on the machine: it runs commands, and it lets
// containerd be reached. See machine.go of package cluster for its other end.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)

func main() {
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	containerd, err := new(net.ListenConfig).Listen(ctx, "tcp", ":1025")
	if err != nil {
		return fmt.Errorf("listening for containerd: %w", err)
	}
	go forward(ctx, containerd, "/run/containerd/containerd.sock")
	http.HandleFunc("POST /run", run)
	server := &http.Server{Addr: ":1024", ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// run runs the command in the body, a JSON array, and streams its output. The
// trailer Error is empty after a success. A command whose caller goes away is
// killed.
func run(w http.ResponseWriter, r *http.Request) {
	var argv []string
	body, err := io.ReadAll(r.Body) // to its end, or the server does not watch the caller
	if err == nil {
		err = json.Unmarshal(body, &argv)
	}
	if err != nil || len(argv) == 0 {
		http.Error(w, "the body must be a command as a JSON array", http.StatusBadRequest)
		return
	}
	w.Header().Set("Trailer", "Error")
	out := flushed{w, http.NewResponseController(w)}
	cmd := exec.CommandContext(r.Context(), argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 100 * time.Millisecond // children may outlive it and hold its output
	if err := cmd.Run(); err != nil {
		w.Header().Set("Error", err.Error())
	}
}

// flushed sends at once what is written.
type flushed struct {
	io.Writer
	controller *http.ResponseController
}

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err != nil {
		return n, err
	}
	return n, f.controller.Flush()
}

// forward connects whoever comes with a unix socket.
func forward(ctx context.Context, listener net.Listener, socket string) {
	for {
		outside, err := listener.Accept()
		if err != nil {
			return
		}
		inside, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			_ = outside.Close()
			continue
		}
		go move(outside, inside)
		go move(inside, outside)
	}
}

// move ends both ways when one has ended: nobody here half-closes.
func move(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = to.Close(), from.Close()
}
