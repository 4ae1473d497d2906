package race

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/svcb"
)

func TestD1QueriesBackToBack(t *testing.T) {
	newScript(t, Config{Types: allTypes}).want("0: query host.test HTTPS+AAAA+A")
	s := newScript(t, Config{Types: allTypes, ServiceName: "_8443._https.host.test"})
	s.want("0: query _8443._https.host.test HTTPS", "0: query host.test AAAA+A")
	// Only the answer about the service name settles the service question.
	s.at(1 * ms).v6("2001:db8::1").want()
	s.at(2 * ms).https("_8443._https.host.test").want("2: connect 0 [2001:db8::1]:443")
}

func TestD2D3PreferredFamilyStartsAtOnce(t *testing.T) {
	s := newScript(t, Config{}).want("0: query host.test AAAA+A")
	s.at(3 * ms).v6("2001:db8::1").want("3: connect 0 [2001:db8::1]:443")
	s = newScript(t, Config{PreferV4: true}).want("0: query host.test AAAA+A")
	s.at(3 * ms).v4("192.0.2.1").want("3: connect 0 192.0.2.1:443")
}

func TestD4ResolutionDelay(t *testing.T) {
	s := newScript(t, Config{}).want("0: query host.test AAAA+A")
	s.at(10 * ms).v4("192.0.2.1").wantWake(60 * ms).want()
	s.at(59 * ms).tick().want()
	s.at(60 * ms).tick().want("60: connect 0 192.0.2.1:443")

	// The race waits for the service record too.
	s = newScript(t, Config{Types: allTypes}).want("0: query host.test HTTPS+AAAA+A")
	s.at(1 * ms).v6("2001:db8::1").wantWake(51 * ms).want()
	s.at(51 * ms).tick().want("51: connect 0 [2001:db8::1]:443")
}

func TestD5NegativeAnswerEndsTheWait(t *testing.T) {
	s := newScript(t, Config{}).want("0: query host.test AAAA+A")
	s.at(10 * ms).v4("192.0.2.1").want()
	s.at(20 * ms).v6().want("20: connect 0 192.0.2.1:443")
}

func TestD6LateAnswersJoin(t *testing.T) {
	s := newScript(t, Config{}).want("0: query host.test AAAA+A")
	s.v4("192.0.2.1", "192.0.2.2").at(50 * ms).tick().want("50: connect 0 192.0.2.1:443")
	// The late family takes its turn before the second IPv4 address.
	s.at(100 * ms).v6("2001:db8::1").want()
	s.at(300 * ms).tick().want("300: connect 1 [2001:db8::1]:443")
	s.at(550 * ms).tick().want("550: connect 2 192.0.2.2:443")
}

func TestD6LateAnswerAfterAllFailed(t *testing.T) {
	s := newScript(t, Config{}).want("0: query host.test AAAA+A")
	s.at(1 * ms).v6("2001:db8::1").want("1: connect 0 [2001:db8::1]:443")
	s.at(2 * ms).fail(0).want() // the answer about A is still to come
	s.at(9 * ms).v4("192.0.2.1").want("9: connect 1 192.0.2.1:443")
	s.at(10 * ms).fail(1).want("10: lose")
}

func TestD9HintsCountUntilAnswersCome(t *testing.T) {
	hint := func(v6, v4 string) svcb.Record {
		r := svcb.Record{Priority: 1, Target: "svc.test", ALPN: []string{"h2"}}
		if v6 != "" {
			r.Hints6 = []netip.Addr{netip.MustParseAddr(v6)}
		}
		if v4 != "" {
			r.Hints4 = []netip.Addr{netip.MustParseAddr(v4)}
		}
		return r
	}
	s := newScript(t, Config{Types: allTypes, Protocols: []string{"h2"}})
	s.want("0: query host.test HTTPS+AAAA+A")
	// The hint starts the race, and the target's own records are looked up.
	s.at(1*ms).https("host.test", hint("2001:db8::9", "192.0.2.9")).
		want("1: query svc.test AAAA+A", "1: connect 0 [2001:db8::9]:443")
	// The IPv4 hint is absent from the answer: dropped. The IPv6 attempt continues.
	s.at(2*ms).addrs("svc.test", dns.A, "192.0.2.10").want()
	s.at(3*ms).addrs("svc.test", dns.AAAA, "2001:db8::10").want()
	s.at(251 * ms).tick().want("251: connect 1 [2001:db8::10]:443")
	s.at(501 * ms).tick().want("501: connect 2 192.0.2.10:443")

	// AliasMode is not service information: the race waits for its target.
	s = newScript(t, Config{Types: allTypes}).want("0: query host.test HTTPS+AAAA+A")
	s.at(1*ms).https("host.test",
		svcb.Record{Target: "cdn.test"}).want("1: query cdn.test HTTPS+AAAA+A")
	s.at(2 * ms).v6("2001:db8::1").want()
	s.at(3 * ms).https("cdn.test").want() // its family is still to come
	s.at(4*ms).addrs("cdn.test", dns.AAAA, "2001:db8::2").want("4: connect 0 [2001:db8::2]:443")
	// the name's own address comes last
	s.at(254 * ms).tick().want("254: connect 1 [2001:db8::1]:443")
}

