package soft

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// each runs f for every worker of an engine at the same time.
func each(e *Engine, f func(i int, w *Worker)) {
	var all sync.WaitGroup
	for i := range e.workers {
		all.Go(func() { f(i, e.Worker(i)) })
	}
	all.Wait()
}

// live counts the states that the shards hold.
func live(e *Engine) int {
	n := 0
	for _, s := range e.shards {
		s.hold()
		n += s.established.used + s.halfOpen.used
		s.release()
	}
	return n
}

// TestMaximumIsKept lets four workers make states far beyond the maximum: it is never exceeded by
// more than 5 %, and reached nearly.
func TestMaximumIsKept(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen = 10_000, 40_000
	e := load(t, Options{Options: o, Workers: 4}, "add 1 allow udp from any to any keep-state\n")
	var most atomic.Int64
	each(e, func(i int, w *Worker) {
		pkt := udp(t, "1.1.1.1:1", "2.2.2.2:2")
		for k := range 20_000 {
			binary.BigEndian.PutUint32(pkt[12:], uint32(i<<24|k))
			w.Evaluate(in(1), pkt)
			if k%500 == 0 {
				n := int64(live(e))
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
			}
		}
	})
	if n := most.Load(); n > 10_500 || n < 9_000 {
		t.Errorf("at most %d states lived, want about 10000 and never more than 10500", n)
	}
	// An expired state makes space again, whichever worker made it.
	e.Sweep(20 * time.Second)
	if n := live(e); n != 0 {
		t.Errorf("%d states after the sweep", n)
	}
	if v := e.Worker(0).Evaluate(in(20),
		udp(t, "1.1.1.1:1", "2.2.2.2:2")); v.State != firewall.StateNew {
		t.Errorf("after the sweep: %+v", v)
	}
}

// TestLimitIsExact lets four workers make states of one track at the same time.
func TestLimitIsExact(t *testing.T) {
	e := load(t, Options{Workers: 4},
		"add 1 check-state\nadd 2 allow udp from any to any limit dst-port 100\n")
	var made atomic.Int64
	round := func(now float64, first int) {
		each(e, func(i int, w *Worker) {
			pkt := udp(t, "1.1.1.1:1", "2.2.2.2:2")
			for k := range 500 {
				binary.BigEndian.PutUint32(pkt[12:], uint32(i<<24|(first+k)))
				if v := w.Evaluate(in(now), pkt); v.State == firewall.StateNew {
					made.Add(1)
				} else if v.Reason != firewall.ReasonLimit {
					t.Errorf("%+v", v)
				}
			}
		})
	}
	round(1, 1)
	if n := made.Load(); n != 100 {
		t.Errorf("%d states, the limit is 100", n)
	}
	e.Sweep(60 * time.Second)
	round(60, 1000)
	if n := made.Load(); n != 200 {
		t.Errorf("%d states after two rounds of 100", n)
	}
}

// TestFloodIntoOneTrack lets the states of four workers drive each other out of one track: it
// counts those that live, and in the end none.
func TestFloodIntoOneTrack(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxHalfOpen = 256
	e := load(t, Options{Options: o, Workers: 4},
		"add 1 check-state\nadd 2 allow udp from any to any limit dst-port 1000\n")
	each(e, func(i int, w *Worker) {
		pkt := udp(t, "1.1.1.1:1", "2.2.2.2:2")
		for k := range 5_000 {
			binary.BigEndian.PutUint32(pkt[12:], uint32(i<<24|k))
			if v := w.Evaluate(in(1), pkt); v.State != firewall.StateNew {
				t.Errorf("%+v", v)
			}
		}
	})
	if n, counted := live(e), countOf(e.tracks.all[0].held.Load()); n < 200 || int(counted) != n {
		t.Errorf("%d states live, the track counts %d", n, counted)
	}
	e.Sweep(60 * time.Second)
	if n := countOf(e.tracks.all[0].held.Load()); n != 0 {
		t.Errorf("after the sweep the track counts %d", n)
	}
}

// TestTracksAreReused has more tuples than tracks, one after the other, with a cache that remembers
// tracks given to others since.
func TestTracksAreReused(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxTracks = 8
	e := load(t, Options{Options: o},
		"add 1 check-state\nadd 2 allow udp from any to any limit src-addr 1\n")
	w := e.Worker(0)
	for k := range 1000 {
		pkt := udp(t, "1.1.1.1:1", "2.2.2.2:2")
		binary.BigEndian.PutUint32(pkt[12:], uint32(k%20+1))
		if v := w.Evaluate(in(float64(k*20)), pkt); v.State != firewall.StateNew {
			t.Fatalf("tuple %d: %+v", k, v)
		}
		binary.BigEndian.PutUint16(pkt[20:], 9)
		if v := w.Evaluate(in(float64(k*20)), pkt); v.Reason != firewall.ReasonLimit {
			t.Fatalf("second state of tuple %d: %+v", k, v)
		}
		e.Sweep(time.Duration(k*20+19) * time.Second)
	}
}

