package kernel

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// shortConnection is a whole short TCP connection: opened, one request, one answer, closed by both.
func shortConnection(t testing.TB) (frames [][]byte) {
	t.Helper()
	ends := [2]netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")}
	for _, s := range []struct {
		from     int
		flags    uint8
		seq, ack uint32
		data     int
	}{
		{0, packet.FlagSYN, 1000, 0, 0},
		{1, packet.FlagSYN | packet.FlagACK, 5000, 1001, 0},
		{0, packet.FlagACK, 1001, 5001, 100},
		{1, packet.FlagACK | packet.FlagFIN, 5001, 1101, 1000},
		{0, packet.FlagACK | packet.FlagFIN, 1101, 6002, 0},
		{1, packet.FlagACK, 6002, 1102, 0},
	} {
		ports := [2]uint16{0, 80}
		b := enginetest.Packet(t, build.IPv4{Src: ends[s.from], Dst: ends[1-s.from]},
			build.TCP{SrcPort: ports[s.from], DstPort: ports[1-s.from],
				Seq: s.seq, Ack: s.ack, Flags: s.flags, Window: 60000},
			build.Data(make([]byte, s.data)))
		frames = append(frames, b)
	}
	return frames
}

// TestShortConnectionsAtFullRate opens and closes so many in a table of the default size, by an
// injected clock and with the sweep's ticks as they come. Not one is refused, and each leaves two
// seconds after its end.
func TestShortConnectionsAtFullRate(t *testing.T) {
	t.Parallel()
	shortConnections(t, 8_000)
}

// TestLongShortConnectionsAtFullRate does it at the rate that the table is made for.
func TestLongShortConnectionsAtFullRate(t *testing.T) { shortConnections(t, 100_000) }

// shortConnections makes so many in a second.
func shortConnections(t *testing.T, rate int) {
	t.Helper()
	nstest.RequireRoot(t)
	e := newEngineWith(t, firewall.DefaultOptions())
	if err := e.Load(compile(t,
		"add check-state\nadd allow tcp from any to any 80 setup keep-state\n")); err != nil {
		t.Fatal(err)
	}
	const seconds, tick = 4, 10 * time.Millisecond
	frames := shortConnection(t)
	now, begin := time.Second, time.Second
	perTick := min(int(e.config.Sets)/100+1, 768) // sets_per_tick of bpf/lib/sweep.h
	hand, most := 0, 0
	sweep := func() {
		if err := e.call.ask(&weirCall{Op: opSweep, Now: int64(now), Place: uint32(hand),
			Count: uint32(perTick)}); err != nil {
			t.Fatal(err)
		}
		if hand += perTick; hand >= int(e.config.Sets) {
			hand = 0
		}
	}
	n := 0
	for ; now < begin+seconds*time.Second; now += tick {
		for range rate / int(time.Second/tick) {
			for i, b := range frames {
				// The client's address and port are those of connection n; checksums are not looked
				// at.
				client := 12
				if i == 1 || i == 3 || i == 5 {
					client = 16
				}
				binary.BigEndian.PutUint32(b[client:], 0x0a100000|uint32(n>>15))
				binary.BigEndian.PutUint16(b[20+portAt(client):], uint16(1024+n&0x7fff))
				v, err := e.Evaluate(&firewall.Input{Now: now}, b)
				if err != nil {
					t.Fatal(err)
				}
				if !v.Pass {
					t.Fatalf("connection %d after %v, packet %d: %+v", n, now-begin, i, v)
				}
			}
			n++
		}
		sweep()
		s, err := e.Stats()
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, s.States)
	}
	t.Logf("%d connections, at most %d states at once of %d", n, most, e.config.MaxStates)
	if most > int(e.config.MaxStates) {
		t.Errorf("%d states, %d are allowed", most, e.config.MaxStates)
	}
	for end := now + 2*time.Second; now < end+tick; now += tick {
		sweep()
	}
	if s, err := e.Stats(); err != nil || s.States != 0 {
		t.Errorf("two seconds after the last connection %d states are left (%v)", s.States, err)
	}
}

// portAt is where the client's port lies behind the IP header: the source's comes first.
func portAt(client int) int {
	if client == 16 {
		return 2
	}
	return 0
}

// TestStatelessRulesPassInAFullTable fills the table to the last state: rules with states refuse,
// and those without still pass.
func TestStatelessRulesPassInAFullTable(t *testing.T) {
	nstest.RequireRoot(t)
	o := firewall.DefaultOptions()
	o.MaxStates, o.MaxHalfOpen = 1000, 1000
	e := newPartEngine(t, o)
	if err := e.Load(compile(t, `add 10 allow tcp from 10.9.9.9 to any 22
add 20 allow tcp from any 22 to 10.9.9.9
add 30 check-state
add 40 allow udp from any to any keep-state
add 50 allow tcp from any to any setup keep-state
`)); err != nil {
		t.Fatal(err)
	}
	evaluate := func(b []byte) firewall.Verdict {
		t.Helper()
		v, err := e.Evaluate(&firewall.Input{Now: time.Second}, b)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for n := range 2000 { // answered, so that nothing of it is ever evicted
		evaluate(udpFrame(t, n, false)[14:])
		evaluate(udpFrame(t, n, true)[14:])
		evaluate(udpFrame(t, n, false)[14:]) // and sent again: proved
	}
	ssh := func(from, to string, s build.TCP) firewall.Verdict {
		t.Helper()
		b := enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr(from),
			Dst: netip.MustParseAddr(to)}, s)
		return evaluate(b)
	}
	if v := evaluate(udpFrame(t, 3000, false)[14:]); v.Pass ||
		v.Reason != firewall.ReasonStatesFull {
		t.Errorf("a new flow in a full table: %+v", v)
	}
	if v := ssh("10.8.8.8", "10.0.0.1",
		build.TCP{SrcPort: 1, DstPort: 22, Flags: packet.FlagSYN}); v.Pass ||
		v.Reason != firewall.ReasonStatesFull {
		t.Errorf("a new connection in a full table: %+v", v)
	}
	for _, flags := range []uint8{packet.FlagSYN, packet.FlagACK, packet.FlagACK | packet.FlagPSH,
		packet.FlagACK | packet.FlagFIN} {
		if v := ssh("10.9.9.9", "10.0.0.1",
			build.TCP{SrcPort: 1, DstPort: 22, Flags: flags}); !v.Pass || v.Rule != 10 {
			t.Errorf("without a state in: %+v", v)
		}
		if v := ssh("10.0.0.1", "10.9.9.9",
			build.TCP{SrcPort: 22, DstPort: 1, Flags: flags | packet.FlagACK}); !v.Pass ||
			v.Rule != 20 {
			t.Errorf("without a state out: %+v", v)
		}
	}
	decided, err := e.Decisions()
	if err != nil {
		t.Fatal(err)
	}
	if n := firewall.ByReason(decided)[firewall.ReasonStatesFull]; n < 900 {
		t.Errorf("%d packets were refused for a full table", n)
	}
	if n := e.agree(t); n.halfOpen != 0 || n.live < 950 {
		t.Errorf("%+v", n)
	}
}
