package overlay

import (
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet/build"
)

// TestNameLowersNoMTU: neither a name that leads into the tunnel, nor what is reported of the path
// to one address, lowers the MTU that all peers share. A route that the administrator made does.
func TestNameLowersNoMTU(t *testing.T) {
	server, resolver := nameServer(t, "")
	server.Set("p.example", dnsmessage.TypeA, records(60, "10.99.0.2"))
	a, b := pair(t, func(c *Config) { c.Resolver = resolver }, nil)
	again := func(what string, want int, endpoints ...string) {
		t.Helper()
		a.peer(t, b, nil, endpoints...)
		nstest.Eventually(t, "the addresses are known", func() bool {
			a.dev.mu.Lock()
			defer a.dev.mu.Unlock()
			return len(a.dev.peers[b.key.Public()].endpoints.list()) == len(endpoints)
		})
		a.dev.mu.Lock() // lookUp holds it while it lowers the MTU
		defer a.dev.mu.Unlock()
		if got := a.dev.currentMTU(); got != want {
			t.Errorf("%s: the MTU is %d, want %d", what, got, want)
		}
	}
	again("the name leads into the tunnel", 1420, "10.98.0.2:51820", "p.example:1")
	again("looked up again", 1420, "10.98.0.2:51820", "p.example:1")

	far := netip.MustParseAddr("10.98.0.2")
	reportMTU(t, a, b, 600)
	nstest.Eventually(t, "the report has come", func() bool {
		r, err := a.Netlink().RouteTo(far)
		return err == nil && r.MTU == 600
	})
	again("a report of one address", 1420, "10.98.0.2:51820")

	link := a.Link("wire")
	if err := a.Netlink().AddRoute(nl.Route{Dst: netip.PrefixFrom(far, 32), Link: link.Index,
		MTU: 1400}); err != nil {
		t.Fatal(err)
	}
	again("a route", 1340, "10.98.0.2:51820")
}

// reportMTU has b tell a's kernel that datagrams of a's tunnel to it are too large.
func reportMTU(t *testing.T, a, b *side, mtu uint32) {
	t.Helper()
	near, far := netip.MustParseAddr("10.98.0.1"), netip.MustParseAddr("10.98.0.2")
	quote, err := build.Packet(build.IPv4{Src: near, Dst: far},
		build.UDP{SrcPort: 51820, DstPort: 51820}, build.Data(make([]byte, 1400)))
	if err != nil {
		t.Fatal(err)
	}
	report, err := build.Packet(build.IPv4{Src: far, Dst: near},
		build.ICMP{Type: 3, Code: 4, Rest: mtu}, build.Data(quote[:200]))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, report, 0, &unix.SockaddrInet4{Addr: near.As4()})
	}); err != nil {
		t.Fatal(err)
	}
}
