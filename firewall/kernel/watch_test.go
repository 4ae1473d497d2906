package kernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// watch collects events of a guarded server until the returned function is called.
func (g *pairLab) watch(t *testing.T, kinds ...firewall.EventKind) (stop func() []firewall.Event) {
	if err := g.engine.Subscribe(kinds...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all []firewall.Event
	done := make(chan error)
	go func() {
		done <- g.server.Do(func() error {
			return g.engine.Watch(ctx, func(e firewall.Event) { all = append(all, e) })
		})
	}()
	for !g.watched() {
		time.Sleep(time.Millisecond)
	}
	return func() []firewall.Event {
		g.awaitEmptyRing(t) // the end of Watch drops what it has not read
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return all
	}
}

// awaitEmptyRing waits until Watch has read all that lies in the ring of events. This reader never
// reads.
func (g *pairLab) awaitEmptyRing(t *testing.T) {
	t.Helper()
	r, err := ringbuf.NewReader(g.engine.objects.Events)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	nstest.Eventually(t, "the ring of events is read", func() bool {
		return r.AvailableBytes() == 0
	})
}

func (g *pairLab) watched() bool {
	g.engine.mu.Lock()
	defer g.engine.mu.Unlock()
	return g.engine.watched
}

// TestEventsWaitForTheNextWatch: what happens between the death of one agent and the first Watch of
// the next is reported, also what happens while that one starts.
func TestEventsWaitForTheNextWatch(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	refuse := func(port string) {
		t.Helper()
		if c, err := g.connect("10.0.0.1:" + port); err == nil {
			c.Close()
			t.Fatalf("port %s is open", port)
		}
	}
	g.must(t, g.engine.Subscribe(firewall.EventDrop))
	g.must(t, g.engine.watching(true)) // and it never ends: the agent is killed
	g.must(t, g.engine.Close())
	refuse("81")
	g.open(t)
	g.must(t, g.server.Do(func() error { return g.engine.Load(compile(t, webRules)) }))
	g.interfaces(t)
	refuse("82")
	ports := map[uint16]bool{}
	for _, e := range g.watch(t, firewall.EventDrop)() {
		ports[e.Dst.Port()] = true
	}
	if !ports[81] || !ports[82] {
		t.Errorf("refused packets to %v are reported, not those to 81 and 82", ports)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	g := newPairLab(t,
		"add 1 check-state\nadd 100 allow log tcp from any to me 80 setup keep-state\n")
	stop := g.watch(t, firewall.EventStart, firewall.EventEnd, firewall.EventDrop,
		firewall.EventLog)
	c, err := g.dial("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	if err := echoWord(c, "hello"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c, err := g.connect("10.0.0.1:81"); err == nil {
		c.Close()
		t.Fatal("port 81 is open")
	}
	// closed states live for a second, and the hand comes by every second
	nstest.Eventually(t, "the hand has gone round", func() bool {
		s, err := g.engine.Stats()
		return err != nil || s.Sweep.Pass > 0 && s.Sweep.Ticks >= 300 && s.States == 0
	})
	count := map[firewall.EventKind]int{}
	for _, e := range stop() {
		count[e.Kind]++
		switch e.Kind {
		case firewall.EventStart:
			if e.Dst.String() != "10.0.0.1:80" || e.Verdict.Rule != 100 || !e.Verdict.Pass {
				t.Errorf("start: %+v", e)
			}
		case firewall.EventEnd:
			if e.Dst.String() != "10.0.0.1:80" || e.Verdict.Rule != 100 || e.Packets[0] < 5 ||
				e.Packets[1] < 4 || e.Duration <= 0 || !e.Verdict.Pass {
				t.Errorf("end: %+v", e)
			}
		case firewall.EventDrop:
			if e.Dst.Port() == 81 && (e.Verdict.Rule != 65535 || e.Verdict.Pass) {
				t.Errorf("drop: %+v", e)
			}
		}
	}
	if count[firewall.EventStart] != 1 || count[firewall.EventEnd] != 1 ||
		count[firewall.EventDrop] == 0 || count[firewall.EventLog] < 8 {
		t.Errorf("events by kind: %v", count)
	}
	s, err := g.engine.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.States != 0 || s.HalfOpen != 0 || s.Created != 1 || s.Removed["expired"] != 1 ||
		s.Lost != 0 {
		t.Errorf("stats: %+v", s)
	}
	if s.Sweep.Ticks < 300 || s.Sweep.Pass < 900*time.Millisecond || s.Sweep.Longest <= 0 {
		t.Errorf("sweep: %+v", s.Sweep)
	}
	t.Logf("sweep: %v a tick, longest %v", s.Sweep.Work/time.Duration(s.Sweep.Ticks),
		s.Sweep.Longest)
}

func TestProbesKeepIdleConnections(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, webRules)
	stop := g.watch(t)
	c, err := g.dial("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := echoWord(c, "hello"); err != nil {
		t.Fatal(err)
	}
	g.keepsIdle(t, 1)
	stop()
	if err := echoWord(c, "still there"); err != nil {
		t.Error(err)
	}
}

// TestProbesKeepAdoptedConnections: of connections that were open before the rules, and are silent
// from then on, no number is known. They are probed all the same, over both families, and the
// answers make them strict.
func TestProbesKeepAdoptedConnections(t *testing.T) {
	t.Parallel()
	g := newPairLab(t, "add allow ip from any to any\n")
	stop := g.watch(t)
	p := compile(t, webRules)
	var open []net.Conn
	var states []firewall.State
	for _, address := range []string{"10.0.0.1:80", "[fd00::1]:80"} {
		c, err := g.dial(address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := echoWord(c, "hello"); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		states = append(states, firewall.State{Proto: packet.ProtoTCP,
			From: c.LocalAddr().(*net.TCPAddr).AddrPort(),
			To:   c.RemoteAddr().(*net.TCPAddr).AddrPort(),
			Key:  p.Rules[1].Key, Rule: p.Rules[1].Number})
	}
	if err := g.engine.Load(p); err != nil {
		t.Fatal(err)
	}
	if n, err := g.engine.Adopt(states); n != len(states) || err != nil {
		t.Fatalf("adopted %d: %v", n, err)
	}
	g.keepsIdle(t, len(states))
	stop()
	for x, err := range g.engine.entries() {
		if err != nil {
			t.Fatal(err)
		}
		if s, _ := x.state(); s.Sides[0].Flags&s.Sides[1].Flags&flow.SideAcked == 0 {
			t.Errorf("after the answers the numbers are not known: %+v", s)
		}
	}
	echoEach(t, open, "still there")
}

// keepsIdle waits until so many idle connections have lived on by probes.
func (g *pairLab) keepsIdle(t *testing.T, n int) {
	t.Helper()
	first := map[netip.AddrPort]time.Duration{}
	for _, s := range g.states(t) {
		first[s.From] = s.Last
	}
	if len(first) != n {
		t.Fatalf("%d states: %v", len(first), first)
	}
	// Lifetime 24 s: the last 20 s, in which probes are sent, begin after 4 s.
	g.engine.mu.Lock()
	g.engine.config.LifeEstablished = 24e9
	err := g.engine.putConfigLocked()
	g.engine.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	nstest.Eventually(t, "probes go, and answers come", func() bool {
		after := g.states(t)
		if len(after) != n {
			t.Fatalf("of %d states %d are there", n, len(after))
		}
		for _, s := range after {
			if s.Last < first[s.From]+9*time.Second {
				return false
			}
		}
		return true
	})
}

// counted is how many packets rules 100 and 150 have counted.
func (g *pairLab) counted(t *testing.T) (n uint64) {
	t.Helper()
	rules, err := g.engine.Rules()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if r.Number == 100 || r.Number == 150 {
			n += r.Packets
		}
	}
	return n
}

// captures are the frames that a capture has brought so far.
type captures struct {
	mu  sync.Mutex
	all []firewall.Captured
}

func (c *captures) add(f *firewall.Captured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := *f
	one.Data = append([]byte(nil), f.Data...)
	c.all = append(c.all, one)
}

// ofOurRules is how many frames rules 100 and 150 decided.
func (c *captures) ofOurRules() (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.all {
		if r := c.all[i].Verdict.Rule; r == 100 || r == 150 {
			n++
		}
	}
	return n
}

// TestCapture: every frame at the hooks comes with its bytes and its verdict, dropped ones
// included, and none comes without a capture.
func TestCapture(t *testing.T) {
	t.Parallel()
	g := newPairLab(t,
		"add 1 check-state\nadd 100 allow tcp from any to me 80 setup keep-state\n"+
			"add 150 deny tcp from any to me 81\n")
	stop := g.watch(t)
	var captured captures
	if err := g.engine.Capture(captured.add); err != nil {
		t.Fatal(err)
	}
	c, err := g.dial("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	if err := echoWord(c, "hello"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c, err := g.connect("10.0.0.1:81"); err == nil {
		c.Close()
		t.Fatal("port 81 is open")
	}
	nstest.Eventually(t, "the connection has ended", func() bool {
		all := g.states(t)
		return len(all) == 0 || all[0].Phase.Over()
	})
	nstest.Eventually(t, "what the rules count is captured", func() bool {
		return captured.ofOurRules() == g.counted(t)
	})
	if err := g.engine.Capture(nil); err != nil {
		t.Fatal(err)
	}
	rules, err := g.engine.Rules()
	if err != nil {
		t.Fatal(err)
	}
	// What was captured before may be read later, so the port tells the next connection.
	if c, err = g.dial("10.0.0.1:80"); err != nil {
		t.Fatal(err)
	}
	port := uint16(c.LocalAddr().(*net.TCPAddr).Port)
	c.Close()
	stop()
	all := captured.all
	count := map[uint16]uint64{}
	for i := range all {
		f := &all[i]
		var p packet.Packet
		p.DecodeFrame(packet.LinkEthernet,
			append(f.Data, make([]byte, int(f.Length)-len(f.Data))...))
		if !f.Ethernet || len(f.Data) != min(256, int(f.Length)) {
			t.Errorf("frame of %d bytes with %d of data", f.Length, len(f.Data))
		}
		if p.SrcPort() == port || p.DstPort() == port {
			t.Errorf("%s: a frame behind the capture", p.String())
		}
		count[f.Verdict.Rule]++
		in := f.Hook.Dir == firewall.In
		switch f.Verdict.Rule {
		case 100:
			if !f.Verdict.Pass || in && p.DstPort() != 80 || !in && p.SrcPort() != 80 ||
				in == (f.Hook.Recv == 0) {
				t.Errorf("rule 100: %+v of %s", f.Verdict, p.String())
			}
		case 150:
			if f.Verdict.Pass || p.DstPort() != 81 || p.TCPFlags != packet.FlagSYN || !in {
				t.Errorf("rule 150: %+v of %s", f.Verdict, p.String())
			}
		}
	}
	for _, r := range rules {
		if (r.Number == 100 || r.Number == 150) &&
			(r.Packets == 0 || count[r.Number] != r.Packets) {
			t.Errorf("rule %d counted %d packets, %d were captured", r.Number, r.Packets,
				count[r.Number])
		}
	}
}
