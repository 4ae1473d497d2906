package eyeballs

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	h, now := &History{}, time.Now()
	v6, v4 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")
	record := func(r result) *hostEntry {
		t.Helper()
		r.network, r.address, r.at = 1, "x", now
		h.record(&r)
		e, ok := h.lookup(1, "x")
		if !ok {
			t.Fatal("not recorded")
		}
		return &e
	}
	h.lookup(1, "x")
	e := record(result{outcomes: []outcome{{addr: v6, down: true},
		{addr: v4, won: true, rtt: 40 * time.Millisecond}}})
	if !e.isDown(v6, now) || e.isDown(v4, now) || !e.familyDown(false, now) ||
		e.attemptDelay(v4) != 120*time.Millisecond || e.rtt(v4) != 40*time.Millisecond {
		t.Errorf("%+v", e)
	}
	// A new address of a family that is down counts as down too. After a minute it does not.
	if other := netip.MustParseAddr("2001:db8::2"); !e.isDown(other, now) ||
		e.isDown(other, now.Add(downTime)) || e.isDown(v6, now.Add(downTime)) {
		t.Error("the family")
	}
	// A success ends it at once.
	e = record(result{outcomes: []outcome{{addr: v6, won: true, rtt: time.Millisecond}}})
	if e.isDown(v6, now) || e.familyDown(false, now) {
		t.Errorf("%+v", e)
	}
	// No dial waits for a family whose answer was late. Its addresses are used once they are known.
	v4Won := []outcome{{addr: v4, won: true, rtt: time.Millisecond}}
	e = record(result{outcomes: v4Won, unresponsiveV6: true})
	if e.waitFor(false, now) || !e.waitFor(true, now) || e.isDown(v6, now) ||
		e.familyDown(false, now) {
		t.Errorf("%+v", e)
	}
	if e = record(result{outcomes: v4Won}); !e.waitFor(false, now) {
		t.Errorf("%+v", e)
	}
}

// TestHistoryOfANetwork: a dial does not record what it learned on another network, and a change of
// the network empties everything.
func TestHistoryOfANetwork(t *testing.T) {
	h := &History{}
	won := []outcome{{addr: netip.MustParseAddr("2001:db8::1"), won: true}}
	h.lookup(1, "x")
	h.record(&result{network: 1, address: "x", outcomes: won})
	h.record(&result{network: 2, address: "y", outcomes: won})
	if _, ok := h.lookup(1, "x"); !ok {
		t.Error("not recorded")
	}
	if _, ok := h.lookup(1, "y"); ok {
		t.Error("recorded from another network")
	}
	if _, ok := h.lookup(2, "x"); ok {
		t.Error("kept across networks")
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := &History{}
	h.lookup(1, "x")
	record := func(address string, a netip.Addr) {
		h.record(&result{network: 1, address: address, outcomes: []outcome{{addr: a, won: true}}})
	}
	for i := range 2 * maxHosts {
		record(fmt.Sprint(i), netip.IPv6Loopback())
	}
	for i := range 2 * maxHostAddrs {
		record("x", netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	e, _ := h.lookup(1, "x")
	if len(h.hosts) > maxHosts || len(e.addrs) > maxHostAddrs {
		t.Errorf("%d hosts, %d addresses", len(h.hosts), len(e.addrs))
	}
}

// TestHistoryOrdersByRTT: among equals the address with the shortest round-trip time comes first,
// then those of unknown time (RFC 8305 section 4). Neither the order of the answers nor which won
// last changes that. A measured time counts no more once the address has kept a dial waiting.
func TestHistoryOrdersByRTT(t *testing.T) {
	f := newFixture(t, "")
	to := target{network: "tcp", address: "host.test:1", host: "host.test", port: 1}
	order := func() (last []byte) {
		r := newRun(t.Context(), f.Dialer, to)
		defer r.cancel()
		eps := endpoints(ip("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"))
		r.sort(eps)
		for _, ep := range eps {
			b := ep.Addr.Addr().As4()
			last = append(last, b[3])
		}
		return last
	}
	record := func(outcomes ...outcome) {
		f.History.record(&result{network: 7, address: to.address, outcomes: outcomes,
			at: time.Now().Add(-2 * downTime)})
	}
	addr := func(b byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, b}) }
	const ms = time.Millisecond
	expect := func(when string, want ...byte) {
		t.Helper()
		if got := order(); string(got) != string(want) {
			t.Errorf("%s: order %v, want %v", when, got, want)
		}
	}
	expect("without a history", 1, 2, 3, 4)
	record(outcome{addr: addr(4), won: true, rtt: 20 * ms})
	record(outcome{addr: addr(3), won: true, rtt: 30 * ms})
	record(outcome{addr: addr(2), won: true, rtt: 40 * ms})
	expect("with round-trip times", 4, 3, 2, 1)
	record(outcome{addr: addr(4), down: true}, outcome{addr: addr(3), won: true, rtt: 30 * ms})
	expect("after the fastest kept a dial waiting", 3, 2, 1, 4)
	record(outcome{addr: addr(4), won: true, rtt: 20 * ms})
	expect("after it answered again", 4, 3, 2, 1)
}
