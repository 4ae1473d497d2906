package overlay

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestRoutingLoop: a peer claims to be reached at an address that is routed into the tunnel, or
// moves there with a forged source. The encrypted packets are not encrypted again, over and over.
func TestRoutingLoop(t *testing.T) {
	for name, addr := range map[string]string{"IPv4": "10.96.0.9:51820",
		"IPv6": "[fd96::9]:51820"} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, nil, func(p *Peer) {
				if p.Pods[0].Addr().String() == "10.99.0.2" {
					p.Pods = append(p.Pods, netip.MustParsePrefix("10.96.0.0/16"),
						netip.MustParsePrefix("fd96::/64"))
				}
			})
			echo(t, a, b, 100)
			p := a.dev.bind.peerOf(b.key.Public())
			p.setCandidates(nil)
			awaitLocal(t, a, a.addr, true)
			before := a.dev.Stats()
			c, err := a.DialContext(t.Context(), "udp", b.addr+":9")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			sent, packets := p.sent.Load(), uint64(0)
			nstest.Eventually(t, "that is counted", func() bool {
				// a keepalive of the peer leads back to where it is
				p.current.Store(&path{addr: netip.MustParseAddrPort(addr)})
				if _, err := c.Write(make([]byte, 1300)); err != nil {
					t.Fatal(err)
				}
				packets++
				return a.dev.Stats().Loops > before.Loops
			})
			time.Sleep(500 * time.Millisecond)
			if more := p.sent.Load() - sent; more > packets*7<<10 {
				t.Errorf("%d packets became %d bytes", packets, more)
			}
		})
	}
}

// awaitLocal waits until a device knows an address as one of its host, or knows it no more.
func awaitLocal(t *testing.T, s *side, addr string, want bool) {
	t.Helper()
	a := netip.MustParseAddr(addr)
	nstest.Eventually(t, addr+" is known as it is", func() bool {
		return s.dev.tun.loop.local.has(a) == want
	})
}

// TestLoopGuardFollows: the guard knows the host's addresses as they come and go, before a packet
// has one.
func TestLoopGuardFollows(t *testing.T) {
	a, _ := pair(t, nil, nil)
	for _, addr := range []string{"10.98.0.1", "10.97.0.1", "10.99.0.1", "fd98::1"} {
		awaitLocal(t, a, addr, true)
	}
	if a.dev.tun.loop.local.has(netip.MustParseAddr("10.98.0.2")) {
		t.Error("the other end's address is one of the host")
	}
	link := a.Link("spare")
	if err := a.Netlink().AddAddr(link.Index, netip.MustParsePrefix("10.95.0.1/24")); err != nil {
		t.Fatal(err)
	}
	awaitLocal(t, a, "10.95.0.1", true)
	if err := a.Netlink().DeleteLink(link.Index); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"10.95.0.1", "10.97.0.1"} {
		awaitLocal(t, a, gone, false)
	}
	awaitLocal(t, a, "10.98.0.1", true)
}

// TestLoopGuardAsksNothing: what the kernel has reported decides whether a packet is an own one.
// Nothing is asked, so that a pod that sends from the tunnel's port makes no other wait.
// The test has no netlink.
func TestLoopGuardAsksNothing(t *testing.T) {
	var g loopGuard
	g.port.Store(6000)
	datagram, _ := gsoDatagram(false, 100) // from 10.0.0.1, port 6000
	report := g.local.reporter()
	own := netip.MustParsePrefix("10.0.0.1/8")
	event := func(kind nl.EventKind, link int) {
		report(nl.Event{Kind: kind, Addr: nl.Addr{Link: link, Prefix: own}})
	}
	is := func(when string, want bool) {
		t.Helper()
		if g.isOwn(datagram) != want {
			t.Errorf("%s: own is %v", when, !want)
		}
	}
	is("nothing is known", false)
	event(nl.AddrSet, 1)
	event(nl.Synced, 0)
	is("listed", true)
	event(nl.AddrSet, 1) // changed, such as no longer tentative
	event(nl.AddrSet, 2)
	event(nl.AddrGone, 1)
	is("gone from one of two interfaces", true)
	event(nl.AddrGone, 2)
	is("gone", false)
	event(nl.AddrSet, 1)
	report = g.local.reporter()
	is("listed again, not yet to the end", true)
	event(nl.Synced, 0)
	is("listed again", false)
	datagram[20], datagram[21] = 0, 53
	event(nl.AddrSet, 1)
	is("another port", false)
	if datagram[9] != unix.IPPROTO_UDP || g.seen.Load() != 3 {
		t.Errorf("%d are counted, want 3", g.seen.Load())
	}
}
