package soft

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
)

// TestFloodOpensNoRate: when a flood has filled all buckets, sources that have none share one, and
// a source that has one keeps it. When buckets are full again, their places are free.
func TestFloodOpensNoRate(t *testing.T) {
	e := load(t, Options{}, "add 1 allow udp from any to any limit-rate 1/s src-addr burst 2\n")
	e.rates.most = 4
	w := e.Worker(0)
	send := func(at float64, from string) firewall.Reason {
		return w.Evaluate(in(at), udp(t, from+":1", "2.2.2.2:2")).Reason
	}
	if r := send(1, "1.1.1.1"); r != firewall.ReasonRule {
		t.Fatalf("the first packet: %v", r)
	}
	passed := 0
	for k := range 200 {
		switch r := send(1, fmt.Sprintf("3.1.1.%d", k+1)); {
		case r == firewall.ReasonRule:
			passed++
		case r != firewall.ReasonRatesFull:
			t.Fatalf("packet %d of the flood: %v", k, r)
		}
	}
	if want := 3 + 2; passed != want { // the places that were free, and the shared bucket
		t.Errorf("%d packets of the flood passed, not %d", passed, want)
	}
	if n := e.RatesFull(); n != 200-3 {
		t.Errorf("%d packets without a place, not %d", n, 200-3)
	}
	if r := send(1, "1.1.1.1"); r != firewall.ReasonRule {
		t.Errorf("the second packet of the source that was there before: %v", r)
	}
	if r := send(1, "1.1.1.1"); r != firewall.ReasonRate {
		t.Errorf("its third packet: %v", r)
	}
	for k := range 4 {
		if r := send(4, fmt.Sprintf("4.1.1.%d", k+1)); r != firewall.ReasonRule {
			t.Errorf("a source after the flood: %v", r)
		}
	}
	if n := e.RatesFull(); n != 200-3 {
		t.Errorf("%d packets without a place after the flood", n)
	}
}

// TestRatesFullWithExceedNext: without a place, a rule with exceed next lets the next rule
// decide.
func TestRatesFullWithExceedNext(t *testing.T) {
	e := load(t, Options{},
		"add 1 allow udp from any to any limit-rate 1/h src-addr burst 1 exceed next\n"+
			"add 2 deny udp from any to any\n")
	e.rates.most = 1
	for k, want := range []uint16{1, 1, 2, 2} { // the place, the shared bucket, none
		v := e.Worker(0).Evaluate(in(1), udp(t, fmt.Sprintf("1.1.1.%d:1", k+1), "2.2.2.2:2"))
		if v.Rule != want || v.Pass != (want == 1) || v.Reason != firewall.ReasonRule {
			t.Errorf("packet %d: %+v", k, v)
		}
	}
}

// TestLoadKeepsRates: a rule that stays keeps its buckets, one that changes begins with full ones.
func TestLoadKeepsRates(t *testing.T) {
	rules := "add 10 allow udp from any to any 1 limit-rate 1/h src-addr burst 1\n" +
		"add 20 allow udp from any to any 2 limit-rate 1/h burst 1\n"
	e := load(t, Options{}, "add 1 count ip from any to any\nadd 2 count tcp from any to any\n"+
		rules)
	check := func(when string, want firewall.Reason) {
		t.Helper()
		for _, to := range []string{"2.2.2.2:1", "2.2.2.2:2"} {
			if v := e.Worker(0).Evaluate(in(1), udp(t, "1.1.1.1:1", to)); v.Reason != want {
				t.Errorf("%s: %s: %v, not %v", when, to, v.Reason, want)
			}
		}
	}
	check("first", firewall.ReasonRule)
	if err := e.Load(compiled(t, rules)); err != nil {
		t.Fatal(err)
	}
	check("after a load", firewall.ReasonRate)
	e.nextID = maxIDs + 1
	if err := e.Load(compiled(t, rules+"add 30 count ip from any to any\n")); err != nil {
		t.Fatal(err)
	}
	check("when numbers ran out", firewall.ReasonRate)
	if err := e.Load(compiled(t, strings.ReplaceAll(rules, "burst 1", "burst 2"))); err != nil {
		t.Fatal(err)
	}
	if n := len(e.rates.all) + len(e.rates.whole); n != 0 {
		t.Errorf("%d buckets of rules that are gone", n)
	}
	check("after a change", firewall.ReasonRule)
}

// TestRateOfFirstRule: the first rule may have the id 0, so that its bucket for packets without
// ports has a key of zeros. A new bucket takes nothing from it.
func TestRateOfFirstRule(t *testing.T) {
	rs, now := newRates(), time.Hour
	once := charge{cost: time.Hour, depth: time.Hour, masked: true, empty: firewall.ReasonRate}
	for n, c := range []struct {
		key  rateKey
		want firewall.Reason
	}{
		{rateKey{}, firewall.ReasonRule},
		{rateKey{ports: 1}, firewall.ReasonRule},
		{rateKey{}, firewall.ReasonRate},
		{rateKey{ports: 1}, firewall.ReasonRate},
	} {
		if r := rs.take(c.key, once, now); r != c.want {
			t.Errorf("packet %d: %v, not %v", n, r, c.want)
		}
	}
}

// TestRateOfManyWorkers: workers together pass what one would.
func TestRateOfManyWorkers(t *testing.T) {
	for _, rule := range []string{"limit-rate 1/h src-addr burst 24", "limit-rate 1/h burst 24"} {
		e := load(t, Options{Workers: 4}, "add 1 allow udp from any to any "+rule+"\n")
		var passed atomic.Int32
		var all sync.WaitGroup
		pkt := udp(t, "1.1.1.1:1", "2.2.2.2:2")
		for n := range 4 {
			all.Go(func() {
				for range 100 {
					if e.Worker(n).Evaluate(in(1), pkt).Pass {
						passed.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := passed.Load(); n != 24 {
			t.Errorf("%s: %d packets passed, not 24", rule, n)
		}
	}
}

// TestPolicyTakesNoTokens: a question of policy is about a packet that is not too much, and neither
// it nor an explanation takes a token.
func TestPolicyTakesNoTokens(t *testing.T) {
	e := load(t, Options{}, "add 1 allow udp from any to any limit-rate 1/h burst 1\n")
	pkt := udp(t, "1.1.1.1:1", "2.2.2.2:2")
	for range 3 {
		if x := e.Explain(in(1), pkt); !x.Verdict.Pass {
			t.Errorf("before the packet: %+v", x)
		}
	}
	if v := e.Worker(0).Evaluate(in(1), pkt); !v.Pass {
		t.Errorf("the packet: %+v", v)
	}
	x := e.Explain(in(1), pkt)
	if x.Verdict.Reason != firewall.ReasonRate || len(x.Tries) != 1 ||
		x.Tries[0].Outcome != FailedRate {
		t.Errorf("after the packet: %+v", x)
	}
	from, to := netip.MustParseAddrPort("1.1.1.1:1"), netip.MustParseAddrPort("2.2.2.2:2")
	if x := e.Check(in(1), 17, from, to); !x.Verdict.Pass {
		t.Errorf("a question of policy: %+v", x)
	}
}
