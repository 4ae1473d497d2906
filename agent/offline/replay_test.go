package offline

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/pcap"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// sent is a packet of a capture, and when it came.
type sent struct {
	at     time.Duration
	layers []build.Layer
}

// query is a DNS query from a port.
func query(at time.Duration, from string, port uint16) sent {
	return sent{at, []build.Layer{build.IPv4{Src: netip.MustParseAddr(from),
		Dst: netip.MustParseAddr("192.0.2.1")}, build.UDP{SrcPort: port, DstPort: 53}}}
}

// replayed runs a replay over packets of raw IP, on a host that has 192.0.2.1/24 unless the replay
// says otherwise, and returns the reasons of those that were dropped.
func replayed(t *testing.T, r Replay, packets []sent) (*Summary, []firewall.Reason) {
	t.Helper()
	var capture bytes.Buffer
	w, err := pcap.NewWriter(&capture, packet.LinkRaw)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range packets {
		b, err := build.Packet(s.layers...)
		if err == nil {
			err = w.Write(pcap.Record{Time: time.Unix(1700000000, 0).Add(s.at), Data: b,
				Len: len(b), Link: packet.LinkRaw})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var dropped []firewall.Reason
	r.Name = "rules"
	if r.Me == nil {
		r.Me = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}
	}
	s, err := r.Run(t.Context(), &capture, func(v *PacketVerdict) error {
		if !v.Verdict.Pass {
			dropped = append(dropped, v.Verdict.Reason)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, dropped
}

// TestReplayEndsStates: states that have expired hold no place in a limit, however few packets the
// capture has.
func TestReplayEndsStates(t *testing.T) {
	t.Parallel()
	var packets []sent
	for k := range 10 {
		packets = append(packets, query(time.Duration(k)*time.Minute, "198.51.100.7",
			uint16(1000+k)))
	}
	rules := Replay{Text: "add 10 allow udp from any to me 53 in limit src-addr 3\n"}
	s, dropped := replayed(t, rules, packets)
	if s.Passed != 10 || s.States != 1 {
		t.Errorf("%d of 10 passed, dropped %v, %d states", s.Passed, dropped, s.States)
	}
	for k := range packets { // all at once
		packets[k].at = 0
	}
	s, dropped = replayed(t, rules, packets)
	if s.Passed != 3 || s.States != 3 || dropped[0] != firewall.ReasonLimit {
		t.Errorf("at once: %d passed, dropped %v, %d states", s.Passed, dropped, s.States)
	}
}

// TestReplayWithoutIface: the host's addresses belong to the interface of the capture, whether or
// not it is named.
func TestReplayWithoutIface(t *testing.T) {
	t.Parallel()
	const text = "add 10 deny ip from any to any not antispoof in\n" +
		"add 20 allow udp from any to any 53 recv 192.0.2.1\n"
	packets := []sent{query(0, "192.0.2.9", 1000), query(0, "192.0.2.10", 1000)}
	for _, iface := range []string{"", "eth0"} {
		s, dropped := replayed(t, Replay{Text: text, Iface: iface}, packets)
		if s.Passed != 2 {
			t.Errorf("%q: %d of 2 passed, dropped %v", iface, s.Passed, dropped)
		}
	}
}

// TestReplayLocalRoutes: a network without an address is one to which a local route leads. Packets
// from it go out.
func TestReplayLocalRoutes(t *testing.T) {
	t.Parallel()
	const text = "add 20 allow udp from any to me 53 in\nadd 30 allow udp from me to any out\n"
	packets := []sent{query(0, "192.0.2.9", 1000), query(0, "203.0.113.10", 1000)}
	for me, want := range map[string]int{"192.0.2.0/28": 2, "192.0.2.0/24": 2, "192.0.2.1/24": 2,
		"192.0.2.1/32": 2, "192.0.2.0/31": 0, "203.0.113.0/24": 1, "198.51.100.0/24": 0} {
		for _, iface := range []string{"", "eth0"} {
			s, dropped := replayed(t, Replay{Text: text, Iface: iface,
				Me: []netip.Prefix{netip.MustParsePrefix(me)}}, packets)
			if s.Passed != want {
				t.Errorf("%s, %q: %d passed, dropped %v", me, iface, s.Passed, dropped)
			}
		}
	}
}
