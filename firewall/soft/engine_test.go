package soft

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

const webRules = "add 1 check-state\nadd 10 allow tcp from any to me 80 setup keep-state\n" +
	"add 20 allow udp from any to any limit src-addr 3\n"

// me is the host of the tests.
var me = []firewall.Interface{{Index: 1, Name: "eth0",
	Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24"),
		netip.MustParsePrefix("2001:db8::1/64")}}}

func loadMe(t testing.TB, o Options, rules string) *Engine {
	t.Helper()
	e := load(t, o, rules)
	if err := e.SetInterfaces(me); err != nil {
		t.Fatal(err)
	}
	return e
}

func compiled(t testing.TB, rules string) *rule.Program {
	t.Helper()
	return enginetest.Compile(t, rules, rule.CompileOptions{Strict: true})
}

// TestLoadKeepsWhatRemains replaces the rules under live states.
func TestLoadKeepsWhatRemains(t *testing.T) {
	e := loadMe(t, Options{}, webRules)
	w := e.Worker(0)
	handshake(t, w, "1.2.3.4:1000", "10.0.0.1:80", 1)
	w.Evaluate(in(1), udp(t, "9.9.9.9:53", "10.0.0.1:53"))
	if n := len(states(t, e)); n != 2 {
		t.Fatalf("%d states", n)
	}
	// The rule of the connection stays, with another neighbour; that of the datagram is gone.
	if err := e.Load(compiled(t,
		"add 1 check-state\nadd 5 count ip from any to any\n"+
			"add 10 allow tcp from any to me 80 setup keep-state\n")); err != nil {
		t.Fatal(err)
	}
	left := states(t, e)
	if len(left) != 1 || left[0].Proto != packet.ProtoTCP || left[0].Rule != 10 {
		t.Fatalf("left: %+v", left)
	}
	if v := w.Evaluate(in(1), tcp(t, "1.2.3.4:1000", "10.0.0.1:80", packet.FlagACK, 101,
		501)); !v.Pass || v.State != firewall.StateHit || v.Slot != 2 {
		t.Errorf("the connection after the load: %+v", v)
	}
	if v := w.Evaluate(out(1), udp(t, "10.0.0.1:53", "9.9.9.9:53")); v.Pass {
		t.Errorf("the datagram's answer after the load: %+v", v)
	}
	counters, _ := e.Rules()
	if counters[2].Number != 10 || counters[2].Packets != 4 {
		t.Errorf("the rule's counter did not go with it: %+v", counters)
	}
	// The sweep gives the place of the state without a rule back long before it would expire.
	for range 2 * sweepTicks {
		w.Tick(2*time.Second, nil)
	}
	if used := e.shards[0].established.used + e.shards[0].halfOpen.used; used != 1 {
		t.Errorf("%d entries in use", used)
	}
}

