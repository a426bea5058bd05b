package cluster

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// API is a cluster as it shows itself at its API server, whoever runs it. Its
// methods may be called concurrently.
type API struct {
	admin  *rest.Config
	client kubernetes.Interface
	plane  ControlPlane
}

// ControlPlane is what those who run an API server have of it besides its API.
type ControlPlane interface {
	// AuditLog is what has been logged by AuditPolicy so far: one event a
	// line, in JSON.
	AuditLog(ctx context.Context) ([]byte, error)

	// Authority is the certificate, and its key, whose certificates name users
	// to the API server, in PEM.
	Authority() (cert, key []byte, err error)
}

// NewAPI makes an API from the admin's login.
func NewAPI(admin *rest.Config, plane ControlPlane) (*API, error) {
	admin = unlimited(rest.CopyConfig(admin))
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return &API{admin: admin, client: client, plane: plane}, nil
}

// Complete is a configuration with every default filled in, as Start takes it.
func Complete(config Config) (Config, error) { return config.complete() }

// RESTConfig is the admin's (group system:masters), without client-side limits.
func (a *API) RESTConfig() *rest.Config { return rest.CopyConfig(a.admin) }

// Client is a client for RESTConfig.
func (a *API) Client() kubernetes.Interface { return a.client }

// RESTConfigAs is for a user that this cluster's authority vouches for with a
// new client certificate: no impersonation, so RBAC and the audit log see this
// user and nobody else.
func (a *API) RESTConfigAs(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := a.plane.Authority()
	if err != nil {
		return nil, err
	}
	pair, err := keyPair{cert: cert, key: key}.issue(subject{name: user, groups: groups})
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate for user %q: %w", user, err)
	}
	return unlimited(&rest.Config{
		Host:            a.admin.Host,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.admin.CAData, CertData: pair.cert, KeyData: pair.key},
	}), nil
}

// StartKubelet starts the kubelet of a node, which does not run, and returns
// when the node is Ready with it.
func (a *API) StartKubelet(ctx context.Context, node string, start func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := a.forgetHeartbeat(ctx, node); err != nil {
		return err
	}
	if err := start(ctx); err != nil {
		return err
	}
	return a.WaitNode(ctx, node)
}

// WaitNode returns when a node takes pods.
func (a *API) WaitNode(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return poll(ctx, 100*time.Millisecond, func() error { return a.nodeReady(ctx, node) })
}

// WaitReady returns when the API server is ready.
func (a *API) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return poll(ctx, 100*time.Millisecond, func() error {
		return a.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// unlimited: a negative QPS switches client-side throttling off.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.UserAgent = "podresize-test/" + fmt.Sprint(os.Getpid())
	return config
}

var _ ControlPlane = files{}

// AuditLog is part of ControlPlane.
func (f files) AuditLog(context.Context) ([]byte, error) {
	data, err := os.ReadFile(f.auditLog())
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return data, nil
}

// Authority is part of ControlPlane.
func (f files) Authority() (cert, key []byte, err error) {
	pair, err := readKeyPair(f, "ca")
	return pair.cert, pair.key, err
}
