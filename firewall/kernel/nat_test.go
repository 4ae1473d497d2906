package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// Translations by single frames, which are put into the programs where they would come in.

// What the programs say of a frame.
const (
	wentUp   = -1 // TC_ACT_UNSPEC
	wasShot  = 2  // TC_ACT_SHOT
	wentAway = 7  // TC_ACT_REDIRECT
)

var (
	hostAddr    = netip.MustParseAddr("192.0.2.1")
	outsideAddr = netip.MustParseAddr("192.0.2.2")
	podA        = netip.MustParseAddr("10.88.0.2")
	podB        = netip.MustParseAddr("10.88.0.3")
)

// frames sends single frames through a village.
type frames struct {
	*village
	card  crossing
	doors map[netip.Addr]crossing
}

func newFrames(t testing.TB, rules string) *frames {
	return framesOf(newVillage(t, rules))
}

func framesOf(v *village) *frames {
	l, err := v.host.Netlink().LinkByName("eth0")
	v.must(err)
	f := &frames{village: v, card: crossing{index: uint32(l.Index)},
		doors: map[netip.Addr]crossing{}}
	copy(f.card.mac[:], l.HardwareAddr)
	for _, r := range []*resident{v.a, v.b} {
		f.doors[r.endpoint.Addrs[0]] = crossing{r.endpoint.Index, r.endpoint.HostMAC}
	}
	// The card knows its neighbours: one packet there and back.
	v.must(v.host.Command("ping", "-c", "1", "-W", "2", outsideAddr.String()).Run())
	return f
}

// send has a packet come in: at a pod's door if it comes from a pod, else at the card. It returns
// what became of it and between whom it then goes.
func (f *frames) send(from, to netip.AddrPort, l packet.Layer) (code int32, src,
	dst netip.AddrPort) {
	f.t.Helper()
	at, ok := f.doors[from.Addr()]
	if !ok {
		at = f.card
	}
	switch s := l.(type) {
	case packet.TCP:
		s.SrcPort, s.DstPort = from.Port(), to.Port()
		l = s
	case packet.UDP:
		s.SrcPort, s.DstPort = from.Port(), to.Port()
		l = s
	}
	ip, err := packet.Build(packet.IPv4{Src: from.Addr(), Dst: to.Addr(), TTL: 64}, l)
	f.must(err)
	frame := append(append([]byte(nil), at.mac[:]...), 2, 0, 0, 0, 0, 9, 8, 0)
	frame = append(frame, ip...)
	context := make([]byte, 192) // struct __sk_buff
	binary.NativeEndian.PutUint32(context[40:], at.index)
	out := make([]byte, len(frame)+64)
	f.must(f.host.Do(func() error {
		o := &ebpf.RunOptions{Data: frame, DataOut: out, Context: context}
		r, err := f.engine.objects.WeirIn.Run(o)
		code, out = int32(r), o.DataOut
		return err
	}))
	port := func(at int) uint16 { return binary.BigEndian.Uint16(out[at:]) }
	src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(out[26:30])), port(34))
	dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(out[30:34])), port(36))
	return code, src, dst
}

