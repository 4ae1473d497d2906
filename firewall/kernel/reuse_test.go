package kernel

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// segment is one of a connection, its numbers relative to the initial ones of both ends.
type segment struct {
	back     bool // the server's
	flags    uint8
	seq, ack uint32
	data     int
}

// endings are whole short connections that differ in how they end: the server closes first, the
// client does, the client resets, the server resets.
func endings() [][]segment {
	const syn, ack, fin, rst = packet.FlagSYN, packet.FlagACK, packet.FlagFIN, packet.FlagRST
	begin := []segment{{false, syn, 0, 0, 0}, {true, syn | ack, 0, 1, 0}, {false, ack, 1, 1, 100}}
	var all [][]segment
	for _, end := range [][]segment{
		{{true, ack | fin, 1, 101, 1000}, {false, ack | fin, 101, 1002, 0},
			{true, ack, 1002, 102, 0}},
		{{true, ack, 1, 101, 1000}, {false, ack | fin, 101, 1001, 0},
			{true, ack | fin, 1001, 102, 0}, {false, ack, 102, 1002, 0}},
		{{true, ack, 1, 101, 1000}, {false, ack | rst, 101, 1001, 0}},
		{{true, ack | rst, 1, 101, 0}},
	} {
		all = append(all, append(begin[:len(begin):len(begin)], end...))
	}
	return all
}

// TestLongPortReuseAtFullRate opens 30,000 connections a second, by an injected clock, from the
// ports that one client has by default to one port of one server, for four seconds. Each port comes
// again after less than a second, when the state of its last connection is still there, and with
// numbers that tell nothing. Not one packet is refused, and every connection begins a state of its
// own. Three hundred are under way at any time.
func TestLongPortReuseAtFullRate(t *testing.T) {
	nstest.RequireRoot(t)
	e := newEngineWith(t, firewall.DefaultOptions())
	if err := e.Load(compile(t,
		"add check-state\nadd allow tcp from any to any 80 setup keep-state\n")); err != nil {
		t.Fatal(err)
	}
	const (
		rate, seconds    = 30_000, 4
		firstPort, ports = 32768, 28232 // net.ipv4.ip_local_port_range
		apart            = 300          // connections that begin between two segments of one
		total            = rate * seconds
	)
	ends := [2]netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")}
	ways := endings()
	frames := make([][][]byte, len(ways))
	for w, way := range ways {
		for _, s := range way {
			from, sp, dp := 0, uint16(0), uint16(80)
			if s.back {
				from, sp, dp = 1, 80, 0
			}
			b := enginetest.Packet(t, build.IPv4{Src: ends[from], Dst: ends[1-from]},
				build.TCP{SrcPort: sp, DstPort: dp, Flags: s.flags,
					Window: 60000}, build.Data(make([]byte, s.data)))
			frames[w] = append(frames[w], b)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	first := make([][2]uint32, total) // the numbers with which both ends begin
	for n := range first {
		first[n] = [2]uint32{rng.Uint32(), rng.Uint32()}
	}
	at := func(n int) time.Duration { return time.Second + time.Duration(n)*time.Second/rate }
	evaluate := func(n, i int, now time.Duration) {
		w := n / 3 % len(ways) // not in step with the ports
		if i >= len(ways[w]) {
			return
		}
		s, b := ways[w][i], frames[w][i]
		port, own, other := 20, first[n][0], first[n][1]
		if s.back {
			port, own, other = 22, other, own
		}
		binary.BigEndian.PutUint16(b[port:], uint16(firstPort+n%ports))
		binary.BigEndian.PutUint32(b[24:], own+s.seq)
		if s.flags&packet.FlagACK != 0 {
			binary.BigEndian.PutUint32(b[28:], other+s.ack)
		}
		if v, err := e.Evaluate(&firewall.Input{Now: now}, b); err != nil {
			t.Fatal(err)
		} else if !v.Pass || v.State == firewall.StateUntouched {
			t.Fatalf("connection %d, ending %d, packet %d: %+v", n, w, i, v)
		}
	}
	for step := range total + 6*apart {
		for i := range 7 {
			if n := step - i*apart; n >= 0 && n < total {
				evaluate(n, i, at(step))
			}
		}
	}
	s, err := e.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.Created != total || s.States > ports {
		t.Errorf("%d connections made %d states, of which %d are left", total, s.Created, s.States)
	}
}
