package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// keyPair is a certificate and its key, in PEM.
type keyPair struct{ cert, key []byte }

// subject is whom a certificate names: to the API server the common name is
// the user, the organizations are the groups, and hosts are what a server is
// reached by.
type subject struct {
	name   string
	groups []string
	hosts  []string
}

// writePKI makes everything that the components prove themselves with.
func (s state) writePKI() error {
	f := s.files()
	if err := os.MkdirAll(f.pki(""), 0o700); err != nil {
		return fmt.Errorf("making the pki directory: %w", err)
	}
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	if err := ca.write(f, "ca"); err != nil {
		return err
	}
	if err := writeServiceAccountKey(f); err != nil {
		return err
	}
	for file, who := range s.subjects() {
		pair, err := ca.issue(who)
		if err != nil {
			return fmt.Errorf("issuing certificate %q: %w", file, err)
		}
		if err := pair.write(f, file); err != nil {
			return err
		}
	}
	return nil
}

// subjects are the certificates of a cluster by file name.
func (s state) subjects() map[string]subject {
	all := map[string]subject{
		"apiserver": {name: "kube-apiserver", hosts: []string{
			s.apiServerIP(), "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		}},
		"apiserver-kubelet-client": {name: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
		"controller-manager":       {name: "system:kube-controller-manager"},
		"scheduler":                {name: "system:kube-scheduler"},
		"admin":                    {name: "admin", groups: []string{"system:masters"}},
	}
	for i, n := range s.Config.Nodes {
		all["kubelet-"+n.Name] = subject{
			name: "system:node:" + n.Name, groups: []string{"system:nodes"}, hosts: []string{s.nodeIP(i), n.Name},
		}
	}
	return all
}

// writeLogins writes the kubeconfig files, the admin's where people look.
func (s state) writeLogins() error {
	f := s.files()
	logins := map[string]string{"admin": f.kubeconfig()}
	for _, who := range []string{"controller-manager", "scheduler"} {
		logins[who] = f.login(who)
	}
	for _, n := range s.Config.Nodes {
		logins["kubelet-"+n.Name] = f.login("kubelet-" + n.Name)
	}
	for who, path := range logins {
		if err := s.writeLogin(who, path); err != nil {
			return fmt.Errorf("writing kubeconfig %q: %w", path, err)
		}
	}
	return nil
}

func (s state) writeLogin(who, path string) error {
	f := s.files()
	ca, err := os.ReadFile(f.cert("ca"))
	if err != nil {
		return err
	}
	pair, err := readKeyPair(f, who)
	if err != nil {
		return err
	}
	name := "podresize-" + s.Config.Name
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.apiServerURL(), CertificateAuthorityData: ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, path)
}

// newAuthority makes the cluster's certificate authority.
func newAuthority() (keyPair, error) {
	return sign(certificate(subject{name: "podresize-test"}, true), nil, nil)
}

// issue makes a certificate that p, an authority, vouches for.
func (p keyPair) issue(who subject) (keyPair, error) {
	parent, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("reading the authority: %w", err)
	}
	leaf, err := x509.ParseCertificate(parent.Certificate[0])
	if err != nil {
		return keyPair{}, fmt.Errorf("reading the authority: %w", err)
	}
	return sign(certificate(who, false), leaf, parent.PrivateKey)
}

func certificate(who subject, authority bool) *x509.Certificate {
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: who.name, Organization: who.groups},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  authority,
	}
	if authority {
		cert.KeyUsage |= x509.KeyUsageCertSign
	}
	for _, h := range who.hosts {
		if ip := net.ParseIP(h); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	return cert
}

// sign makes a key and a certificate for it, signed by parent, or by the new
// key itself where there is no parent.
func sign(cert, parent *x509.Certificate, parentKey any) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("making a key: %w", err)
	}
	if parent == nil {
		parent, parentKey = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), parentKey)
	if err != nil {
		return keyPair{}, fmt.Errorf("signing: %w", err)
	}
	keyPEM, err := privatePEM(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: keyPEM}, nil
}

func privatePEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// writeServiceAccountKey makes the key that signs the tokens of pods.
func writeServiceAccountKey(f files) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	private, err := privatePEM(key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encoding a key: %w", err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return keyPair{cert: public, key: private}.write(f, "service-accounts")
}

func (p keyPair) write(f files, name string) error {
	for path, data := range map[string][]byte{f.cert(name): p.cert, f.key(name): p.key} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return fmt.Errorf("writing %q: %w", filepath.Base(path), err)
		}
	}
	return nil
}

func readKeyPair(f files, name string) (keyPair, error) {
	cert, err := os.ReadFile(f.cert(name))
	if err != nil {
		return keyPair{}, fmt.Errorf("reading certificate: %w", err)
	}
	key, err := os.ReadFile(f.key(name))
	if err != nil {
		return keyPair{}, fmt.Errorf("reading key: %w", err)
	}
	return keyPair{cert: cert, key: key}, nil
}
