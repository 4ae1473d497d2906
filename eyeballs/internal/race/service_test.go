package race

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/svcb"
)

func TestC7RemovedAddress(t *testing.T) {
	first, second := netip.MustParseAddr("2001:db8::8"), netip.MustParseAddr("2001:db8::9")
	s := newScript(t, Config{Types: allTypes})
	s.https("host.test", svcb.Record{Priority: 1, Target: "svc.test",
		Hints6: []netip.Addr{first, second}})
	s.want("0: query host.test HTTPS+AAAA+A", "0: query svc.test AAAA+A",
		"0: connect 0 [2001:db8::8]:443")
	// No answer confirms a hint: the running attempt continues and may win, the untried hint is
	// dropped.
	s.at(5*ms).addrs("svc.test", dns.AAAA).addrs("svc.test", dns.A).v6().v4().want()
	s.at(250 * ms).tick().want()
	s.at(300 * ms).finish(0).want("300: win 0")
}

func TestS6ECHDoesNotGroup(t *testing.T) {
	s := newScript(t, Config{Types: allTypes})
	s.https("host.test", svcb.Record{Priority: 1, Target: "a.test"},
		svcb.Record{Priority: 2, Target: "b.test", ECH: []byte("config")})
	s.addrs("a.test", dns.AAAA, "2001:db8::a").addrs("b.test", dns.AAAA, "2001:db8::b")
	var got []string
	for _, ep := range s.m.list {
		got = append(got, ep.Addr.Addr().String())
	}
	if !slices.Equal(got, []string{"2001:db8::a", "2001:db8::b"}) {
		t.Errorf("got %q: a record with ECH must not lead for that alone", got)
	}
}

func TestT5UnknownProtocols(t *testing.T) {
	// The only service speaks only h3: it is neither looked up nor contacted. The name itself is,
	// without a service.
	s := newScript(t, Config{Types: allTypes, Protocols: []string{"h2", "http/1.1"}})
	s.https("host.test", svcb.Record{Priority: 1, Target: "h3.test", ALPN: []string{"h3"},
		NoDefaultALPN: true})
	s.v6("2001:db8::1").v4()
	s.want("0: query host.test HTTPS+AAAA+A", "0: connect 0 [2001:db8::1]:443")
	// With the default protocol it has one in common.
	s = newScript(t, Config{Types: allTypes, Protocols: []string{"h2", "http/1.1"}})
	s.https("host.test", svcb.Record{Priority: 1, Target: "h3.test", ALPN: []string{"h3"}})
	if log := strings.Join(s.log, "\n"); !strings.Contains(log, "query h3.test AAAA+A") {
		t.Errorf("the service was not followed:\n%s", log)
	}
}

// TestHintsAreUsedWhileAddressesAreLate: hints count as answers. A hint of the preferred family
// begins the race at once, one of the other family after the Resolution Delay (HEv3 section 4.2.1).
func TestHintsAreUsedWhileAddressesAreLate(t *testing.T) {
	s := newScript(t, Config{Types: allTypes})
	s.https("host.test", svcb.Record{Priority: 1,
		Hints6: []netip.Addr{netip.MustParseAddr("2001:db8::8")}})
	s.want("0: query host.test HTTPS+AAAA+A", "0: connect 0 [2001:db8::8]:443")
	s = newScript(t, Config{Types: allTypes})
	s.https("host.test", svcb.Record{Priority: 1,
		Hints4: []netip.Addr{netip.MustParseAddr("192.0.2.8")}})
	s.want("0: query host.test HTTPS+AAAA+A")
	s.at(50 * ms).tick().want("50: connect 0 192.0.2.8:443")
}