// pairs are the translations of the table, by the ends of their inner entries. A half that stands
// alone, or a count that is wrong, is an error; the sweep may come in between, so it is looked at
// again.
func (f *frames) pairs() map[string]*entry {
	f.t.Helper()
	for try := 1; ; try++ {
		all, wrong := f.readPairs()
		if wrong == "" {
			return all
		}
		if try == 5 {
			f.t.Error(wrong)
			return all
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (f *frames) readPairs() (all map[string]*entry, wrong string) {
	f.t.Helper()
	byPlace := map[uint32]*entry{}
	for x, err := range f.engine.entries() {
		f.must(err)
		if x.translation() {
			byPlace[x.place] = x
		}
	}
	all = map[string]*entry{}
	for place, x := range byPlace {
		o := byPlace[x.sides[0].Track]
		if o == nil || o.sides[0].Track != place ||
			(o.sides[0].Flags^x.sides[0].Flags)&metaWire == 0 {
			wrong = fmt.Sprintf("half of a translation at %d stands alone", place)
			continue
		}
		if x.sides[0].Flags&metaWire == 0 {
			all[x.ends()] = x
		}
	}
	var g weirGauge
	f.must(f.engine.objects.Gauges.Lookup(uint32(0), &g))
	if int(g.Nats) != len(all) {
		wrong = fmt.Sprintf("%d translations are counted, %d are there", g.Nats, len(all))
	}
	return all, wrong
}

// ends names an entry by its ends as who made it sees them.
func (x *entry) ends() string {
	from, to := x.called()
	return fmt.Sprintf("%d %s>%s", uint8(x.tag>>24), from, to)
}

// age lets time go by for all that lies in the table.
func (f *frames) age(t *testing.T, d time.Duration) {
	(&guarded{engine: f.engine}).pass(t, d)
}

func end(a netip.Addr, port int) netip.AddrPort { return netip.AddrPortFrom(a, uint16(port)) }

const natRules = "add 1 check-state\nadd 2 deny tcp from any to any 666\n" +
	"add 3 deny udp from any to any 666\n" +
	"add allow tcp from any to any setup keep-state\nadd allow udp from any to any keep-state\n" +
	"add allow icmp from any to any keep-state\nadd deny ip from any to any\n"

// shake makes a connection: it returns the client's end on the wire at the server.
func (f *frames) shake(from, to netip.AddrPort) (wire netip.AddrPort, server netip.AddrPort) {
	f.t.Helper()
	code, src, dst := f.send(from, to, packet.TCP{Seq: 99, Flags: packet.FlagSYN, Window: 1000})
	if code != wentAway {
		f.t.Fatalf("SYN %s>%s: %d", from, to, code)
	}
	if code, _, _ := f.send(dst, src,
		packet.TCP{Seq: 999, Ack: 100, Flags: packet.FlagSYN | packet.FlagACK,
			Window: 1000}); code != wentAway {
		f.t.Fatalf("SYN and ACK %s>%s: %d", dst, src, code)
	}
	if code, _, _ := f.send(from, to,
		packet.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagACK, Window: 1000}); code != wentAway {
		f.t.Fatalf("ACK %s>%s: %d", from, to, code)
	}
	return src, dst
}

func (f *frames) only() *entry {
	f.t.Helper()
	all := f.pairs()
	for _, x := range all {
		if len(all) == 1 {
			return x
		}
	}
	f.t.Fatalf("%d translations, not one", len(all))
	return nil
}

// TestRefusedPacketsMoveNoTranslation: what the rules or the state refuse neither makes, prolongs
// nor ends one.
func TestRefusedPacketsMoveNoTranslation(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 3000)
	f.publish(8080, 80)
	for _, c := range []struct{ from, to netip.AddrPort }{
		{end(podA, 4000), end(outsideAddr, 80)},
		{end(outsideAddr, 4000), end(hostAddr, 8080)},
	} {
		client, server := f.shake(c.from, c.to)
		before := f.only()
		if before.phase() != flow.PhaseEstablished {
			t.Fatalf("%s after the handshake", before.phase())
		}
		f.age(t, 100*time.Second)
		aged := f.only().sides[0].Last
		for what, s := range map[string]packet.TCP{
			"RST":  {Seq: 12345 << 16, Flags: packet.FlagRST},
			"FIN":  {Seq: 12345 << 16, Ack: 77, Flags: packet.FlagFIN | packet.FlagACK},
			"data": {Seq: 12345 << 16, Ack: 1, Flags: packet.FlagACK},
		} {
			// As whoever stands outside can forge it.
			from, to := server, client
			if c.from.Addr() == outsideAddr {
				from, to = c.from, c.to
			}
			if code, _, _ := f.send(from, to, s); code != wasShot {
				t.Errorf("a blind %s: %d", what, code)
			}
			x := f.only()
			if x.phase() != flow.PhaseEstablished || x.sides[0].Last != aged ||
				x.sides[0].Flags != before.sides[0].Flags {
				t.Errorf("a refused %s moved the translation: %s, %d ns later, flags %x", what,
					x.phase(), x.sides[0].Last-aged, x.sides[0].Flags)
			}
		}
		f.must(f.engine.endWhere(func(*entry) bool { return true }))
	}
	// What the rules refuse on its way in, or on its way out, makes none.
	f.send(end(podA, 4000), end(outsideAddr, 666), packet.UDP{})
	f.publish(8080, 666)
	f.send(end(outsideAddr, 4000), end(hostAddr, 8080), packet.UDP{})
	f.must(f.engine.Load(compile(t,
		"add 2 deny ip from any to any out\nadd allow ip from any to any\n")))
	f.send(end(podA, 4000), end(outsideAddr, 7), packet.UDP{})
	f.send(end(outsideAddr, 4000), end(hostAddr, 8080), packet.UDP{})
	if all := f.pairs(); len(all) != 0 {
		t.Errorf("refused packets made %v", all)
	}
}

// TestTranslationsHaveTheLifeOfTheirState compares both through a connection's life, and lets a SYN
// begin again.
func TestTranslationsHaveTheLifeOfTheirState(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 3000)
	from, to := end(podA, 4000), end(outsideAddr, 80)
	agree := func(what string, want flow.Phase) {
		t.Helper()
		x := f.only()
		for s, err := range f.engine.States() {
			f.must(err)
			if s.Proto != packet.ProtoTCP {
				continue
			}
			if s.Phase != want || x.phase() != want {
				t.Errorf("%s: the state is %s, its translation %s, not %s", what, s.Phase,
					x.phase(), want)
			}
		}
	}
	wire, server := f.shake(from, to)
	agree("handshake", flow.PhaseEstablished)
	shown := 0
	for s, err := range f.engine.States() {
		f.must(err)
		if s.Proto == packet.ProtoTCP {
			shown++
			if s.From != from || s.To != to || s.WireFrom != wire || s.WireTo != server {
				t.Errorf("shown as %+v, on the wire it is %s > %s", s, wire, server)
			}
		}
	}
	if shown != 1 {
		t.Errorf("shown %d times", shown)
	}
	f.send(from, to, packet.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagFIN | packet.FlagACK,
		Window: 1000})
	agree("half closed", flow.PhaseEstablished)
	f.send(server, wire, packet.TCP{Seq: 1000, Ack: 101, Flags: packet.FlagFIN | packet.FlagACK,
		Window: 1000})
	agree("both closed", flow.PhaseClosing)
	f.send(from, to, packet.TCP{Seq: 101, Ack: 1001, Flags: packet.FlagACK, Window: 1000})
	agree("acknowledged", flow.PhaseClosed)
	if code, src, _ := f.send(from, to,
		packet.TCP{Seq: 5000, Flags: packet.FlagSYN, Window: 1000}); code != wentAway ||
		src != wire {
		t.Errorf("the next SYN: %d from %s, not %s", code, src, wire)
	}
	agree("again", flow.PhaseOpening)
	f.age(t, 23*time.Second)
	eventually(t, "the translation ends with its state", func() bool { return len(f.pairs()) == 0 })
	// One question through each kind, and nothing is left of it when its state has gone.
	f.publish(8080, 80)
	f.send(from, to, packet.UDP{})
	f.send(end(outsideAddr, 5), end(hostAddr, 8080), packet.UDP{})
	if n := len(f.pairs()); n != 2 {
		t.Fatalf("%d translations", n)
	}
	f.age(t, 13*time.Second)
	eventually(t, "questions leave nothing", func() bool {
		s, err := f.engine.Stats()
		return err == nil && s.States == 0 && s.Translations.Now == 0
	})
}

