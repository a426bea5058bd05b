package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
)

func TestIssue(t *testing.T) {
	ca, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.issue(subject{name: "jane", groups: []string{"g"}, hosts: []string{"127.20.1.1", "kubernetes"}})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.X509KeyPair(pair.cert, pair.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(loaded.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if cert.Subject.CommonName != "jane" || len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != "g" {
		t.Errorf("it names %s", cert.Subject)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.cert)
	for _, host := range []string{"127.20.1.1", "kubernetes"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("as server %s: %v", host, err)
		}
	}
	client := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := cert.Verify(client); err != nil {
		t.Errorf("as client: %v", err)
	}
}
