package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// AuditEvent is a finished request as the API server logged it.
type AuditEvent struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	UserAgent  string `json:"userAgent"`

	User struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"user"`

	// ObjectRef is empty for URLs that are no resource.
	ObjectRef struct {
		APIGroup    string    `json:"apiGroup"`
		Resource    string    `json:"resource"`
		Subresource string    `json:"subresource"`
		Namespace   string    `json:"namespace"`
		Name        string    `json:"name"`
		UID         types.UID `json:"uid"`
	} `json:"objectRef"`

	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`

	// RequestObject is what a mutating request carried, except for secrets,
	// config maps and tokens.
	RequestObject json.RawMessage `json:"requestObject"`

	Annotations map[string]string `json:"annotations"`
	Received    time.Time         `json:"requestReceivedTimestamp"`
	Finished    time.Time         `json:"stageTimestamp"`
}

// DryRun says whether the request asked for no effect.
func (e AuditEvent) DryRun() bool { return strings.Contains(e.RequestURI, "dryRun=") }

// Mutating says whether the request could change something.
func (e AuditEvent) Mutating() bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !e.DryRun()
	}
	return false
}

// byCluster says whether the cluster itself asked: a kubelet, a controller or
// the scheduler. Pods' own service accounts do not count.
func (e AuditEvent) byCluster() bool {
	for _, prefix := range []string{"system:node:", "system:kube-", "system:serviceaccount:kube-system:", "system:apiserver"} {
		if strings.HasPrefix(e.User.Username, prefix) {
			return true
		}
	}
	return false
}

// Audit returns the requests that keep wants, in the order in which they ended.
// Nil keeps all. Every request that was answered before the call is in it.
func (a *API) Audit(ctx context.Context, keep func(AuditEvent) bool) ([]AuditEvent, error) {
	marker, err := a.markAudit(ctx)
	if err != nil {
		return nil, err
	}
	var events []AuditEvent
	err = poll(ctx, 20*time.Millisecond, func() error {
		data, err := a.plane.AuditLog(ctx)
		if err != nil {
			return fatalError{err}
		}
		all, err := parseAudit(bytes.NewReader(data))
		if err != nil {
			return fatalError{err}
		}
		var found bool
		if events, found = before(all, marker); !found {
			return errors.New("the audit log is not up to date")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("auditing: %w", err)
	}
	return filterAudit(events, keep), nil
}

// PodRequests returns the mutating requests on one pod, its subresources
// (resize, status, eviction, …) included and dry-runs excluded, of everybody
// but the kubelets and the control plane.
func (a *API) PodRequests(ctx context.Context, pod *corev1.Pod) ([]AuditEvent, error) {
	return a.Audit(ctx, func(e AuditEvent) bool {
		ref := e.ObjectRef
		return ref.APIGroup == "" && ref.Resource == "pods" && ref.Namespace == pod.Namespace && ref.Name == pod.Name &&
			e.Mutating() && !e.byCluster()
	})
}

// markAudit makes a request whose entry in the log can be recognised.
func (a *API) markAudit(ctx context.Context) (string, error) {
	id := string(uuid.NewUUID())
	request := a.client.Discovery().RESTClient().Get().AbsPath("/version").SetHeader("Audit-ID", id)
	if err := request.Do(ctx).Error(); err != nil {
		return "", fmt.Errorf("marking the audit log: %w", err)
	}
	return id, nil
}

// before is what came before the entry with this id.
func before(events []AuditEvent, id string) ([]AuditEvent, bool) {
	for i, e := range events {
		if e.AuditID == id {
			return events[:i], true
		}
	}
	return nil, false
}

func filterAudit(events []AuditEvent, keep func(AuditEvent) bool) []AuditEvent {
	if keep == nil {
		return events
	}
	var kept []AuditEvent
	for _, e := range events {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// parseAudit reads one event per line. A last line without its end is still
// being written and left out.
func parseAudit(r io.Reader) ([]AuditEvent, error) {
	var events []AuditEvent
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		var e AuditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading line %d of the audit log: %w", len(events)+1, err)
		}
		events = append(events, e)
	}
}

// AuditPolicy logs every request once, when it has ended, and the body of
// those that change something.
func AuditPolicy() map[string]any {
	return map[string]any{
		"apiVersion": "audit.k8s.io/v1",
		"kind":       "Policy",
		"omitStages": []string{"RequestReceived"},
		"rules": []map[string]any{
			{"level": "Metadata", "resources": []map[string]any{
				{"group": "", "resources": []string{"secrets", "configmaps", "serviceaccounts/token"}},
				{"group": "authentication.k8s.io"},
			}},
			{"level": "Request", "verbs": []string{"create", "update", "patch", "delete", "deletecollection"}},
			{"level": "Metadata"},
		},
	}
}
