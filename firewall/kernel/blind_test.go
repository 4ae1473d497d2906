package kernel

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// forger sends segments as if one end of a connection had sent them.
type forger struct {
	fd       int
	from, to netip.AddrPort
}

func newForger(t *testing.T, n *nstest.Node, from, to net.Addr) *forger {
	t.Helper()
	f := &forger{from: from.(*net.TCPAddr).AddrPort(), to: to.(*net.TCPAddr).AddrPort()}
	f.from = netip.AddrPortFrom(f.from.Addr().Unmap(), f.from.Port())
	f.to = netip.AddrPortFrom(f.to.Addr().Unmap(), f.to.Port())
	family := unix.AF_INET
	if f.from.Addr().Is6() {
		family = unix.AF_INET6
	}
	if err := n.Do(func() (err error) {
		f.fd, err = rawSocket(family, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(f.fd) })
	return f
}

func (f *forger) send(t *testing.T, flags uint8, seq, ack uint32, data string) {
	t.Helper()
	s := build.TCP{SrcPort: f.from.Port(), DstPort: f.to.Port(), Seq: seq, Ack: ack, Flags: flags,
		Window: 500}
	var b []byte
	var to unix.Sockaddr
	var err error
	if f.from.Addr().Is4() {
		b, err = build.Packet(build.IPv4{Src: f.from.Addr(), Dst: f.to.Addr()}, s,
			build.Data(data))
		to = &unix.SockaddrInet4{Addr: f.to.Addr().As4()}
	} else {
		b, err = build.Packet(build.IPv6{Src: f.from.Addr(), Dst: f.to.Addr()}, s,
			build.Data(data))
		to = &unix.SockaddrInet6{Addr: f.to.Addr().As16()}
	}
	if err == nil {
		err = unix.Sendto(f.fd, b, 0, to)
	}
	// What the engine drops on its way out is refused here.
	if err != nil && err != unix.EPERM && err != unix.ENOBUFS {
		t.Fatal(err)
	}
}

// numbers are what a segment may change of a state.
func (g *pairLab) numbers(t *testing.T) (all [2]weirSide) {
	t.Helper()
	n := 0
	for x, err := range g.engine.entries() {
		if err != nil {
			t.Fatal(err)
		}
		n++
		all = x.sides
	}
	if n != 1 {
		t.Fatalf("%d states", n)
	}
	for i := range all {
		// Challenge ACKs of the ends are real; they are counted, and show the current window.
		all[i].Last, all[i].Packets, all[i].Bytes, all[i].Edge, all[i].Win = 0, 0, 0, 0, 0
	}
	return all
}

// TestBlindSegmentsChangeNothing injects resets, SYNs, FINs and data into a connection, as a host
// would that knows addresses and ports but not the numbers (RFC 5961). The numbers are at every
// kind of place around the window, but for the one exact number of a reset. The acknowledgements
// are of what was never sent or was sent long ago.
func TestBlindSegmentsChangeNothing(t *testing.T) {
	t.Parallel()
	injectBlindly(t, 20, 2)
}

// TestLongBlindSegmentsChangeNothing draws more numbers at random.
func TestLongBlindSegmentsChangeNothing(t *testing.T) {
	t.Parallel()
	injectBlindly(t, 200, 20)
}

// injectBlindly draws so many sequence numbers and acknowledgements at random beside those around
// the window.
func injectBlindly(t *testing.T, seqs, drawn int) {
	t.Helper()
	g := newPairLab(t, setupRules)
	seed := testrand.Seed(t)
	r := rand.New(rand.NewPCG(seed, 2))
	all := 0
	for round, host := range []string{"10.0.0.1", "fd00::1"} {
		c, s := g.pair(t, host, 90+round)
		g.exchangeWords(t, c, s, "before")
		// The lower address has the first side of the state.
		client, server := 0, 1
		if netip.MustParseAddr(host).Less(
			c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()) {
			client, server = 1, 0
		}
		before := g.numbers(t)
		sent := 0
		for _, as := range []struct {
			name string
			f    *forger
			side int
		}{
			{"client", newForger(t, g.client, c.LocalAddr(), s.LocalAddr()), client},
			{"server", newForger(t, g.server, s.LocalAddr(), c.LocalAddr()), server},
		} {
			sent += as.f.inject(t, before[as.side], before[1-as.side], r, seqs, drawn)
			if after := g.numbers(t); after != before {
				t.Errorf("%s: segments as if from the %s changed the state\nfrom %+v\nto   %+v",
					host, as.name, before, after)
			}
			g.exchangeWords(t, c, s, host+", after segments as if from the "+as.name)
			before = g.numbers(t)
		}
		drops, err := g.engine.Decisions()
		if err != nil {
			t.Fatal(err)
		}
		by := firewall.ByReason(drops)
		refused := by[firewall.ReasonTCPAck] + by[firewall.ReasonTCPWindow] +
			by[firewall.ReasonTCPFlags] + by[firewall.ReasonTCPRst]
		t.Logf("%s: %d segments, %d refused in all: %v", host, sent, refused, by)
		if all += sent; refused < uint64(all)/2 {
			t.Errorf("of %d injected segments the engine refused %d: did they reach it?", all,
				refused)
		}
		c.Close()
		s.Close()
		g.forget(t)
	}
}

// exchangeWords sends a word both ways, and waits until both are acknowledged: that may be delayed.
func (g *pairLab) exchangeWords(t *testing.T, c, s net.Conn, when string) {
	t.Helper()
	if err := sendWord(c, s, when+", to the server"); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if err := sendWord(s, c, when+", to the client"); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	nstest.Eventually(t, when+": all is acknowledged", func() bool {
		n := g.numbers(t)
		return n[0].Ack == n[1].End && n[1].Ack == n[0].End
	})
}

// inject sends segments for one side of a connection. These are resets and SYNs with every sequence
// number but the exact one, and data and FINs that acknowledge what was never sent or long ago. It
// returns how many it sent.
func (f *forger) inject(t *testing.T, own, peer weirSide, r *rand.Rand,
	seqs, drawn int) (sent int) {
	t.Helper()
	send := func(flags uint8, seq, ack uint32, data string) {
		f.send(t, flags, seq, ack, data)
		sent++
	}
	places := []uint32{own.End + 1, own.End - 1, own.End + 2, own.End + 100, own.End + 30000,
		own.End - 30000, own.Start, own.Start + 1, own.End - 66000, own.End + 66000,
		own.End + 1<<20, own.End + 1<<31, own.End + 1<<31 - 1, 0, 1<<32 - 1, peer.End, peer.Start}
	named := len(places)
	for range seqs {
		places = append(places, r.Uint32())
	}
	for _, seq := range places {
		if seq == own.End || seq == peer.Ack {
			continue
		}
		send(packet.FlagRST, seq, 0, "")
		send(packet.FlagRST|packet.FlagACK, seq, peer.End, "")
		send(packet.FlagSYN, seq, 0, "")
	}
	acks := []uint32{peer.End + 1, peer.End + 1000, peer.End + 1<<31, peer.End + 1<<31 - 1,
		peer.End - 1<<21}
	for range drawn {
		if a := r.Uint32(); a-peer.End+1<<21 > 1<<21 { // not in what was sent lately
			acks = append(acks, a)
		}
	}
	for _, seq := range append(places[:named+drawn], own.End) {
		for _, ack := range acks {
			send(packet.FlagACK|packet.FlagPSH, seq, ack, "INJECTED")
			send(packet.FlagACK|packet.FlagFIN, seq, ack, "")
			send(packet.FlagSYN|packet.FlagACK, seq, ack, "")
		}
		send(packet.FlagPSH, seq, 0, "INJECTED") // no ACK at all
	}
	return sent
}