func TestD9AliasLoopEnds(t *testing.T) {
	s := newScript(t, Config{Types: allTypes})
	s.at(1*ms).https("host.test", svcb.Record{Target: "a.test"})
	s.at(2*ms).https("a.test", svcb.Record{Target: "host.test"})
	s.addrs("a.test", dns.A).addrs("a.test", dns.AAAA).v4("192.0.2.1").v6()
	s.want("0: query host.test HTTPS+AAAA+A", "1: query a.test HTTPS+AAAA+A",
		"2: connect 0 192.0.2.1:443")
	s.fail(0).want("2: lose")

	// A long chain stops at MaxNames.
	s = newScript(t, Config{Types: dns.HTTPS | dns.AAAA})
	name := "host.test"
	for i := range 2 * MaxNames {
		next := fmt.Sprintf("n%d.test", i)
		s.addrs(name, dns.AAAA).https(name, svcb.Record{Target: next})
		name = next
	}
	if queries := strings.Count(strings.Join(s.log, "\n"), "query "); queries != MaxNames {
		t.Fatalf("%d names were looked up, want %d", queries, MaxNames)
	}
	if !s.m.over {
		t.Fatal("the race continues with nothing to wait for")
	}
}

func TestNoNameEndsServiceWait(t *testing.T) {
	s := newScript(t, Config{Types: allTypes}).want("0: query host.test HTTPS+AAAA+A")
	s.step(Event{Kind: Answered,
		Answer: dns.Answer{Name: "host.test", Type: dns.AAAA, NoName: true}})
	s.want()
	s.step(Event{Kind: Answered, Answer: dns.Answer{Name: "host.test", Type: dns.A, NoName: true}})
	s.want("0: lose")
}

func TestS4Interleave(t *testing.T) {
	for _, tt := range []struct {
		v6, v4, first int
		want          string
	}{
		{3, 3, 1, "646464"},
		{3, 3, 2, "664644"},
		{1, 3, 1, "6444"},
		{3, 1, 1, "6466"},
		{4, 1, 2, "66466"},
		{0, 2, 1, "44"},
		{2, 0, 2, "66"},
	} {
		s := newScript(t, Config{FirstFamilyCount: tt.first})
		var v6, v4 []string
		for i := range tt.v6 {
			v6 = append(v6, fmt.Sprintf("2001:db8::%d", i+1))
		}
		for i := range tt.v4 {
			v4 = append(v4, fmt.Sprintf("192.0.2.%d", i+1))
		}
		s.v6(v6...).v4(v4...)
		got, last6, last4 := "", netip.Addr{}, netip.Addr{}
		for _, ep := range s.m.list {
			a, last := ep.Addr.Addr(), &last6
			if a.Is4() {
				last, got = &last4, got+"4"
			} else {
				got += "6"
			}
			if last.IsValid() && a.Less(*last) {
				t.Errorf("%v: order inside the family is lost", tt)
			}
			*last = a
		}
		if got != tt.want {
			t.Errorf("v6=%d v4=%d first=%d: got %s want %s", tt.v6, tt.v4, tt.first, got, tt.want)
		}
	}
}