// TestFloodSparesEstablished fills everything with half-open states: no established one is lost,
// and new connections still open.
func TestFloodSparesEstablished(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen = 8_000, 1_000
	e := loadMe(t, Options{Options: o}, webRules)
	w := e.Worker(0)
	var clients []string
	for i := range 500 {
		c := netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, 2, byte(i >> 8), byte(i)}),
			1000).String()
		clients = append(clients, c)
		handshake(t, w, c, "10.0.0.1:80", 1)
	}
	syn := tcp(t, "11.0.0.0:1", "10.0.0.1:80", packet.FlagSYN, 1, 0)
	for round := range 3 { // also with several packets per tuple
		for k := range 50_000 {
			binary.BigEndian.PutUint32(syn[12:], 11<<24|uint32(k*(round%2+1)))
			w.Evaluate(in(2+float64(round)), syn)
			if round == 2 {
				w.Evaluate(in(2+float64(round)), syn)
			}
		}
		handshake(t, w, netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, 3, 0, byte(round)}),
			1000).String(), "10.0.0.1:80", 2+float64(round))
	}
	for _, c := range clients {
		if v := w.Evaluate(in(6), tcp(t, c, "10.0.0.1:80", packet.FlagACK, 101,
			501)); v.State != firewall.StateHit {
			t.Fatalf("%s was lost: %+v", c, v)
		}
	}
	if used := e.shards[0].halfOpen.used; used > 1_000*20/19+16 {
		t.Errorf("%d half-open states", used)
	}
}

// TestFullRefusesNewFlows fills the table with established states: the next is refused with its
// reason, a closed one makes space.
func TestFullRefusesNewFlows(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen = 100, 100
	e := loadMe(t, Options{Options: o}, webRules)
	w := e.Worker(0)
	client := func(i int) string {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, 2, byte(i >> 8), byte(i)}),
			1000).String()
	}
	for i := range 100 {
		handshake(t, w, client(i), "10.0.0.1:80", 1)
	}
	syn := tcp(t, "7.7.7.7:7", "10.0.0.1:80", packet.FlagSYN, 1, 0)
	if v := w.Evaluate(in(2), syn); v.Pass || v.Reason != firewall.ReasonStatesFull ||
		v.Rule != 10 {
		t.Errorf("over the maximum: %+v", v)
	}
	// Rules without state still work.
	if v := w.Evaluate(in(2), udp(t, "7.7.7.7:7",
		"10.0.0.1:9")); v.Reason != firewall.ReasonStatesFull {
		t.Errorf("%+v", v)
	}
	for i := range 50 {
		if v := w.Evaluate(in(2), tcp(t, client(i), "10.0.0.1:80", packet.FlagRST, 101,
			0)); v.State != firewall.StateHit {
			t.Fatalf("reset %d: %+v", i, v)
		}
	}
	e.Sweep(4 * time.Second)
	if v := w.Evaluate(in(4), syn); v.State != firewall.StateNew {
		t.Errorf("after fifty resets: %+v", v)
	}
}

// TestEverythingAtOnce evaluates while rules, tables, interfaces and states are changed and read.
// The race detector watches; every verdict must be one that the old or the new rules give.
func TestEverythingAtOnce(t *testing.T) {
	e := loadMe(t, Options{Workers: 3, OnEvent: func(*firewall.Event) {}}, webRules)
	programs := []string{webRules,
		"add 1 check-state\nadd 10 allow tcp from any to me 80 setup keep-state\n" +
			"add 30 deny udp from table(bad) to any\n" +
			"add 40 allow udp from any to any keep-state :other\n"}
	stop := make(chan struct{})
	var control sync.WaitGroup
	change := func(f func(k int) error) {
		control.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(k); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	change(func(k int) error { return e.Load(compiled(t, programs[k%2])) })
	change(func(k int) error {
		net := netip.PrefixFrom(netip.AddrFrom4([4]byte{9, 9, byte(k), 0}), 24)
		return e.AddTable("bad", rule.TableEntry{Prefix: net})
	})
	change(func(k int) error { return e.SetInterfaces(me) })
	change(func(k int) error {
		for _, err := range e.States() {
			if err != nil {
				return err
			}
		}
		_, err := e.Rules()
		_, errDecisions := e.Decisions()
		_, errDelete := e.DeleteStates(func(firewall.State) bool { return k%7 == 0 })
		e.Explain(in(1), udp(t, "1.1.1.1:1", "10.0.0.1:5"))
		return joined(err, errDecisions, errDelete, e.Zero(10))
	})
	each(e, func(i int, w *Worker) {
		const n = 2000
		verdicts := make([]firewall.Verdict, 3)
		for k := range n {
			c := netip.AddrPortFrom(netip.AddrFrom4([4]byte{1, byte(i), byte(k >> 8), byte(k)}),
				1000).String()
			pkts := [][]byte{tcp(t, c, "10.0.0.1:80", packet.FlagSYN, 1, 0),
				udp(t, c, "10.0.0.1:5"), tcp(t, c, "10.0.0.1:81", packet.FlagSYN, 1, 0)}
			w.EvaluateBatch(in(1+float64(k)/n), pkts, verdicts)
			if v := verdicts[0]; !v.Pass || v.Rule != 10 {
				t.Errorf("port 80: %+v", v)
			}
			if v := verdicts[1]; !v.Pass || v.Rule != 20 && v.Rule != 40 {
				t.Errorf("udp: %+v", v)
			}
			if v := verdicts[2]; v.Pass {
				t.Errorf("port 81: %+v", v)
			}
			w.Tick(time.Duration(k)*time.Millisecond, func(Probe) {})
		}
	})
	close(stop)
	control.Wait()
}

// joined returns the first error.
func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
