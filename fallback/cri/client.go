package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/lru"
)

// The ways in which a request fails, for errors.Is. An error that is none of
// them never reached the runtime: a caller's mistake, or a context that was
// cancelled.
var (
	// ErrUnavailable is a runtime that is not there or did not answer in
	// time. What was asked may have been done all the same.
	ErrUnavailable = errors.New("runtime unavailable")
	// ErrNotFound is a pod without a ready sandbox, or a container that the
	// runtime does not know (any more).
	ErrNotFound = errors.New("not found")
	// ErrRefused is any other answer of the runtime.
	ErrRefused = errors.New("runtime refused")
)

// DefaultTimeout is far above the milliseconds an update takes, and below the
// patience of whoever waits for one: a request about an exiting container can
// block for ever (containerd issues 9770 and 10583).
const DefaultTimeout = 10 * time.Second

// Options are those of a Client. The zero value is what suits a node.
type Options struct {
	// Timeout ends each single request; 0 means DefaultTimeout.
	Timeout time.Duration
}

// Client is a connection to one runtime. It is safe for concurrent use.
type Client struct {
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	// paths are the CgroupsPaths of sandboxes, by their id. A sandbox keeps its own
	// for its life.
	paths *lru.Cache
}

// maxSandboxes is how many sandboxes' paths are remembered, more than a node runs.
const maxSandboxes = 2048

// Dial prepares a connection to the runtime at endpoint, the absolute path of a
// unix socket with or without "unix://" before it. It connects at the first
// request, and again whenever the runtime was gone; while it is gone requests
// fail at once with ErrUnavailable.
func Dial(endpoint string, opts Options) (*Client, error) {
	if opts.Timeout < 0 {
		return nil, fmt.Errorf("dialing runtime: negative timeout %s", opts.Timeout)
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("dialing runtime: endpoint %q is not the absolute path of a unix socket", endpoint)
	}
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(reconnect()),
		grpc.WithUnaryInterceptor(deadline(opts.Timeout)),
	)
	if err != nil {
		return nil, fmt.Errorf("dialing runtime %q: %w", endpoint, err)
	}
	return &Client{conn: conn, runtime: runtimeapi.NewRuntimeServiceClient(conn), paths: lru.New(maxSandboxes)}, nil
}

// reconnect tries often: a local socket costs nothing, and a runtime is back
// within seconds of its restart.
func reconnect() grpc.ConnectParams {
	return grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		MinConnectTimeout: 2 * time.Second,
	}
}

// deadline gives every request its time, and every failure its kind.
func deadline(timeout time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return classify(ctx, invoke(limited, method, req, reply, conn, opts...))
	}
}

// classify adds what an error means to it, and keeps the gRPC status with its
// message.
func classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", kindOf(ctx, status.Code(err)), err)
}

func kindOf(ctx context.Context, code codes.Code) error {
	switch code {
	case codes.NotFound:
		return ErrNotFound
	case codes.Unavailable, codes.DeadlineExceeded:
		return ErrUnavailable
	case codes.Canceled:
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return ErrUnavailable
	default:
		return ErrRefused
	}
}

// Close ends the connection.
func (c *Client) Close() error {
	if err := c.conn.Close(); err != nil {
		return fmt.Errorf("closing connection to runtime: %w", err)
	}
	return nil
}

// Check finds out whether the runtime answers.
func (c *Client) Check(ctx context.Context) error {
	_, err := c.runtimeName(ctx)
	return err
}

func (c *Client) runtimeName(ctx context.Context) (string, error) {
	version, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return "", fmt.Errorf("asking version of runtime: %w", err)
	}
	return version.GetRuntimeName(), nil
}
