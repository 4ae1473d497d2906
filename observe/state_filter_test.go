package observe

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// TestStateFilter: a filter picks states by what they have, with the side that began as the source,
// and refuses what only packets have.
func TestStateFilter(t *testing.T) {
	end := netip.MustParseAddrPort
	states := []firewall.State{
		{Proto: packet.ProtoTCP, From: end("192.0.2.1:4000"), To: end("192.0.2.2:22"), Rule: 100},
		{Proto: packet.ProtoUDP, From: end("192.0.2.2:5000"), To: end("192.0.2.1:53"), Rule: 200},
		{Proto: packet.ProtoTCP, From: end("[2001:db8::1]:4000"), To: end("[2001:db8::2]:80"),
			Rule: 300},
	}
	names := &Names{Table: func(name string, a netip.Addr) (uint32, bool) {
		return 0, name == "bad" && a == netip.MustParseAddr("192.0.2.2")
	}, Me: func(a netip.Addr) bool { return a == netip.MustParseAddr("2001:db8::2") }}
	for filter, want := range map[string]string{"": "abc", "tcp": "ac", "from 192.0.2.1": "a",
		"to 192.0.2.1": "b", "to any 22": "a", "udp to any 53": "b", "rule 200-300": "bc",
		"rule 100 udp": "", "from table(bad)": "b", "rule 300 ip4": "",
		"from any to me": "c", "ip6": "c", "tcp from not 192.0.2.1": "c"} {
		f, err := ParseStateFilter(filter, nil)
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		got := ""
		for i := range states {
			if f.MatchState(&states[i], names) {
				got += string(rune('a' + i))
			}
		}
		if got != want {
			t.Errorf("%s picks %q, want %q", filter, got, want)
		}
	}
	for _, filter := range []string{"start", "drop tcp", "reason limit", "in via eth0", "recv eth0",
		"tcp tcpflags syn", "iplen 60", "tcp established", "nonsense", "tcp keep-state"} {
		if f, err := ParseStateFilter(filter, nil); err == nil {
			t.Errorf("%q is %+v", filter, f)
		}
	}
}