func TestLoadRefusesWhatReachesOutside(t *testing.T) {
	e := load(t, Options{}, "add 1 deny ip from any to any\n")
	for name, change := range map[string]func(p *program.Program){
		"no rules": func(p *program.Program) { p.Rules = nil },
		"jump outside": func(p *program.Program) {
			p.Rules[0].Action, p.Rules[0].Arg = op.ActionSkipTo, 99
		},
		"jump backwards": func(p *program.Program) {
			p.Rules[0].Action, p.Rules[0].Arg = op.ActionSkipTo, 0
		},
		"conditions": func(p *program.Program) { p.Rules[0].CondEnd = 99 },
		"flow":       func(p *program.Program) { p.Rules[0].Flow = 7 },
		"vectors":    func(p *program.Program) { p.Classes.Words = 0 },
		"last rule":  func(p *program.Program) { p.Rules[1].Action = op.ActionCount },
	} {
		p := compiled(t, "add 1 allow ip from any to any\n")
		change(p)
		if err := e.Load(p); err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
	if v := e.Worker(0).Evaluate(in(1), udp(t, "1.1.1.1:1", "2.2.2.2:2")); v.Pass || v.Rule != 1 {
		t.Errorf("a refused load changed the rules: %+v", v)
	}
}

// TestNumbersOfRulesRunOut loads so many different rules that their numbers have to be given out
// again, under a live state.
func TestNumbersOfRulesRunOut(t *testing.T) {
	e := loadMe(t, Options{}, webRules)
	w := e.Worker(0)
	handshake(t, w, "1.2.3.4:1000", "10.0.0.1:80", 1)
	e.nextID = maxIDs + 1
	if err := e.Load(compiled(t, webRules+"add 30 count ip from any to any\n")); err != nil {
		t.Fatal(err)
	}
	if e.nextID > 10 {
		t.Errorf("the next number is %d", e.nextID)
	}
	if v := w.Evaluate(in(2), tcp(t, "1.2.3.4:1000", "10.0.0.1:80", packet.FlagACK, 101,
		501)); !v.Pass || v.Rule != 10 || v.State != firewall.StateHit {
		t.Errorf("%+v", v)
	}
}

func TestDeleteStates(t *testing.T) {
	e := loadMe(t, Options{}, webRules)
	w := e.Worker(0)
	handshake(t, w, "1.2.3.4:1000", "10.0.0.1:80", 1)
	handshake(t, w, "5.6.7.8:1000", "10.0.0.1:80", 1)
	n, err := e.DeleteStates(func(s firewall.State) bool {
		return s.From.Addr() == netip.MustParseAddr("5.6.7.8")
	})
	if n != 1 || err != nil || len(states(t, e)) != 1 {
		t.Errorf("%d cut, %v, left %+v", n, err, states(t, e))
	}
	if v := w.Evaluate(in(1), tcp(t, "5.6.7.8:1000", "10.0.0.1:80", packet.FlagACK, 101,
		501)); v.Pass {
		t.Errorf("a packet of the connection that was cut: %+v", v)
	}
}

// TestDeleteStatesResetsBothEnds: each end of a deleted connection gets the one reset that it must
// believe, and half-open states get none.
func TestDeleteStatesResetsBothEnds(t *testing.T) {
	e := loadMe(t, Options{}, webRules)
	w := e.Worker(0)
	handshake(t, w, "[2001:db8::9]:1000", "[2001:db8::1]:80", 1)
	w.Evaluate(in(2), tcp(t, "[2001:db8::9]:1001", "[2001:db8::1]:80", packet.FlagSYN, 7, 0))
	if n, err := e.DeleteStates(func(firewall.State) bool { return true }); err != nil || n != 2 {
		t.Fatalf("%d states cut: %v", n, err)
	}
	w.Tick(3*time.Second, nil) // no send function: they wait
	if n := e.Resets(); n != 2 {
		t.Errorf("%d resets wait, want 2", n)
	}
	got := map[uint16]packet.Packet{}
	for range 2 {
		w.Tick(3*time.Second, func(pr Probe) {
			var p packet.Packet
			if r := p.Decode(pr.Packet); r != packet.ReasonNone ||
				p.TCPFlags != packet.FlagRST|packet.FlagACK ||
				(pr.To == firewall.In) != (p.DstPort() == 80) {
				t.Errorf("to %v: %v %+v", pr.To, r, p)
			}
			got[p.DstPort()] = p
		})
	}
	server, client := got[80], got[1000]
	if len(got) != 2 || server.Seq != 101 || client.Seq != 501 || e.Resets() != 0 {
		t.Errorf("resets %+v", got)
	}
}

// TestKeepalive lets a connection idle: both ends are asked, in the right direction and in a way
// that makes them answer; the answer keeps the state.
func TestKeepalive(t *testing.T) {
	e := loadMe(t, Options{}, webRules)
	w := e.Worker(0)
	handshake(t, w, "[2001:db8::9]:1000", "[2001:db8::1]:80", 1)
	sweep := func(now float64) (probes []Probe) {
		// The last of them may come to the entries of the first ones again, by their places.
		for range sweepTicks {
			if len(probes) > 0 {
				break
			}
			w.Tick(time.Duration(now*1e9), func(p Probe) { probes = append(probes, p) })
		}
		return probes
	}
	if p := sweep(270); len(p) != 0 {
		t.Fatalf("probes 31 s before the end: %d", len(p))
	}
	probes := sweep(285)
	if len(probes) != 2 {
		t.Fatalf("%d probes", len(probes))
	}
	for _, pr := range probes {
		var p packet.Packet
		if r := p.Decode(pr.Packet); r != packet.ReasonNone || p.TCPFlags != packet.FlagACK ||
			p.PayloadLen() != 0 {
			t.Fatalf("%v %+v", r, p)
		}
		// The end answers what it has acknowledged before with an ACK of its own state.
		var answer []byte
		hook := in(286)
		switch {
		case p.DstPort() == 80: // to the server, on the way in
			if pr.To != firewall.In || p.Seq != 100 || p.Ack != 501 {
				t.Errorf("probe to the server: %v %+v", pr.To, p)
			}
			answer, hook = tcp(t, "[2001:db8::1]:80", "[2001:db8::9]:1000", packet.FlagACK, 501,
				101), out(286)
		default:
			if pr.To != firewall.Out || p.Seq != 500 || p.Ack != 101 {
				t.Errorf("probe to the client: %v %+v", pr.To, p)
			}
			answer = tcp(t, "[2001:db8::9]:1000", "[2001:db8::1]:80", packet.FlagACK, 101, 501)
		}
		if v := w.Evaluate(hook, answer); v.State != firewall.StateHit {
			t.Errorf("the answer: %+v", v)
		}
	}
	if p := sweep(302); len(p) != 0 || len(states(t, e)) != 1 {
		t.Errorf("after the answers: %d probes, states %+v", len(p), states(t, e))
	}
	if sweep(586.5); len(states(t, e)) != 0 {
		t.Errorf("without answers it lives on: %+v", states(t, e))
	}
}

// TestKeepaliveOfAdopted: of a connection that was adopted and is silent from then on no number is
// known. Both ends are asked all the same, and their answers make the state strict.
func TestKeepaliveOfAdopted(t *testing.T) {
	e := loadMe(t, Options{}, webRules)
	w := e.Worker(0)
	if n, err := e.Adopt([]firewall.State{{Proto: packet.ProtoTCP,
		From: netip.MustParseAddrPort("[2001:db8::9]:1000"),
		To:   netip.MustParseAddrPort("[2001:db8::1]:80"), Key: e.cfg.rules[0].Key,
		FlowName: e.cfg.prog.Flows[e.cfg.rules[0].Flow]}}, time.Second); n != 1 || err != nil {
		t.Fatalf("adopted %d: %v", n, err)
	}
	sweep := func(now float64) (probes []Probe) {
		for range sweepTicks {
			w.Tick(time.Duration(now*1e9), func(p Probe) { probes = append(probes, p) })
		}
		return probes
	}
	if p := sweep(270); len(p) != 0 {
		t.Fatalf("probes 31 s before the end: %d", len(p))
	}
	asked := map[uint16]firewall.Direction{}
	for _, pr := range sweep(285) {
		var p packet.Packet
		if r := p.Decode(pr.Packet); r != packet.ReasonNone || p.TCPFlags != packet.FlagACK ||
			p.PayloadLen() != 0 {
			t.Fatalf("%v %+v", r, p)
		}
		asked[p.DstPort()] = pr.To
	}
	if len(asked) != 2 || asked[80] != firewall.In || asked[1000] != firewall.Out {
		t.Fatalf("asked, by port: %v", asked)
	}
	for _, answer := range []struct {
		hook  *firewall.Input
		bytes []byte
	}{
		{in(286), tcp(t, "[2001:db8::9]:1000", "[2001:db8::1]:80", packet.FlagACK, 101, 501)},
		{out(286), tcp(t, "[2001:db8::1]:80", "[2001:db8::9]:1000", packet.FlagACK, 501, 101)},
	} {
		if v := w.Evaluate(answer.hook, answer.bytes); v.State != firewall.StateHit {
			t.Errorf("the answer: %+v", v)
		}
	}
	blind := tcp(t, "[2001:db8::9]:1000", "[2001:db8::1]:80", packet.FlagACK, 1<<30, 501)
	if v := w.Evaluate(in(287), blind); v.Reason != firewall.ReasonTCPWindow {
		t.Errorf("a blind segment: %+v", v)
	}
	if sweep(303); len(states(t, e)) != 1 {
		t.Error("the connection is gone although both ends have answered")
	}
}

// TestKeepaliveOfHalfClosed: a connection of
// which one end is done is asked like any other, one of which both are is not.
func TestKeepaliveOfHalfClosed(t *testing.T) {
	e := loadMe(t, Options{}, webRules)
	w := e.Worker(0)
	handshake(t, w, "1.2.3.4:1000", "10.0.0.1:80", 1)
	w.Evaluate(in(1), tcp(t, "1.2.3.4:1000", "10.0.0.1:80", packet.FlagACK|packet.FlagFIN, 101,
		501))
	w.Evaluate(out(1), tcp(t, "10.0.0.1:80", "1.2.3.4:1000", packet.FlagACK, 501, 102))
	handshake(t, w, "1.2.3.4:1001", "10.0.0.1:80", 290)
	w.Evaluate(in(290), tcp(t, "1.2.3.4:1001", "10.0.0.1:80", packet.FlagACK|packet.FlagFIN, 101,
		501))
	w.Evaluate(out(290), tcp(t, "10.0.0.1:80", "1.2.3.4:1001", packet.FlagACK|packet.FlagFIN, 501,
		102))
	lookedUp := map[uint16]uint32{}
	for range sweepTicks {
		w.Tick(290*time.Second, func(pr Probe) {
			var p packet.Packet
			p.Decode(pr.Packet)
			lookedUp[p.DstPort()] = p.Seq
		})
	}
	if len(lookedUp) != 2 || lookedUp[80] != 101 || lookedUp[1000] != 500 {
		t.Errorf("asked, by port: %v", lookedUp)
	}
}

func TestEvents(t *testing.T) {
	var got []firewall.Event
	e := loadMe(t, Options{OnEvent: func(ev *firewall.Event) {
		got = append(got, *ev)
	}}, webRules+"add 30 deny log logamount 1 ip from any to any\n")
	w := e.Worker(0)
	handshake(t, w, "1.2.3.4:1000", "10.0.0.1:80", 1)
	w.Evaluate(in(2), tcp(t, "1.2.3.4:1000", "10.0.0.1:80", packet.FlagRST, 101, 0))
	for range 4 {
		w.Evaluate(in(3), udp(t, "9.9.9.9:53", "10.0.0.1:"+
			[]string{"1", "2", "3", "4"}[len(got)%4]))
	}
	w.Evaluate(in(3), tcp(t, "1.2.3.4:1001", "10.0.0.1:81", packet.FlagSYN, 1, 0))
	w.Evaluate(in(3), tcp(t, "1.2.3.4:1002", "10.0.0.1:81", packet.FlagSYN, 1, 0))
	e.Sweep(100 * time.Second)
	want := []firewall.EventKind{firewall.EventStart, firewall.EventStart, firewall.EventStart,
		firewall.EventStart, firewall.EventRefuse,
		firewall.EventLog, firewall.EventDrop, firewall.EventDrop,
		firewall.EventEnd, firewall.EventEnd, firewall.EventEnd, firewall.EventEnd}
	if len(got) != len(want) {
		t.Fatalf("%d events: %+v", len(got), got)
	}
	for i := range want {
		if got[i].Kind != want[i] {
			t.Errorf("event %d: %+v, want kind %d", i, got[i], want[i])
		}
	}
	if r := got[4]; r.Verdict.Reason != firewall.ReasonLimit || r.Verdict.Rule != 20 ||
		r.Src != netip.MustParseAddrPort("9.9.9.9:53") {
		t.Errorf("refused: %+v", r)
	}
	for _, ev := range got[8:] {
		if ev.Proto == packet.ProtoTCP &&
			(ev.Packets != [2]uint64{3, 1} || ev.Duration != time.Second ||
				ev.Verdict.Rule != 10) {
			t.Errorf("end of the connection: %+v", ev)
		}
	}
}

func TestAnswers(t *testing.T) {
	e := loadMe(t, Options{},
		"add 1 reset tcp from any to me\nadd 2 unreach port udp from any to me\n"+
			"add 3 unreach6 port udp from any to me6\nadd 4 reject ip from any to any\n")
	w := e.Worker(0)
	for _, c := range []struct {
		pkt  []byte
		want func(p *packet.Packet) bool
	}{
		{tcp(t, "1.2.3.4:1000", "10.0.0.1:80", packet.FlagSYN, 100, 0),
			func(p *packet.Packet) bool {
				return p.TCPFlags == packet.FlagRST|packet.FlagACK && p.Ack == 101 &&
					p.SrcPort() == 80
			}},
		{udp(t, "1.2.3.4:1000", "10.0.0.1:80"), func(p *packet.Packet) bool {
			return p.ICMPType() == 3 && p.ICMPCode() == 3
		}},
		{udp(t, "[2001:db8::9]:1", "[2001:db8::5]:80"), func(p *packet.Packet) bool {
			return p.ICMPType() == 1 && p.ICMPCode() == 3
		}},
		{udp(t, "1.2.3.4:1000", "10.0.0.9:80"), func(p *packet.Packet) bool {
			return p.ICMPType() == 3 && p.ICMPCode() == 1
		}},
		{udp(t, "1.2.3.4:1000", "224.0.0.1:80"), nil},
		{tcp(t, "1.2.3.4:1000", "10.0.0.1:80", packet.FlagRST, 100, 0), nil},
	} {
		v := w.Evaluate(in(1), c.pkt)
		answer, ok := Answer(v, c.pkt, netip.Addr{})
		if v.Pass || ok != (c.want != nil) {
			t.Errorf("%+v, answered: %v", v, ok)
			continue
		}
		if !ok {
			continue
		}
		var p, q packet.Packet
		q.Decode(c.pkt)
		if r := p.Decode(answer); r != packet.ReasonNone || !c.want(&p) || p.Dst() != q.Src() {
			t.Errorf("%+v answered by %v %+v", v, r, p)
		}
	}
}

// TestNoAllocations evaluates all kinds of packets in all ways.
func TestNoAllocations(t *testing.T) {
	e := loadMe(t, Options{}, webRules)
	w := e.Worker(0)
	handshake(t, w, "1.2.3.4:1000", "10.0.0.1:80", 1)
	fresh := udp(t, "9.9.9.9:53", "10.0.0.1:53")
	k := uint16(0)
	pkts := [][]byte{
		tcp(t, "1.2.3.4:1000", "10.0.0.1:80", packet.FlagACK, 101, 501),
		udp(t, "9.9.9.9:53", "10.0.0.1:53"), fresh,
		tcp(t, "1.2.3.4:1001", "10.0.0.1:81", packet.FlagSYN, 101, 501), fresh[:10],
		enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr("1.2.3.4"),
			Dst: netip.MustParseAddr("10.0.0.1")}, build.ICMP{Type: 3}, build.Data(fresh)),
	}
	verdicts := make([]firewall.Verdict, len(pkts))
	input, goes := in(1), out(1)
	sent := udp(t, "10.0.0.1:53", "9.9.9.9:53")
	if n := testing.AllocsPerRun(200, func() {
		k++
		binary.BigEndian.PutUint16(fresh[20:], k) // a state begins, or is refused
		for _, p := range pkts {
			w.Evaluate(input, p)
		}
		w.EvaluateBatch(input, pkts, verdicts)
		binary.BigEndian.PutUint16(sent[20:], k%50) // of a new flow, then of one that lives
		w.Evaluate(goes, sent)
		w.Tick(input.Now, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestExpiryNeedsNoTick lets states expire that no sweep removes.
func TestExpiryNeedsNoTick(t *testing.T) {
	e := loadMe(t, Options{},
		"add 1 check-state\nadd 10 allow udp from 1.1.1.1 to any in keep-state\n")
	w := e.Worker(0)
	life := flow.DefaultTimeouts()
	there, back := udp(t, "1.1.1.1:1", "10.0.0.1:2"), udp(t, "10.0.0.1:2", "1.1.1.1:1")
	w.Evaluate(in(1), there)
	if v := w.Evaluate(out(1+life.UDP.Seconds()), back); v.State != firewall.StateHit {
		t.Errorf("in the last moment: %+v", v)
	}
	if v := w.Evaluate(out(11+life.UDPReply.Seconds()+0.001), back); v.Pass {
		t.Errorf("too late: %+v", v)
	}
}

// TestStatesEndAfterYears: Sweep ends what has expired, however long the host is up. The times in
// the table have 32 bits.
func TestStatesEndAfterYears(t *testing.T) {
	e := loadMe(t, Options{}, "add 10 allow udp from any to any limit src-addr 1\n")
	w := e.Worker(0)
	for power := 52; power < 63; power++ {
		up := (time.Duration(1) << power).Seconds()
		w.Evaluate(in(up-30), udp(t, "1.1.1.1:1", "10.0.0.1:2"))
		e.Sweep(in(up + 60).Now)
		if v := w.Evaluate(in(up+60), udp(t, "1.1.1.1:2", "10.0.0.1:2")); !v.Pass {
			t.Errorf("after 2^%d ns a state that has expired counts: %+v", power, v)
		}
		e.Sweep(in(up + 120).Now)
	}
}

// TestTheFirstRouteCounts: of two routes to one prefix, as a host has with two metrics, verrevpath
// follows the first one.
func TestTheFirstRouteCounts(t *testing.T) {
	e := loadMe(t, Options{}, "add 10 allow udp from any to any verrevpath\n")
	net := netip.MustParsePrefix("1.0.0.0/8")
	if err := e.SetRoutes([]firewall.Route{{Dst: net, Interface: 1},
		{Dst: net, Interface: 2}}); err != nil {
		t.Fatal(err)
	}
	if v := e.Worker(0).Evaluate(in(1), udp(t, "1.2.3.4:53", "10.0.0.1:53")); !v.Pass {
		t.Errorf("a packet on the first route's interface: %+v", v)
	}
}
