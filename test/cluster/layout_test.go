package cluster

import (
	"net/netip"
	"strings"
	"testing"
)

// TestAddressesAreOnLoopback and distinct, for the highest index and node too.
func TestAddressesAreOnLoopback(t *testing.T) {
	s := state{Index: maxClusters}
	seen := map[string]bool{}
	for _, ip := range []string{s.apiServerIP(), s.etcdIP(), s.controllerManagerIP(), s.schedulerIP(), s.nodeIP(0), s.nodeIP(maxNodes - 1)} {
		addr, err := netip.ParseAddr(ip)
		if err != nil || !addr.IsLoopback() || seen[ip] {
			t.Errorf("address %q: %v", ip, err)
		}
		seen[ip] = true
	}
	service, err := netip.ParsePrefix(s.serviceCIDR())
	if err != nil || service.Addr().Next().String() != s.apiServerIP() {
		t.Errorf("the first service address of %s is not the API server's, %s (%v)", s.serviceCIDR(), s.apiServerIP(), err)
	}
}

// TestNamesAreShort: 15 bytes for a link, 107 for a socket, with the longest
// names that are allowed.
func TestNamesAreShort(t *testing.T) {
	name := strings.Repeat("x", 20)
	if got := bridge(name, name); len(got) > 15 || got == bridge(name, "y") {
		t.Errorf("bridge name %q", got)
	}
	if got := (state{Config: Config{Name: name}}).files().socket(name); len(got) > 100 {
		t.Errorf("socket path %q has %d bytes", got, len(got))
	}
}
