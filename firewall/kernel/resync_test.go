package kernel

import (
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// TestResync: a busy connection that fell behind when its state was migrated is strict again after
// a round trip, and no blind segment ends or moves it before.
func TestResync(t *testing.T) {
	b := newBench(t, "add check-state\nadd allow tcp from any to me 80 setup keep-state\n"+
		"add deny ip from any to any\n", func(*firewall.Options) {})
	peer, port := outsider(1), uint16(7)
	if !b.connect(peer, port) {
		t.Fatal("the connection does not open")
	}
	only := func() *entry {
		t.Helper()
		var last *entry
		for x, err := range b.e.entries() {
			if err != nil || last != nil {
				t.Fatalf("more than one state, or %v", err)
			}
			last = x
		}
		return last
	}
	const sent, further = 5 << 20, 9 << 20
	c := only().call(uint8(only().tag>>16), 0)
	for i := range c.Side {
		d := &c.Side[i]
		d.End, d.Ack, d.Edge, d.Bytes = d.End+sent, d.Ack+sent, d.Edge+sent, d.Bytes+sent
	}
	c.Count = adoptMerge | adoptStale | adoptResync
	if err := b.e.call.ask(&c); err != nil || c.Result != adoptBehind {
		t.Fatalf("result %d: %v", c.Result, err)
	}
	segment := func(what string, in bool, flags uint8, seq, ack uint32, n int,
		want firewall.Reason) {
		t.Helper()
		if v := b.segment(in, peer, port, flags, seq, ack, n); v.Reason != want ||
			v.Pass != (want == firewall.ReasonRule) {
			t.Errorf("%s: %+v", what, v)
		}
		x := only()
		for _, d := range x.sides {
			if d.Flags&uint32(flow.SideRst) != 0 || d.Flags&metaLiberal != 0 {
				t.Errorf("%s: flags %#x", what, d.Flags)
			}
		}
	}
	const ok = firewall.ReasonRule
	a, z := uint32(101+further), uint32(901+further) // what each has sent by now
	segment("a blind RST", true, packet.FlagRST, 12345, 0, 0, ok)
	segment("an RST with the last number of the copy", true, packet.FlagRST, 101+sent, 0, 0, ok)
	segment("blind data", true, packet.FlagACK, 77777777, 1, 10, ok)
	segment("an RST that fits it", true, packet.FlagRST, 77777787, 0, 0, ok)
	segment("data of the peer", true, packet.FlagACK, a, z, 100, ok)
	segment("a blind answer", false, packet.FlagACK, 99999999, 12, 10, ok)
	segment("the answer", false, packet.FlagACK, z, a+100, 50, ok)
	for _, d := range only().sides {
		if d.Flags&uint32(flow.SideAcked) == 0 {
			t.Errorf("after a round trip the numbers of a side are not known: flags %#x", d.Flags)
		}
	}
	segment("a blind RST", true, packet.FlagRST, 12345, 0, 0, firewall.ReasonTCPRst)
	segment("blind data", true, packet.FlagACK, 77777777, z, 10, firewall.ReasonTCPWindow)
	segment("a blind acknowledgement", true, packet.FlagACK, a+100, z+51, 0,
		firewall.ReasonTCPAck)
	segment("more data", true, packet.FlagACK, a+100, z+50, 100, ok)
	segment("more answers", false, packet.FlagACK, z+50, a+200, 100, ok)
}

// strict reports that every connection is checked by the numbers of both its sides.
func (g *pairLab) strict() bool {
	for x, err := range g.engine.entries() {
		known := x.sides[0].Flags & x.sides[1].Flags & uint32(flow.SideAcked)
		if err != nil || known == 0 || (x.sides[0].Flags|x.sides[1].Flags)&metaLiberal != 0 {
			return false
		}
	}
	return true
}
