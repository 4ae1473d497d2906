package kernel

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet/build"
)

// udpAt evaluates a UDP packet to port 53 at a time in seconds.
func (e *Engine) udpAt(t *testing.T, seconds int, from string) firewall.Verdict {
	t.Helper()
	src, dst := netip.MustParseAddr(from), netip.MustParseAddr("10.0.0.1")
	var ip build.Layer = build.IPv4{Src: src, Dst: dst}
	if src.Is6() {
		ip = build.IPv6{Src: src, Dst: netip.MustParseAddr("fd00::1")}
	}
	b := enginetest.Packet(t, ip, build.UDP{SrcPort: 1000, DstPort: 53})
	v, err := e.Evaluate(&firewall.Input{Hook: firewall.Hook{Recv: 1},
		Now: time.Duration(seconds) * time.Second}, b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestFloodOpensNoRate: when a flood has filled all buckets, sources that have none share one, and
// a source that has one keeps it. When buckets are full again, their places are free. With one set,
// both places of a tuple are in that.
func TestFloodOpensNoRate(t *testing.T) {
	for _, sets := range []uint32{1, 3} {
		e := newEngine(t)
		e.config.RateSets = sets
		if err := e.Load(compile(t, "add 1 allow udp from any to any limit-rate 1/s src-addr "+
			"burst 2\n")); err != nil {
			t.Fatal(err)
		}
		if v := e.udpAt(t, 1, "1.1.1.1"); !v.Pass {
			t.Fatalf("the first packet: %+v", v)
		}
		passed, full := 0, uint64(0)
		for k := range 500 {
			switch v := e.udpAt(t, 1, fmt.Sprintf("3.1.%d.%d", k/250, k%250+1)); {
			case v.Pass:
				passed++
			case v.Reason != firewall.ReasonRatesFull:
				t.Fatalf("packet %d of the flood: %+v", k, v)
			default:
				full++
			}
		}
		if want := int(sets)*ways - 1 + 2; passed != want { // places that were free, and two shared
			t.Errorf("%d sets: %d packets of the flood passed, not %d", sets, passed, want)
		}
		s, err := e.Stats()
		if err != nil || s.RatesFull != full+2 {
			t.Errorf("%d packets without a place, not %d (%v)", s.RatesFull, full+2, err)
		}
		if v := e.udpAt(t, 1, "1.1.1.1"); !v.Pass {
			t.Errorf("the second packet of the source that was there before: %+v", v)
		}
		if v := e.udpAt(t, 1, "1.1.1.1"); v.Reason != firewall.ReasonRate {
			t.Errorf("its third packet: %+v", v)
		}
		// With the one that was there they fit into one set, wherever their hashes lead.
		for k := range ways - 1 {
			if v := e.udpAt(t, 4, fmt.Sprintf("4.1.1.%d", k+1)); !v.Pass {
				t.Errorf("a source after the flood: %+v", v)
			}
		}
		if s, _ := e.Stats(); s.RatesFull != full+2 {
			t.Errorf("%d packets without a place after the flood", s.RatesFull)
		}
	}
}

// TestRatesFullWithExceedNext: without a place, a rule with exceed next lets the next one
// decide.
func TestRatesFullWithExceedNext(t *testing.T) {
	e := newEngine(t)
	e.config.RateSets = 1
	if err := e.Load(compile(t, "add 1 allow udp from any to any limit-rate 1/h src-addr burst 1 "+
		"exceed next\nadd 2 deny udp from any to any\n")); err != nil {
		t.Fatal(err)
	}
	for k := range 12 { // eight places, the shared bucket, none
		v := e.udpAt(t, 1, fmt.Sprintf("1.1.1.%d", k+1))
		want := uint16(1)
		if k > ways {
			want = 2
		}
		if v.Rule != want || v.Pass != (want == 1) || v.Reason != firewall.ReasonRule {
			t.Errorf("packet %d: %+v", k, v)
		}
	}
}

// TestIPv6SourcesCountByTheirPrefix: all addresses of a /64 have one bucket.
func TestIPv6SourcesCountByTheirPrefix(t *testing.T) {
	e := newEngine(t)
	if err := e.Load(compile(t, "add 1 allow udp from any to any limit-rate 1/h src-addr burst "+
		"2\n")); err != nil {
		t.Fatal(err)
	}
	for k, from := range []string{"fd01::1", "fd01::2", "fd01::3", "fd01:0:0:1::1"} {
		if v := e.udpAt(t, 1, from); v.Pass != (k != 2) {
			t.Errorf("%s: %+v", from, v)
		}
	}
}

const reloadedRates = "add 10 allow udp from 1.0.0.0/8 to any limit-rate 1/h src-addr burst 1\n" +
	"add 20 allow udp from 2.0.0.0/8 to any limit-rate 1/h burst 1\n"

// checkRates has a packet evaluated by each of reloadedRates.
func (e *Engine) checkRates(t *testing.T, when string, want firewall.Reason) {
	t.Helper()
	for _, from := range []string{"1.1.1.1", "2.1.1.1"} {
		if v := e.udpAt(t, 1, from); v.Reason != want {
			t.Errorf("%s: %s: %v, not %v", when, from, v.Reason, want)
		}
	}
}

// TestLoadKeepsRates: a rule that stays keeps its buckets, also under the next agent. One that
// changes begins with full ones, also at an index that another rule with a rate had.
func TestLoadKeepsRates(t *testing.T) {
	g := newPairLab(t, "add 1 count ip from any to any\n"+reloadedRates)
	g.engine.checkRates(t, "first", firewall.ReasonRule)
	load := func(rules string) {
		t.Helper()
		if err := g.engine.Load(compile(t, rules)); err != nil {
			t.Fatal(err)
		}
	}
	load(reloadedRates)
	g.engine.checkRates(t, "after a load", firewall.ReasonRate)
	g.reopen(t)
	load(reloadedRates)
	g.engine.checkRates(t, "under the next agent", firewall.ReasonRate)
	if err := g.engine.Zero(0); err != nil {
		t.Fatal(err)
	}
	g.engine.checkRates(t, "after zero", firewall.ReasonRate)
	load("add 1 count ip from any to any\n")
	g.engine.ids.next = 0
	load(strings.ReplaceAll(reloadedRates, "burst 1", "burst 2"))
	for range 2 {
		g.engine.checkRates(t, "after a change", firewall.ReasonRule)
	}
	g.engine.checkRates(t, "after a change, the third", firewall.ReasonRate)
}

// TestRateOfManyCPUs: CPUs that meet one source at once let pass what one would, never more. When
// both make its bucket at once, one token may be lost (docs/design/0010-rates.md).
func TestRateOfManyCPUs(t *testing.T) {
	const burst = 24
	for _, by := range []string{"src-addr", ""} {
		e := newEngine(t)
		if err := e.Load(compile(t, fmt.Sprintf("add 1 allow udp from any to any limit-rate 1/h "+
			"%s "+
			"burst %d\n", by, burst))); err != nil {
			t.Fatal(err)
		}
		before := uint64(0)
		for n := range 300 {
			frame := udpFrame(t, n, false)
			var both sync.WaitGroup
			for range 2 {
				both.Go(func() {
					if _, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame,
						Repeat: 2 * burst}); err != nil {
						t.Error(err)
					}
				})
			}
			both.Wait()
			rules, err := e.Rules()
			if err != nil {
				t.Fatal(err)
			}
			most, least := uint64(burst), uint64(burst-1)
			if by == "" && n > 0 {
				most, least = 0, 0
			} else if by == "" { // there is no place to make
				least = most
			}
			if got := rules[0].Packets - before; got < least || got > most {
				t.Fatalf("by %q: source %d: %d packets passed, not %d", by, n, got, most)
			}
			before = rules[0].Packets
		}
	}
}

