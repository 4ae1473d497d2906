package overlay

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/internal/nl"
)

// TestNoPeer: a packet that the kernel routes into the tunnel, to an address that no peer has, is
// counted and given to Config.NoPeer.
func TestNoPeer(t *testing.T) {
	dst := netip.MustParseAddrPort("10.77.0.9:1000")
	lost := make(chan []byte, 1)
	a, _ := pair(t, func(c *Config) {
		c.NoPeer = func(p []byte) {
			if destination(p) == dst.Addr() {
				lost <- bytes.Clone(p)
			}
		}
	}, nil)
	route := netip.MustParsePrefix("10.77.0.0/24")
	if err := a.Netlink().AddRoute(nl.Route{Dst: route, Link: a.dev.Index()}); err != nil {
		t.Fatal(err)
	}
	c, err := a.ListenPacket("udp", a.addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(dst)); err != nil {
		t.Fatal(err)
	}
	if p := <-lost; !bytes.HasSuffix(p, []byte("hello")) {
		t.Errorf("packet % x", p)
	}
	if got := a.dev.Stats().NoPeer; got == 0 {
		t.Error("it was not counted")
	}
}