func TestS5GroupsByPriority(t *testing.T) {
	shuffled := 0
	s := newScript(t, Config{Types: allTypes, Protocols: []string{"h2", "http/1.1"},
		Shuffle: func(rs []svcb.Record) { shuffled = len(rs); slices.Reverse(rs) }})
	s.https("host.test",
		svcb.Record{Priority: 2, Target: "b.test", ALPN: []string{"h2"}},
		svcb.Record{Priority: 1, Target: "h3.test", ALPN: []string{"h3"}, NoDefaultALPN: true},
		svcb.Record{Priority: 1, ALPN: []string{"h2"}, Port: 8443},
		svcb.Record{Priority: 2, Target: "c.test", ALPN: []string{"h2"}})
	s.v6("2001:db8::1").v4("192.0.2.1")
	s.addrs("b.test", dns.AAAA, "2001:db8::b").addrs("b.test", dns.A)
	s.addrs("c.test", dns.AAAA, "2001:db8::c").addrs("c.test", dns.A)
	var got []string
	for _, ep := range s.m.list {
		got = append(got, ep.Addr.String())
	}
	want := []string{"[2001:db8::1]:8443", "192.0.2.1:8443", // priority 1, own name
		"[2001:db8::c]:443", "[2001:db8::b]:443", // priority 2, in the shuffled order
		"[2001:db8::1]:443", "192.0.2.1:443"} // without a service
	if !slices.Equal(got, want) || shuffled != 3 {
		t.Errorf("shuffled %d, got %q want %q", shuffled, got, want)
	}
	// T5: h3.test speaks none of the protocols, so it is neither looked up nor contacted.
	if log := strings.Join(s.log, "\n"); strings.Contains(log, "h3.test") {
		t.Errorf("looked up a service that speaks only h3:\n%s", log)
	}
}

func TestC1C2Pacing(t *testing.T) {
	s := newScript(t, Config{}).v6("2001:db8::1", "2001:db8::2").v4("192.0.2.1", "192.0.2.2")
	s.want("0: query host.test AAAA+A", "0: connect 0 [2001:db8::1]:443")
	s.at(249 * ms).tick().want()
	s.at(250 * ms).tick().want("250: connect 1 192.0.2.1:443")
	s.at(260 * ms).fail(1).want("260: connect 2 [2001:db8::2]:443") // at once after a failure
	s.at(509 * ms).tick().want()
	s.at(510 * ms).tick().want("510: connect 3 192.0.2.2:443")
	// no attempt was cancelled before
	s.at(600*ms).finish(0).want("600: cancel 2", "600: cancel 3", "600: win 0")
}

func TestC3C4DelayBounds(t *testing.T) {
	for _, tt := range []struct{ known, want time.Duration }{
		{0, 250 * ms}, {1 * ms, 10 * ms}, {30 * ms, 30 * ms}, {5 * time.Second, 2 * time.Second},
	} {
		s := newScript(t, Config{Delay: func(netip.Addr) time.Duration { return tt.known }})
		s.v6("2001:db8::1", "2001:db8::2").wantWake(tt.want)
	}
}

func TestShortLimitReachesEveryAddress(t *testing.T) {
	s := newScript(t, Config{Limit: 200 * ms}).v6("2001:db8::1").v4("192.0.2.1")
	s.want("0: query host.test AAAA+A", "0: connect 0 [2001:db8::1]:443")
	for now := 1 * ms; now < 200*ms; now += ms {
		s.at(now).tick()
	}
	if log := strings.Join(s.log, "\n"); !strings.Contains(log, "connect 1 192.0.2.1:443") {
		t.Fatalf("the second family was never tried:\n%s", log)
	}
}

func TestC6WinnerCancelsTheRest(t *testing.T) {
	s := newScript(t, Config{}).v6("2001:db8::1").v4("192.0.2.1", "192.0.2.2").at(250 * ms).tick()
	s.want("0: query host.test AAAA+A", "0: connect 0 [2001:db8::1]:443",
		"250: connect 1 192.0.2.1:443")
	s.at(260*ms).finish(1).want("260: cancel 0", "260: win 1")
	s.at(261 * ms).finish(0).tick().want()
}

func TestC8ListIsSortedAgain(t *testing.T) {
	// Two IPv6 attempts run; IPv4 arrives and is next, before the third IPv6.
	s := newScript(t, Config{}).v6("2001:db8::1", "2001:db8::2", "2001:db8::3")
	s.at(250 * ms).tick()
	s.want("0: query host.test AAAA+A", "0: connect 0 [2001:db8::1]:443",
		"250: connect 1 [2001:db8::2]:443")
	s.at(300 * ms).v4("192.0.2.1").at(500 * ms).tick().want("500: connect 2 192.0.2.1:443")
}

