package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// Translations by single frames, which are put into the programs where they would come in.

// What the programs say of a frame.
const (
	wentUp     = -1 // TC_ACT_UNSPEC
	wasShot    = 2  // TC_ACT_SHOT
	redirected = 7  // TC_ACT_REDIRECT
)

var (
	hostAddr    = netip.MustParseAddr("192.0.2.1")
	outsideAddr = netip.MustParseAddr("192.0.2.2")
	podA        = netip.MustParseAddr("10.88.0.2")
	podB        = netip.MustParseAddr("10.88.0.3")
)

// frames sends single frames through a cluster.
type frames struct {
	*cluster
	nic      crossing
	podLinks map[netip.Addr]crossing
	behind   map[netip.Addr]crossing // hosts behind this one, and the cards to them
}

func newFrames(t testing.TB, rules string) *frames {
	return framesOf(newCluster(t, rules))
}

func framesOf(v *cluster) *frames {
	l := v.host.Link("eth0")
	f := &frames{cluster: v, nic: crossing{index: uint32(l.Index)},
		podLinks: map[netip.Addr]crossing{}}
	copy(f.nic.mac[:], l.HardwareAddr)
	for _, r := range []*podNode{v.a, v.b} {
		f.podLinks[r.endpoint.Addrs[0]] = crossing{r.endpoint.Index, r.endpoint.HostMAC}
	}
	// The NIC knows its neighbours: one packet there and back.
	v.must(v.host.Command("ping", "-c", "1", "-W", "300", outsideAddr.String()).Run())
	return f
}

// send injects a packet: at a pod's host end if it comes from a pod, else at the NIC. It returns
// what became of it and between whom it then goes.
func (f *frames) send(from, to netip.AddrPort, l build.Layer) (code int32, src,
	dst netip.AddrPort) {
	f.t.Helper()
	return f.sendData(from, to, l, 0)
}

// sendData is send of a packet with n bytes of data.
func (f *frames) sendData(from, to netip.AddrPort, l build.Layer, n int) (_ int32, src,
	dst netip.AddrPort) {
	f.t.Helper()
	at, frame := f.frame(from, to, l, n)
	code, out := f.run(f.engine.objects.WeirIn, 0, at.index, frame)
	if x, routed := f.routed(at.index, out); code == wentUp && routed {
		copy(out, x.mac[:]) // it was for the host, and the run decides by the interface
		code, out = f.run(f.engine.objects.WeirOut, at.index, x.index, out)
	}
	port := func(at int) uint16 { return binary.BigEndian.Uint16(out[at:]) }
	src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(out[26:30])), port(34))
	dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(out[30:34])), port(36))
	return code, src, dst
}

// frame returns a packet with n bytes of data, and where it comes in.
func (f *frames) frame(from, to netip.AddrPort, l build.Layer, n int) (at crossing,
	frame []byte) {
	f.t.Helper()
	at, ok := f.podLinks[from.Addr()]
	if !ok {
		at, ok = f.behind[from.Addr()]
	}
	if !ok {
		at = f.nic
	}
	switch s := l.(type) {
	case build.TCP:
		s.SrcPort, s.DstPort = from.Port(), to.Port()
		l = s
	case build.UDP:
		s.SrcPort, s.DstPort = from.Port(), to.Port()
		l = s
	}
	ip := enginetest.Packet(f.t, build.IPv4{Src: from.Addr(), Dst: to.Addr(), TTL: 64}, l,
		build.Data(make([]byte, n)))
	frame = append(append([]byte(nil), at.mac[:]...), 2, 0, 0, 0, 0, 9, 8, 0)
	return at, append(frame, ip...)
}

// run puts a frame into a program at an interface, which it came in by or, with another one that it
// came in by, leaves by.
func (f *frames) run(p *ebpf.Program, recv, index uint32, frame []byte) (code int32, out []byte) {
	f.t.Helper()
	context := make([]byte, 192) // struct __sk_buff
	binary.NativeEndian.PutUint32(context[36:], recv)
	binary.NativeEndian.PutUint32(context[40:], index)
	out = make([]byte, len(frame)+64)
	f.must(f.host.Do(func() error {
		o := &ebpf.RunOptions{Data: frame, DataOut: out, Context: context}
		r, err := p.Run(o)
		code, out = int32(r), o.DataOut
		return err
	}))
	return code, out
}

