package services

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/forward"
)

// TestOneAddressIsRefused: the other services are set, follow their pods, and can be added and
// removed. A service whose own address is refused cannot be added.
func TestOneAddressIsRefused(t *testing.T) {
	bad := netip.MustParseAddr("10.200.0.9")
	h := &fakeHost{begun: true}
	file := filepath.Join(t.TempDir(), "services.json")
	s := h.service(t, file)
	other := webRequest()
	other.Name, other.At = "bad", netip.AddrPortFrom(bad, 80)
	for _, r := range []api.AddService{other, webRequest()} {
		if _, err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	h.lo, h.set, h.refuses = nil, nil, map[netip.Addr]bool{bad: true} // a reboot
	s = h.service(t, file)
	if err := s.Begin(); err != nil || len(h.set) != 2 || len(h.lo) != 1 {
		t.Fatalf("%v, set %v, addresses %v", err, h.set, h.lo)
	}
	h.addPod("w1", "app=web", "10.88.0.2")
	if err := s.follow(true); err != nil || len(h.set[1].Backends) != 1 {
		t.Errorf("a pod comes: %v, %v", err, h.set)
	}
	if p := fmt.Sprint(s.config.Problems.All()); !strings.Contains(p, "10.200.0.9") {
		t.Errorf("problems: %s", p)
	}
	third := webRequest()
	third.Name, third.At = "third", netip.MustParseAddrPort("10.200.0.11:80")
	if _, err := s.Add(third); err != nil || len(h.set) != 3 {
		t.Errorf("another service: %v, %v", err, h.set)
	}
	if _, err := s.Remove(api.RemoveService{Name: "third"}); err != nil || len(h.set) != 2 {
		t.Errorf("it goes: %v, %v", err, h.set)
	}
	if _, err := s.Remove(api.RemoveService{Name: "bad"}); err != nil {
		t.Error(err)
	}
	if _, err := s.Add(other); err == nil || len(h.set) != 1 {
		t.Errorf("one at a refused address: %v, %v", err, h.set)
	}
	if p := s.config.Problems.All(); len(p) != 0 {
		t.Errorf("problems at last: %v", p)
	}
}

// TestNoAddressWithoutPorts: while the ports of services are not set, the loopback does not get
// their addresses. Sockets of the host would be reached there.
func TestNoAddressWithoutPorts(t *testing.T) {
	h := &fakeHost{begun: true}
	file := filepath.Join(t.TempDir(), "services.json")
	if _, err := h.service(t, file).Add(webRequest()); err != nil {
		t.Fatal(err)
	}
	h.lo, h.set, h.fails = nil, nil, errors.New("no")
	s := h.service(t, file)
	if err := s.Begin(); err == nil || len(h.lo) != 0 {
		t.Errorf("%v, the loopback has %v", err, h.lo)
	}
	h.fails = nil
	if err := s.Begin(); err != nil || len(h.lo) != 1 || len(h.set) != 1 {
		t.Errorf("%v, the loopback has %v, the engine %v", err, h.lo, h.set)
	}
}

// TestPodsBeyondSpace: the engine gets as many pods as it has space for, those of the services that
// were added first, and the status says how many are left out.
func TestPodsBeyondSpace(t *testing.T) {
	const pods = forward.MaxBackends + 1
	h := &fakeHost{begun: true}
	s := h.service(t, filepath.Join(t.TempDir(), "services.json"))
	for i := range pods {
		h.addPod(fmt.Sprint("w", i), "app=web", netip.AddrFrom4([4]byte{10, 88, byte(i >> 7),
			byte(i)}).String())
	}
	full := forward.MaxAllBackends / forward.MaxBackends
	for i := range full + 2 {
		r := webRequest()
		r.Name, r.At = fmt.Sprintf("z%03d", 100-i), netip.AddrPortFrom(r.At.Addr(), uint16(80+i))
		if _, err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	for i, one := range h.set {
		want := forward.MaxBackends
		if i >= full {
			want = 0
		}
		if len(one.Backends) != want {
			t.Errorf("service %d has %d pods", i, len(one.Backends))
		}
	}
	left := fmt.Sprintf("%d pods get no flows", full+2*pods)
	if p := fmt.Sprint(s.config.Problems.All()); !strings.Contains(p, left) {
		t.Errorf("no %q in %s", left, p)
	}
	list, err := s.List()
	if err != nil || len(list.Services) != full+2 || len(list.Services[0].Pods) != 0 ||
		len(list.Services[full+1].Pods) != forward.MaxBackends {
		t.Errorf("listed: %d services, %v", len(list.Services), err)
	}
	h.pods = h.pods[:10]
	if err := s.follow(false); err != nil || len(h.set[full+1].Backends) != 10 ||
		len(s.config.Problems.All()) != 0 {
		t.Errorf("few pods: %v, %v", err, s.config.Problems.All())
	}
}
