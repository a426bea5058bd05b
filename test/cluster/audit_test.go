package cluster

import (
	"strings"
	"testing"
)

const auditLog = `{"auditID":"1","stage":"ResponseComplete","verb":"patch","requestURI":"/api/v1/namespaces/n/pods/p/resize?fieldManager=x","user":{"username":"jane","groups":["g"]},"objectRef":{"resource":"pods","namespace":"n","name":"p","subresource":"resize"},"responseStatus":{"code":200},"requestObject":{"spec":{}},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.000002Z"}
{"auditID":"2","verb":"patch","requestURI":"/api/v1/namespaces/n/pods/p?dryRun=All","user":{"username":"jane"},"objectRef":{"resource":"pods","namespace":"n","name":"p"},"responseStatus":{"code":422}}
{"auditID":"3","verb":"patch","requestURI":"/api/v1/namespaces/n/pods/p/status","user":{"username":"system:node:n1"},"objectRef":{"resource":"pods","namespace":"n","name":"p","subresource":"status"},"responseStatus":{"code":200}}
{"auditID":"4","verb":"get","requestURI":"/version","user":{"username":"admin"},"responseStatus":{"code":200}}
{"auditID":"5","verb":"pat`

func TestParseAudit(t *testing.T) {
	events, err := parseAudit(strings.NewReader(auditLog))
	if err != nil || len(events) != 4 {
		t.Fatalf("got %d events, %v, want 4", len(events), err)
	}
	first := events[0]
	if first.User.Username != "jane" || first.ObjectRef.Subresource != "resize" || first.ResponseStatus.Code != 200 ||
		string(first.RequestObject) != `{"spec":{}}` || first.Finished.Sub(first.Received).Microseconds() != 1 {
		t.Errorf("got %+v", first)
	}
	for i, want := range []struct{ mutating, dryRun, byCluster bool }{
		{mutating: true}, {dryRun: true}, {mutating: true, byCluster: true}, {},
	} {
		e := events[i]
		if e.Mutating() != want.mutating || e.DryRun() != want.dryRun || e.byCluster() != want.byCluster {
			t.Errorf("event %s: mutating %t, dry-run %t, by the cluster %t, want %+v", e.AuditID, e.Mutating(), e.DryRun(), e.byCluster(), want)
		}
	}
	if done, found := before(events, "3"); !found || len(done) != 2 {
		t.Errorf("before the third are %d, %t", len(done), found)
	}
	if _, found := before(events, "9"); found {
		t.Error("found an entry that is not there")
	}
}

func TestParseAuditSaysWhichLine(t *testing.T) {
	_, err := parseAudit(strings.NewReader("{}\nnonsense\n"))
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}

func TestPodServiceAccountIsNotTheCluster(t *testing.T) {
	for user, want := range map[string]bool{
		"system:serviceaccount:podresize-system:podresize-agent": false,
		"system:serviceaccount:kube-system:node-controller":      true,
		"system:kube-scheduler":                                  true,
		"admin":                                                  false,
	} {
		var e AuditEvent
		e.User.Username = user
		if e.byCluster() != want {
			t.Errorf("%s counts as the cluster: %t", user, !want)
		}
	}
}