// routed returns the card that the stack sends a frame by which came in at another one.
func (f *frames) routed(recv uint32, frame []byte) (xmit crossing, ok bool) {
	to := netip.AddrFrom4([4]byte(frame[30:34]))
	if x, behind := f.behind[to]; behind {
		return x, true
	}
	for _, c := range f.behind {
		if c.index == recv && to == outsideAddr {
			return f.nic, true
		}
	}
	return xmit, false
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
		o := byPlace[x.partner()]
		if o == nil || o.partner() != place ||
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

// ends names an entry by its ends as its originator sees them.
func (x *entry) ends() string {
	from, to := x.original()
	return fmt.Sprintf("%d %s>%s", uint8(x.tag>>24), from, to)
}

// age lets time go by for all that lies in the table.
func (f *frames) age(t *testing.T, d time.Duration) {
	(&pairLab{engine: f.engine}).pass(t, d)
}

func end(a netip.Addr, port int) netip.AddrPort { return netip.AddrPortFrom(a, uint16(port)) }

const natRules = "add 1 check-state\nadd 2 deny tcp from any to any 666\n" +
	"add 3 deny udp from any to any 666\n" +
	"add allow tcp from any to any setup keep-state\nadd allow udp from any to any keep-state\n" +
	"add allow icmp from any to any keep-state\nadd deny ip from any to any\n"

// shake makes a connection: it returns the client's end on the wire at the server.
func (f *frames) shake(from, to netip.AddrPort) (wire netip.AddrPort, server netip.AddrPort) {
	f.t.Helper()
	code, src, dst := f.send(from, to, build.TCP{Seq: 99, Flags: packet.FlagSYN, Window: 1000})
	if code != redirected {
		f.t.Fatalf("SYN %s>%s: %d", from, to, code)
	}
	if code, _, _ := f.send(dst, src,
		build.TCP{Seq: 999, Ack: 100, Flags: packet.FlagSYN | packet.FlagACK,
			Window: 1000}); code != redirected {
		f.t.Fatalf("SYN and ACK %s>%s: %d", dst, src, code)
	}
	if code, _, _ := f.send(from, to,
		build.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagACK, Window: 1000}); code != redirected {
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
		for what, s := range map[string]build.TCP{
			"RST":  {Seq: 12345 << 16, Flags: packet.FlagRST},
			"FIN":  {Seq: 12345 << 16, Ack: 77, Flags: packet.FlagFIN | packet.FlagACK},
			"data": {Seq: 12345 << 16, Ack: 1, Flags: packet.FlagACK},
		} {
			// As any host outside can forge it.
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
	f.send(end(podA, 4000), end(outsideAddr, 666), build.UDP{})
	f.publish(8080, 666)
	f.send(end(outsideAddr, 4000), end(hostAddr, 8080), build.UDP{})
	f.must(f.engine.Load(compile(t,
		"add 2 deny ip from any to any out\nadd allow ip from any to any\n")))
	f.send(end(podA, 4000), end(outsideAddr, 7), build.UDP{})
	f.send(end(outsideAddr, 4000), end(hostAddr, 8080), build.UDP{})
	if all := f.pairs(); len(all) != 0 {
		t.Errorf("refused packets made %v", all)
	}
}

// TestTranslationsLiveAsLongAsTheirState compares both through a connection's life, and lets a SYN
// begin again.
func TestTranslationsLiveAsLongAsTheirState(t *testing.T) {
	t.Parallel()
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
	f.send(from, to, build.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagFIN | packet.FlagACK,
		Window: 1000})
	agree("half closed", flow.PhaseEstablished)
	f.send(server, wire, build.TCP{Seq: 1000, Ack: 101, Flags: packet.FlagFIN | packet.FlagACK,
		Window: 1000})
	agree("both closed", flow.PhaseClosing)
	f.send(from, to, build.TCP{Seq: 101, Ack: 1001, Flags: packet.FlagACK, Window: 1000})
	agree("acknowledged", flow.PhaseClosed)
	if code, src, _ := f.send(from, to,
		build.TCP{Seq: 5000, Flags: packet.FlagSYN, Window: 1000}); code != redirected ||
		src != wire {
		t.Errorf("the next SYN: %d from %s, not %s", code, src, wire)
	}
	agree("again", flow.PhaseOpening)
	f.age(t, 23*time.Second)
	nstest.Eventually(t, "the translation ends with its state", func() bool {
		return len(f.pairs()) == 0
	})
	// One question through each kind, and nothing is left of it when its state has gone.
	f.publish(8080, 80)
	f.send(from, to, build.UDP{})
	f.send(end(outsideAddr, 5), end(hostAddr, 8080), build.UDP{})
	if n := len(f.pairs()); n != 2 {
		t.Fatalf("%d translations", n)
	}
	f.age(t, 13*time.Second)
	nstest.Eventually(t, "questions leave nothing", func() bool {
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
	f.send(server, wire, build.TCP{Seq: 7 << 20, Flags: packet.FlagRST})
	is("a blind RST", flow.PhaseEstablished)
	f.send(server, wire, build.TCP{Seq: 1000, Ack: 100, Flags: packet.FlagRST | packet.FlagACK})
	is("an RST", flow.PhaseReset)
	f.send(from, to, build.TCP{Seq: 5 << 20, Flags: packet.FlagSYN, Window: 1000})
	is("a SYN", flow.PhaseOpening)
}
