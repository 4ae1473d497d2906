package pod

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

func TestConflictsAreRefused(t *testing.T) {
	b := newFixture(t)
	web := []Publish{{Proto: 6, HostPort: 8080, Port: 80}}
	p, _ := b.attach("one", Spec{Name: "web", Publish: web})
	netns := b.lab.Node("two").Path()
	for want, spec := range map[string]Spec{
		"pod name web is taken by container one; choose another name": {Name: "web"},
		"pod name web is taken by container one; choose another":      {Name: "WeB"},
		"pod two: host port 8080 is published for pod web already":    {Publish: web},
		fmt.Sprintf("pod two: address %s is in use by pod web",
			p.Addrs[0]): {Addrs: p.Addrs[:1]},
		"pod two: address 10.99.0.5 is not in the pod range 10.88.0.0/24": {
			Addrs: []netip.Addr{netip.MustParseAddr("10.99.0.5")}},
		"pod two: two addresses of one family, 10.88.0.8 and 10.88.0.9; a pod has at most one of " +
			"each": {Addrs: []netip.Addr{netip.MustParseAddr("10.88.0.8"),
			netip.MustParseAddr("10.88.0.9")}},
		`pod two: label "a b"="c": only letters, digits, '_', '.', '/' and '-', at most 63 each`: {
			Labels: map[string]string{"a b": "c"}},
		"pod two: an MTU of 100 is not between 576 and 65535": {MTU: 100},
	} {
		spec.Container, spec.Netns = "two", netns
		_, _, err := b.m.Attach(t.Context(), spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestReservedAddresses(t *testing.T) {
	b := newFixture(t)
	a, err := b.m.Reserve(netip.IPv4Unspecified())
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := b.attach("other", Spec{}); p.Addrs[0] == a {
		t.Fatalf("a reserved address went to another pod")
	}
	if p, _ := b.attach("one", Spec{Addrs: []netip.Addr{a}}); p.Addrs[0] != a {
		t.Errorf("got %v, want the reserved %s", p.Addrs, a)
	}
	b.m.Unreserve(a) // the pod's now
	if _, err := b.m.Reserve(a); err == nil {
		t.Errorf("an address in use was handed out")
	}
	if err := b.m.Detach(t.Context(), "one", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := b.m.Reserve(a); err != nil {
		t.Errorf("a detached pod's address is not free: %v", err)
	}
}

// TestAddressesAreUsable: a container may send as soon as it is attached, by both families. The
// kernel takes packets for an address once it has a local route.
func TestAddressesAreUsable(t *testing.T) {
	b := newFixture(t)
	for i := range 50 {
		p, node := b.attach(fmt.Sprint("pod", i), Spec{})
		routes, err := node.Netlink().Routes(unix.RT_TABLE_LOCAL)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range p.Addrs {
			if !slices.ContainsFunc(routes, func(r nl.Route) bool {
				return r.Dst == netip.PrefixFrom(a, a.BitLen())
			}) {
				t.Errorf("pod %d: %s cannot be used yet", i, a)
			}
		}
	}
}

// TestAddressesInside: a pod has its own addresses and one link-local one that is in use at once,
// also where IPv6 was switched off in the namespace before.
func TestAddressesInside(t *testing.T) {
	b := newFixture(t)
	for _, off := range []string{"0", "1"} {
		node := b.lab.Node("inside" + off)
		for _, which := range []string{"all", "default"} {
			if err := node.SetSysctl("net.ipv6.conf."+which+".disable_ipv6", off); err != nil {
				t.Fatal(err)
			}
		}
		var p Pod
		err := b.do(func() (err error) {
			p, _, err = b.m.Attach(t.Context(), Spec{Container: "inside" + off, Netns: node.Path()})
			return err
		})
		if err != nil {
			t.Fatalf("IPv6 off %s: %v", off, err)
		}
		link := node.Link("eth0")
		addrs, err := node.Netlink().Addrs(link.Index)
		if err != nil {
			t.Fatal(err)
		}
		var local []nl.Addr
		for _, a := range addrs {
			if a.Prefix.Addr().IsLinkLocalUnicast() {
				local = append(local, a)
			}
		}
		if len(addrs) != 3 || len(local) != 1 || local[0].Tentative ||
			local[0].Prefix.Addr() != linkLocal(net.HardwareAddr(p.MAC)) {
			t.Errorf("IPv6 off %s: addresses %+v", off, addrs)
		}
		for _, a := range p.Addrs {
			if err := b.ping(b.host, a); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestOnlyAddrs: a pod that is to have no other addresses gets none of another family, and its
// gateways are of the families that it has.
func TestOnlyAddrs(t *testing.T) {
	b := newFixture(t)
	reserved, err := b.m.Reserve(netip.IPv4Unspecified())
	if err != nil {
		t.Fatal(err)
	}
	p, _ := b.attach("four", Spec{Addrs: []netip.Addr{reserved}, OnlyAddrs: true})
	if !slices.Equal(p.Addrs, []netip.Addr{reserved}) || len(p.Gateway) != 1 ||
		!p.Gateway[0].Is4() {
		t.Errorf("addresses %v, gateways %v", p.Addrs, p.Gateway)
	}
	both, _ := b.attach("both", Spec{})
	if len(both.Addrs) != 2 || len(both.Gateway) != 2 {
		t.Errorf("without it: addresses %v, gateways %v", both.Addrs, both.Gateway)
	}
}