// TestStatelessTranslations: where rules keep no state, the translation follows the same machine by
// itself.
func TestStatelessTranslations(t *testing.T) {
	f := newFrames(t, "add allow ip from any to any\n")
	f.masquerade(2000, 3000)
	from, to := end(podA, 4000), end(outsideAddr, 80)
	wire, server := f.shake(from, to)
	is := func(what string, want flow.Phase) {
		t.Helper()
		if x := f.only(); x.phase() != want {
			t.Errorf("%s: %s, not %s", what, x.phase(), want)
		}
	}
	is("handshake", flow.PhaseEstablished)
	for s, err := range f.engine.States() {
		f.must(err)
		if s.From != from || s.WireFrom != wire || s.Rule != 0 {
			t.Errorf("shown as %+v", s)
		}
	}
	f.send(server, wire, packet.TCP{Seq: 7 << 20, Flags: packet.FlagRST})
	is("a blind RST", flow.PhaseEstablished)
	f.send(server, wire, packet.TCP{Seq: 1000, Ack: 100, Flags: packet.FlagRST | packet.FlagACK})
	is("an RST", flow.PhaseReset)
	f.send(from, to, packet.TCP{Seq: 5 << 20, Flags: packet.FlagSYN, Window: 1000})
	is("a SYN", flow.PhaseOpening)
}

