package peers

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/overlay"
)

// TestHostsAnnounceServices: a host of the cluster announces addresses of services as its
// endpoints. It keeps its other endpoints, and it keeps no service from an address at which it was
// never reached. A peer that was added by hand is believed.
func TestHostsAnnounceServices(t *testing.T) {
	h := newHanging(t)
	service := netip.MustParseAddr("10.200.0.10")
	h.config.CheckRange = func(r netip.Prefix) error {
		if r.Contains(service) {
			return errors.New("the address of a service")
		}
		return nil
	}
	add := api.AddPeer{Name: api.HostPeer + "b", Key: overlay.Key{1}.String(),
		Endpoints: []string{"10.200.0.10:51820", "[fd00::1]:51820", "10.200.0.11:51820"},
		Pods:      []netip.Prefix{netip.MustParsePrefix("10.88.1.0/24")}}
	h.atOnce("a host announces the address of a service", func() error { return h.AddHost(add) })
	list, err := h.List()
	if err != nil || len(list.Peers) != 1 || !slices.Equal(list.Peers[0].Endpoints,
		[]string{"[fd00::1]:51820", "10.200.0.11:51820"}) {
		t.Fatalf("peers: %+v, %v", list.Peers, err)
	}
	if name := h.NameByEndpoint(netip.MustParseAddr("10.200.0.11")); name != "" {
		t.Errorf("%s keeps a service from an address", name)
	}
	h.config.CheckRange = func(netip.Prefix) error { return nil } // the service is gone
	h.atOnce("the host once more", func() error { return h.AddHost(add) })
	if list, err := h.List(); err != nil || len(list.Peers) != 1 ||
		!slices.Equal(list.Peers[0].Endpoints, add.Endpoints) {
		t.Errorf("without the service: %+v, %v", list.Peers, err)
	}
	s := overlay.PeerStatus{Peer: overlay.Peer{Name: api.HostPeer + "b"},
		Path: netip.MustParseAddrPort("10.200.0.11:51820")}
	if isReached(&s, s.Path.Addr()) {
		t.Error("a host that never answered is reached")
	}
	s.LastHandshake = time.Unix(1, 0)
	if !isReached(&s, s.Path.Addr()) || isReached(&s, service) {
		t.Error("a host is reached where its path is, and nowhere else")
	}
	s = overlay.PeerStatus{Peer: overlay.Peer{Name: "b"}, Path: s.Path}
	if !isReached(&s, s.Path.Addr()) {
		t.Error("a peer that was added by hand is not believed")
	}
}
