package nl_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// pair is two nodes joined by a veth, and the link of the first node's end.
func pair(t *testing.T) (a, b *nstest.Node, link nl.Link) {
	lab := nstest.New(t)
	a, b = lab.Node("a"), lab.Node("b")
	lab.Join(a, "eth0", "10.0.0.1/24 fd00::1/64", b, "eth0", "10.0.0.2/24 fd00::2/64")
	return a, b, a.Link("eth0")
}

// device names a link to the library.
func device(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

func addBridge(c *nl.Conn, name string) error {
	return nl.Library(c).LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
}

// setMaster makes a link a port of a bridge, or of none when master is 0.
func setMaster(c *nl.Conn, index, master int) error {
	return nl.Library(c).LinkSetMasterByIndex(device(index), master)
}

func TestLinks(t *testing.T) {
	a, b, eth := pair(t)
	c := a.Netlink()
	if eth.Kind != "veth" || eth.Encap != "ether" || eth.MTU != 1500 || !eth.Up || !eth.OperUp ||
		len(eth.HardwareAddr) != 6 || eth.Loopback {
		t.Errorf("got %+v", eth)
	}
	other, err := b.Netlink().LinkByName("eth0")
	if err != nil || eth.Peer != other.Index {
		t.Errorf("peer %d, the other end is %d, %v", eth.Peer, other.Index, err)
	}
	if _, err := c.LinkByName("nosuch"); !errors.Is(err, nl.ErrNoLink) {
		t.Errorf("by name: got %v", err)
	}
	if _, err := c.LinkByIndex(9999); !errors.Is(err, nl.ErrNoLink) {
		t.Errorf("by index: got %v", err)
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	for _, err := range []error{
		c.SetLinkMTU(eth.Index, 1400),
		c.SetLinkAlias(eth.Index, "pod web"),
		c.SetLinkDown(eth.Index),
		c.SetLinkHardwareAddr(eth.Index, mac),
		c.RenameLink(eth.Index, "card0"),
		addBridge(c, "br0"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	br, err := c.LinkByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	if err := setMaster(c, eth.Index, br.Index); err != nil {
		t.Fatal(err)
	}
	got, err := c.LinkByIndex(eth.Index)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "card0" || got.MTU != 1400 || got.Alias != "pod web" || got.Up ||
		got.HardwareAddr.String() != mac.String() || got.Master != br.Index {
		t.Errorf("after the changes: %+v", got)
	}
	if err := setMaster(c, eth.Index, 0); err != nil {
		t.Error(err)
	}
	if err := nl.Library(c).LinkSetNsFd(device(eth.Index), b.NS().Fd()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Netlink().LinkByName("card0"); err != nil {
		t.Errorf("after the move: %v", err)
	}
	if err := b.Netlink().DeleteLink(other.Index); err != nil {
		t.Error(err)
	}
	links, err := b.Netlink().Links()
	if err != nil || len(links) != 1 || links[0].Name != "lo" || !links[0].Loopback {
		t.Errorf("after deleting one end: %+v, %v", links, err)
	}
}

func TestAddrs(t *testing.T) {
	a, _, eth := pair(t)
	c := a.Netlink()
	p := netip.MustParsePrefix("192.0.2.7/32")
	if err := c.AddAddr(eth.Index, p); err != nil {
		t.Fatal(err)
	}
	if err := c.AddAddr(eth.Index, p); !errors.Is(err, unix.EEXIST) {
		t.Errorf("twice: got %v", err)
	}
	addrs, err := c.Addrs(eth.Index)
	if err != nil {
		t.Fatal(err)
	}
	got := map[netip.Prefix]nl.Addr{}
	for _, addr := range addrs {
		if addr.Tentative {
			t.Errorf("%s cannot be used yet", addr.Prefix)
		}
		got[addr.Prefix] = addr
	}
	for _, want := range []string{"10.0.0.1/24", "fd00::1/64", "192.0.2.7/32"} {
		if addr, ok := got[netip.MustParsePrefix(want)]; !ok || addr.Link != eth.Index ||
			addr.Scope != nl.ScopeGlobal {
			t.Errorf("%s: got %+v, %v", want, addr, ok)
		}
	}
	if err := c.DeleteAddr(eth.Index, p); err != nil {
		t.Error(err)
	}
	if err := c.DeleteAddr(eth.Index, p); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("deleted twice: got %v", err)
	}
}

func TestRoutes(t *testing.T) {
	a, _, eth := pair(t)
	c := a.Netlink()
	routes := []nl.Route{
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.0.0.2")},
		{Dst: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("fd00::2")},
		{Dst: netip.MustParsePrefix("192.0.2.0/24"), Link: eth.Index, Scope: nl.ScopeLink,
			MTU: 1300},
		{Dst: netip.MustParsePrefix("198.51.100.0/24"), Via: netip.MustParseAddr("169.254.1.1"),
			Link: eth.Index, Onlink: true},
	}
	for _, r := range routes {
		if err := c.AddRoute(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.AddRoute(routes[0]); !errors.Is(err, unix.EEXIST) {
		t.Errorf("twice: got %v", err)
	}
	list, err := c.Routes(0)
	if err != nil {
		t.Fatal(err)
	}
	byDst := map[netip.Prefix]nl.Route{}
	for _, r := range list {
		byDst[r.Dst] = r
	}
	for _, want := range routes {
		got, ok := byDst[want.Dst]
		if !ok || got.Via != want.Via || got.Link != eth.Index || got.Scope != want.Scope ||
			got.MTU != want.MTU || got.Onlink != want.Onlink {
			t.Errorf("want %+v, got %+v", want, got)
		}
	}
	for dst, via := range map[string]string{"203.0.113.9": "10.0.0.2", "2001:db8::9": "fd00::2"} {
		if r, err := c.RouteTo(netip.MustParseAddr(dst)); err != nil ||
			r.Via != netip.MustParseAddr(via) || r.Link != eth.Index {
			t.Errorf("to %s: %+v, %v", dst, r, err)
		}
	}
	if err := c.DeleteRoute(routes[0]); err != nil {
		t.Error(err)
	}
	if err := c.DeleteRoute(routes[0]); !errors.Is(err, unix.ESRCH) {
		t.Errorf("deleted twice: got %v", err)
	}
	if _, err := c.RouteTo(netip.MustParseAddr("203.0.113.9")); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("without a route: got %v", err)
	}
	if err := c.ReplaceRoute(routes[1]); err != nil {
		t.Error(err)
	}
}

func TestNeighs(t *testing.T) {
	a, _, eth := pair(t)
	c := a.Netlink()
	for _, ip := range []string{"10.0.0.77", "fd00::77"} {
		want := nl.Neigh{Link: eth.Index, Addr: netip.MustParseAddr(ip),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 77}}
		if err := c.SetNeigh(want); err != nil {
			t.Fatal(err)
		}
		find := func() (nl.Neigh, bool) {
			list, err := c.Neighs(eth.Index)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range list {
				if n.Addr == want.Addr {
					return n, true
				}
			}
			return nl.Neigh{}, false
		}
		if got, ok := find(); !ok || got.State != unix.NUD_PERMANENT ||
			got.HardwareAddr.String() != want.HardwareAddr.String() {
			t.Errorf("%s: got %+v, %v", ip, got, ok)
		}
	}
}

func TestDoComesBackAlsoFromPanicsAndGoexit(t *testing.T) {
	a, _, _ := pair(t)
	inside, err := a.NS().ID()
	if err != nil {
		t.Fatal(err)
	}
	here := func() (id string) {
		ns, err := nl.CurrentNS()
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		id, _ = ns.ID()
		return id
	}
	outside := here()
	var seen string
	wrong := errors.New("wrong")
	if err := a.Do(func() error {
		seen = here()
		return wrong
	}); err != wrong || seen != inside || inside == outside {
		t.Errorf("got %v, namespace %s, inside %s, outside %s", err, seen, inside, outside)
	}
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		a.Do(func() error { panic("boom") })
	}()
	t.Run("the end of a test inside", func(t *testing.T) {
		reached := false
		t.Cleanup(func() {
			if reached {
				t.Error("continued after the end of the test")
			}
		})
		a.Do(func() error { t.SkipNow(); return nil })
		reached = true
	})
	for range 20 {
		if got := here(); got != outside {
			t.Fatalf("back in %s, not in %s", got, outside)
		}
	}
}

func TestOpenNSRefusesOtherFiles(t *testing.T) {
	f := t.TempDir() + "/f"
	if err := os.WriteFile(f, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ns, err := nl.OpenNS(f); err == nil {
		ns.Close()
		t.Error("took an ordinary file for a namespace")
	}
}

func TestDialInsideWantsAnAddress(t *testing.T) {
	a, _, _ := pair(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := a.DialContext(ctx, "tcp", "localhost:80"); err == nil {
		t.Error("looked a name up")
	}
}
