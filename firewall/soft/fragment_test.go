package soft

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// fragment is a part of the datagram with an id.
func fragment(t *testing.T, id, off uint16, more bool) []byte {
	t.Helper()
	ip := build.IPv4{Src: netip.MustParseAddr("10.0.0.9"), Dst: netip.MustParseAddr("10.0.0.1"),
		ID: id, FragOff: off, Proto: packet.ProtoUDP}
	layers := []build.Layer{ip, build.Data(make([]byte, 64))}
	if more {
		ip.Flags = packet.FragMF
	}
	layers[0] = ip
	if off == 0 {
		layers = []build.Layer{ip, build.UDP{SrcPort: 53, DstPort: 4000, Len: 128},
			build.Data(make([]byte, 56))}
	}
	b, err := build.Packet(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFragmentRules: what docs/rules.md says of rules about fragments. A datagram passes or not as
// a whole. A rule with `frag` decides about the parts without a first one, and one with `frag mf`
// about all of a datagram in parts.
func TestFragmentRules(t *testing.T) {
	for rules, want := range map[string]struct{ whole, first, later, alone firewall.Verdict }{
		"add 10 deny ip from any to any frag\nadd 20 allow udp from any to any 4000\n": {
			whole: firewall.Verdict{Pass: true, Rule: 20, Reason: firewall.ReasonRule},
			first: firewall.Verdict{Pass: true, Rule: 20, Reason: firewall.ReasonRule},
			later: firewall.Verdict{Pass: true, Rule: 20, Reason: firewall.ReasonFragFirst},
			alone: firewall.Verdict{Rule: 10, Reason: firewall.ReasonRule}},
		"add 10 deny ip from any to any frag mf\nadd 20 allow udp from any to any 4000\n": {
			whole: firewall.Verdict{Pass: true, Rule: 20, Reason: firewall.ReasonRule},
			first: firewall.Verdict{Rule: 10, Reason: firewall.ReasonRule},
			later: firewall.Verdict{Rule: 10, Reason: firewall.ReasonFragFirst},
			alone: firewall.Verdict{Rule: 65535, Reason: firewall.ReasonFragUnknown}},
		"add 10 allow ip from any to any frag\nadd 20 deny udp from any to any 4000\n": {
			whole: firewall.Verdict{Rule: 20, Reason: firewall.ReasonRule},
			first: firewall.Verdict{Rule: 20, Reason: firewall.ReasonRule},
			later: firewall.Verdict{Rule: 20, Reason: firewall.ReasonFragFirst},
			alone: firewall.Verdict{Pass: true, Rule: 10, Reason: firewall.ReasonRule}},
	} {
		w := loadMe(t, Options{}, rules).Worker(0)
		ask := func(what string, b []byte, want firewall.Verdict) {
			t.Helper()
			v := w.Evaluate(in(1), b)
			if v.Pass != want.Pass || v.Rule != want.Rule || v.Reason != want.Reason {
				t.Errorf("%s%s: %+v, want %+v", rules, what, v, want)
			}
		}
		ask("whole", udp(t, "10.0.0.9:53", "10.0.0.1:4000"), want.whole)
		ask("first", fragment(t, 1, 0, true), want.first)
		ask("later", fragment(t, 1, 64, false), want.later)
		ask("alone", fragment(t, 2, 64, false), want.alone)
	}
}

// TestRefusedFragmentsEvictNone: however many first fragments are refused, the datagrams that pass
// do so as a whole. A datagram has one record: that of its newest first fragment.
func TestRefusedFragmentsEvictNone(t *testing.T) {
	w := loadMe(t, Options{}, "add 10 deny udp from any 666 to any\n"+
		"add 20 allow udp from any to any 4000\n").Worker(0)
	now := 0.0 // s
	ask := func(what string, b []byte, pass bool, rule uint16) {
		t.Helper()
		now += 0.0001
		if v := w.Evaluate(in(now), b); v.Pass != pass || v.Rule != rule {
			t.Fatalf("%s: %+v", what, v)
		}
	}
	refused := func(id uint16) []byte {
		b := fragment(t, id, 0, true)
		b[20], b[21] = 666>>8, 666&0xff
		return b
	}
	ask("the first", fragment(t, 7, 0, true), true, 20)
	for id := range uint16(50_000) {
		if id != 7 {
			ask("a refused one", refused(id), false, 10)
		}
	}
	ask("the rest", fragment(t, 7, 64, false), true, 20)
	for range 2 {
		ask("a refused one with its identification", refused(7), false, 10)
		ask("the rest of that", fragment(t, 7, 64, false), false, 10)
		ask("the first again", fragment(t, 7, 0, true), true, 20)
		ask("the rest again", fragment(t, 7, 64, false), true, 20)
	}
}
