package cluster

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store/cluster"
)

// peersByName are the peers of a tunnel.
type peersByName map[string]api.AddPeer

func (p peersByName) AddHost(a api.AddPeer) error  { p[a.Name] = a; return nil }
func (p peersByName) RemoveHost(name string) error { delete(p, name); return nil }

func (p peersByName) Names() (all []string) {
	for name := range p {
		all = append(all, name)
	}
	return all
}

// TestHostPeers: a host with ranges becomes a peer of its own name space, one without leaves it,
// and peers that someone added by hand stay.
func TestHostPeers(t *testing.T) {
	all := peersByName{"by-hand": {}}
	hosts := HostPeers{all}
	pods := []netip.Prefix{netip.MustParsePrefix("10.88.1.0/24")}
	b := cluster.HostChange{Name: "b", Node: &cluster.Node{Ranges: pods},
		Addrs: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:51820")}}
	if err := hosts.Set(b); err != nil {
		t.Fatal(err)
	}
	got := all["host:b"]
	if got.Name != "host:b" || !slices.Equal(got.Pods, pods) ||
		!slices.Equal(got.Endpoints, []string{"192.0.2.2:51820"}) ||
		got.Key != b.Node.WireGuard.String() {
		t.Errorf("the peer is %+v", got)
	}
	if names := hosts.Names(); !slices.Equal(names, []string{"b"}) {
		t.Errorf("the hosts are %v", names)
	}
	for _, gone := range []cluster.HostChange{{Name: "b"}, {Name: "b", Node: new(cluster.Node)}} {
		if err := hosts.Set(b); err != nil {
			t.Fatal(err)
		}
		if err := hosts.Set(gone); err != nil || len(all) != 1 {
			t.Errorf("afterwards %v, %v", all, err)
		}
	}
}

// TestHostsAreNotChangedByHand: a peer that is a host of the cluster is not added or removed by
// hand. Another one of such a name is, as one that the cluster had.
func TestHostsAreNotChangedByHand(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	nstest.Eventually(t, "the peer", func() bool {
		a.parts.mu.Lock()
		defer a.parts.mu.Unlock()
		return a.parts.hosts["b"].Node != nil
	})
	for peer, refused := range map[string]bool{"host:b": true, "host:c": false, "b": false} {
		if err := a.CheckByHand(peer); (err != nil) != refused {
			t.Errorf("%s: %v", peer, err)
		}
	}
}