func TestT1T2HandshakeDecides(t *testing.T) {
	s := newScript(t, Config{}).v6("2001:db8::1").v4("192.0.2.1").at(240 * ms).connected(0)
	s.want("0: query host.test AAAA+A", "0: connect 0 [2001:db8::1]:443") // connected, but not won
	// the handshake had its own delay
	s.at(489 * ms).tick().want()
	s.at(490 * ms).tick().want("490: connect 1 192.0.2.1:443")
	s.at(491*ms).connected(1).at(495*ms).finish(1).want("495: cancel 0", "495: win 1")
}

func TestN1NAT64(t *testing.T) {
	prefix := netip.MustParsePrefix("64:ff9b::/96")
	s := newScript(t, Config{Types: dns.AAAA | dns.Prefix64,
		NoV4: true}).want("0: query host.test AAAA+PREF64")
	s.at(1 * ms).v6().want()
	// With a prefix, A is useful, and its answer is synthesised.
	s.at(2 * ms).step(Event{Kind: Answered,
		Answer: dns.Answer{Name: "host.test", Type: dns.Prefix64,
			Prefixes: []netip.Prefix{prefix}}})
	s.want("2: query host.test A")
	s.at(3*ms).v4("192.0.2.1", "127.0.0.1").want("3: connect 0 [64:ff9b::c000:201]:443")
	s.fail(0).want("3: lose") // 127/8 was not synthesised

	// Without a prefix there is nothing to look up and nothing to try.
	s = newScript(t, Config{Types: dns.AAAA | dns.Prefix64,
		NoV4: true}).want("0: query host.test AAAA+PREF64")
	s.at(1 * ms).v6().step(Event{Kind: Answered,
		Answer: dns.Answer{Name: "host.test", Type: dns.Prefix64}})
	s.want("1: lose")

	// The sort and the interleaving treat an address of a DNS64 as IPv4.
	s = newScript(t, Config{Prefixes: []netip.Prefix{prefix}, NoV4: true})
	s.v6("64:ff9b::c000:201", "64:ff9b::c000:202", "2001:db8::1").v4()
	for _, ep := range s.m.list {
		if syn := strings.HasPrefix(ep.Addr.String(), "[64:"); syn != ep.Known.Is4() ||
			!ep.Addr.Addr().Is6() {
			t.Errorf("%v known as %v", ep.Addr, ep.Known)
		}
	}
	// With a route for IPv4, it is reached as IPv4.
	s = newScript(t, Config{Prefixes: []netip.Prefix{prefix}})
	s.v6("64:ff9b::c000:201").want("0: query host.test AAAA+A", "0: connect 0 192.0.2.1:443")
}

func TestAbort(t *testing.T) {
	s := newScript(t, Config{}).v6("2001:db8::1").want("0: query host.test AAAA+A",
		"0: connect 0 [2001:db8::1]:443")
	s.step(Event{Kind: Abort})
	s.want("0: cancel 0", "0: lose")
}

func TestEndpointsAreBounded(t *testing.T) {
	var many []string
	for i := range 2 * MaxEndpoints {
		many = append(many, fmt.Sprintf("2001:db8::%x", i+1))
	}
	s := newScript(t, Config{}).v6(many...)
	if n := len(s.m.list); n != MaxEndpoints {
		t.Errorf("%d endpoints, want %d", n, MaxEndpoints)
	}
}

// TestRunningIsBounded: a name with hundreds of silent addresses takes few descriptors. After
// a failure the next attempt begins.
func TestRunningIsBounded(t *testing.T) {
	s := newScript(t, Config{Limit: time.Minute})
	var many []string
	for i := range 4 * MaxRunning {
		many = append(many, fmt.Sprintf("2001:db8::%x", i+1))
	}
	s.v6(many...).v4()
	for range 4 * MaxRunning {
		s.at(s.now + MaxAttemptDelay).tick()
	}
	connects := func() (n int) {
		for _, line := range s.log {
			if strings.Contains(line, ": connect ") {
				n++
			}
		}
		return n
	}
	if n := connects(); n != MaxRunning {
		t.Fatalf("%d attempts run", n)
	}
	s.fail(3).tick()
	if n := connects(); n != MaxRunning+1 {
		t.Errorf("%d attempts after a failure", n)
	}
}
