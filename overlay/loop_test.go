package overlay

import (
	"net/netip"
	"testing"
	"time"
)

// TestRoutingLoop: a peer that claims to be reached at an address that is routed into the tunnel,
// or that moves there with a forged source, does not have the encrypted packets encrypted again,
// over and over.
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
			p.current.Store(&path{addr: netip.MustParseAddrPort(addr)})
			before := a.dev.Stats()
			c, err := a.DialContext(t.Context(), "udp", b.addr+":9")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			sent := p.sent.Load()
			for range 3 {
				if _, err := c.Write(make([]byte, 1300)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(500 * time.Millisecond)
			if more := p.sent.Load() - sent; more > 20<<10 {
				t.Errorf("three packets became %d bytes", more)
			}
			if a.dev.Stats().Loops == before.Loops {
				t.Error("that is not counted")
			}
		})
	}
}