// TestRatesOnEveryPath: neither the verdict cache nor the fast path lets a packet go round its
// rate.
func TestRatesOnEveryPath(t *testing.T) {
	for name, rules := range map[string]string{
		"plain":     "add 10 allow udp from any to any 53 limit-rate 1/h burst 3\n",
		"condition": "add 10 allow udp from any to any 53 recv any limit-rate 1/h burst 3\n",
		"keep-state": "add 1 check-state\nadd 10 allow udp from any to any 53 limit-rate 1/h " +
			"burst 3 keep-state\n",
		"next": "add 10 allow udp from any to any 53 limit-rate 1/h burst 3 exceed next\n" +
			"add 20 deny udp from any to any\n",
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			if err := e.Load(compile(t, rules)); err != nil {
				t.Fatal(err)
			}
			passed := 0
			for n := range 20 {
				ret, err := e.objects.WeirIn.Run(&ebpf.RunOptions{Data: udpFrame(t, n/2, false)})
				if err != nil {
					t.Fatal(err)
				}
				if int32(ret) == -1 { // TC_ACT_UNSPEC
					passed++
				}
			}
			want := 3
			if name == "keep-state" {
				want = 6 // two packets of each of three flows
			}
			if passed != want {
				t.Errorf("%d packets passed, not %d", passed, want)
			}
		})
	}
}

// TestCookieTakesOneToken: a connection that opens by a SYN cookie takes one token, for its SYN.
func TestCookieTakesOneToken(t *testing.T) {
	t.Parallel()
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = 20000, 2000, 500
	g := newPairLabWith(t, webRules, o)
	listenTCP(t, g.server, "[::]:8080")
	if err := g.engine.Load(compile(t, "add check-state\nadd allow tcp from 10.0.0.2 to me 8080 "+
		"setup limit-rate 1/h burst 1 keep-state\nadd allow tcp from any to me 8080 setup "+
		"keep-state\n")); err != nil {
		t.Fatal(err)
	}
	f := g.floodUntilCookies(t, 8080)
	if err := g.echoes("10.0.0.1:8080", 1000); err != nil {
		t.Errorf("the first connection: %v", err)
	}
	kept := g.stats(t).Cookies.Redeemed
	if err := g.echoesFor("10.0.0.1:8080", 1, 3*time.Second); err == nil {
		t.Error("a second connection")
	}
	stopFlood(t, f)
	if kept != 1 {
		t.Errorf("%d connections by a cookie", kept)
	}
}