// TestTheSamePortCallsThePod: who called a published port calls the pod itself by the same port,
// and gets the pod's own answer.
func TestTheSamePortCallsThePod(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	client := end(outsideAddr, 4000)
	f.shake(client, end(hostAddr, 8080))
	f.send(client, end(hostAddr, 8080),
		packet.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagRST | packet.FlagACK})
	if x := f.only(); x.phase() != flow.PhaseReset {
		t.Fatalf("%s", x.phase())
	}
	f.send(client, end(podA, 80), packet.TCP{Seq: 7000, Flags: packet.FlagSYN, Window: 1000})
	code, src, _ := f.send(end(podA, 80), client,
		packet.TCP{Seq: 1, Ack: 7001, Flags: packet.FlagSYN | packet.FlagACK, Window: 1000})
	if code != wentAway || src != end(podA, 80) {
		t.Errorf("the pod's answer: %d, from %s", code, src)
	}
	// The connection to the pod itself is live: a forged packet to the port does not turn its
	// answers.
	f.send(client, end(podA, 80),
		packet.TCP{Seq: 7001, Ack: 2, Flags: packet.FlagACK, Window: 1000})
	if code, _, _ := f.send(client, end(hostAddr, 8080),
		packet.TCP{Seq: 8000, Flags: packet.FlagSYN, Window: 1000}); code != wasShot {
		t.Errorf("a SYN to the port, with the ports of a live connection to the pod: %d", code)
	}
	if all := f.pairs(); len(all) != 0 {
		t.Errorf("translated: %v", all)
	}
}

// TestPortsForManyQuestions: when the ports towards one end are used up, the question that has been
// idle longest gives way, an established connection never.
func TestPortsForManyQuestions(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(2000, 2099)
	kept, _ := f.shake(end(podA, 4000), end(outsideAddr, 53))
	for i := range 3000 {
		from, to := end(podA, 10000+i), end(outsideAddr, 53)
		code, src, dst := f.send(from, to, packet.UDP{})
		if code != wentAway || src.Addr() != hostAddr || src.Port() < 2000 || src.Port() > 2099 {
			t.Fatalf("question %d: %d from %s", i, code, src)
		}
		if code, _, to := f.send(dst, src, packet.UDP{}); code != wentAway || to != from {
			t.Fatalf("answer %d: %d to %s", i, code, to)
		}
	}
	if code, _, to := f.send(end(outsideAddr, 53), kept,
		packet.TCP{Seq: 1000, Ack: 100, Flags: packet.FlagACK, Window: 1000}); code != wentAway ||
		to != end(podA, 4000) {
		t.Errorf("the connection that was there before: %d to %s", code, to)
	}
	// Connections have the same ports, and no more.
	for i := range 100 {
		f.send(end(podA, 20000+i), end(outsideAddr, 80),
			packet.TCP{Flags: packet.FlagSYN, Window: 1000})
	}
	f.must(f.engine.endWhere(func(*entry) bool { return true }))
	made := 0
	for i := range 200 {
		from := end(podA, 20000+i)
		code, src, dst := f.send(from, end(outsideAddr, 80),
			packet.TCP{Seq: 99, Flags: packet.FlagSYN, Window: 1000})
		if code != wentAway {
			break
		}
		f.send(dst, src, packet.TCP{Seq: 999, Ack: 100, Flags: packet.FlagSYN | packet.FlagACK,
			Window: 1000})
		f.send(from, dst, packet.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagACK, Window: 1000})
		made++
	}
	established := 0
	for _, x := range f.pairs() {
		if x.phase() == flow.PhaseEstablished {
			established++
		}
	}
	if made < 70 || made != established {
		t.Errorf("%d connections were made by 100 ports, %d are there", made, established)
	}
	if code, _, _ := f.send(end(podB, 1), end(outsideAddr, 81),
		packet.TCP{Flags: packet.FlagSYN, Window: 1000}); code != wentAway {
		t.Errorf("towards another end the same ports are free: %d", code)
	}
	if d := f.decisions(t); d[firewall.ReasonNATPorts] == 0 {
		t.Error("nothing was counted as nat-ports")
	}
}

