package device

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// TestHandshakesOfOneNetwork: a host with an IPv6 /64 has no more handshakes under load than one
// with a single address, and takes none away from others.
func TestHandshakesOfOneNetwork(t *testing.T) {
	d, _ := bare(t)
	d.rate.limiter.Init()
	t.Cleanup(d.rate.limiter.Close)
	const tries = 3000
	numbered := func(first string, i int) netip.Addr {
		a := netip.MustParseAddr(first).As16()
		binary.BigEndian.PutUint16(a[14:], uint16(i))
		return netip.AddrFrom16(a)
	}
	for _, c := range []struct {
		first string
		each  bool // of the addresses has its own
	}{{"2001:db8::", false}, {"fe80::%eth0", false}, {"::ffff:192.0.0.0", true}} {
		allowed := 0
		for i := range tries {
			if d.mayHandshake(numbered(c.first, i)) {
				allowed++
			}
		}
		if c.each != (allowed == tries) {
			t.Errorf("%s: %d of %d handshakes", c.first, allowed, tries)
		}
	}
	if !d.mayHandshake(netip.MustParseAddr("2001:db8:0:1::1")) {
		t.Error("another network has none")
	}
}