func (f *frames) decisions(t *testing.T) map[firewall.Reason]uint64 {
	t.Helper()
	all, err := f.engine.Decisions()
	f.must(err)
	n := map[firewall.Reason]uint64{}
	for d, c := range all {
		n[d.Reason] += c.Packets
	}
	return n
}

// TestCapsOnTranslations: a pod has no more than its share, the host keeps room, and the counts are
// exact.
func TestCapsOnTranslations(t *testing.T) {
	f := newFrames(t, natRules)
	f.masquerade(1024, 65535)
	f.publish(8080, 80)
	f.engine.mu.Lock()
	f.engine.config.MaxNats, f.engine.config.MaxPodNats = 300, 200
	err := f.engine.putConfigLocked()
	f.engine.mu.Unlock()
	f.must(err)
	kept, _ := f.shake(end(podB, 4000), end(outsideAddr, 53))
	most := 0
	for i := range 1000 {
		if code, _, _ := f.send(end(podA, 10000+i), end(outsideAddr, 1+i%50),
			packet.UDP{}); code != wentAway {
			t.Fatalf("question %d: %d", i, code)
		}
		if i%100 == 0 {
			most = max(most, len(f.pairs()))
		}
	}
	if n := len(f.pairs()); n != 201 || most > 201 {
		t.Errorf("%d translations, at most %d, with a share of 200 and one of another pod", n, most)
	}
	for i := range 1000 {
		if code, _, _ := f.send(end(outsideAddr, 10000+i), end(hostAddr, 8080),
			packet.UDP{}); code != wentAway {
			t.Fatalf("question %d through the port: %d", i, code)
		}
		if code, _, _ := f.send(end(podB, 10000+i), end(outsideAddr, 53),
			packet.UDP{}); code != wentAway {
			t.Fatalf("question %d of the other: %d", i, code)
		}
	}
	if n := len(f.pairs()); n != 300 {
		t.Errorf("%d translations, not 300", n)
	}
	if code, _, to := f.send(end(outsideAddr, 53), kept,
		packet.TCP{Seq: 1000, Ack: 100, Flags: packet.FlagACK, Window: 1000}); code != wentAway ||
		to != end(podB, 4000) {
		t.Errorf("the connection that was there before: %d to %s", code, to)
	}
	var n weirNatCount
	f.must(f.engine.objects.NatCounts.Lookup(f.engine.endpoints[f.a.endpoint.Index].Place, &n))
	if n.Nats > 200 {
		t.Errorf("pod a counts %d", n.Nats)
	}
	f.must(f.engine.endWhere(func(*entry) bool { return true }))
	for _, e := range f.engine.endpoints {
		f.must(f.engine.objects.NatCounts.Lookup(e.Place, &n))
		if n.Nats != 0 {
			t.Errorf("the pod at %d counts %d translations, and there are none", e.Place, n.Nats)
		}
	}
}

// TestTheHostsRefusedCall: the host's own call of a published port is translated before it is
// judged; what is refused is taken back, what passes goes on.
func TestTheHostsRefusedCall(t *testing.T) {
	f := newFrames(t, natRules)
	f.serve(f.a.Node, 80)
	f.publish(8080, 666)
	for _, to := range []string{"192.0.2.1:8080", "127.0.0.1:8080", "[::1]:8080"} {
		if c, err := dialFrom(f.host, to, impatience); err == nil {
			c.Close()
			t.Errorf("%s is open", to)
		}
		if all := f.pairs(); len(all) != 0 {
			t.Errorf("%s: a refused call left %v", to, all)
		}
	}
	f.publish(8080, 80)
	c, err := dialFrom(f.host, "192.0.2.1:8080", patience)
	f.must(err)
	f.must(talk(c, "a word"))
	if x := f.only(); x.phase() != flow.PhaseEstablished || x.sides[0].Flags&metaFresh != 0 {
		t.Errorf("%s, flags %x", x.phase(), x.sides[0].Flags)
	}
	c.Close()
	eventually(t, "the call ends with its connection", func() bool { return len(f.pairs()) == 0 })
}
