package observe

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
)

// random draws events.
type random struct{ *rand.Rand }

func newRandom(t testing.TB) random {
	seed := testrand.Seed(t)
	return random{rand.New(rand.NewPCG(seed, 0))}
}

func pick[T any](g random, of ...T) T { return of[g.IntN(len(of))] }

func (g random) addr(v6 bool) netip.Addr {
	if v6 {
		return pick(g, netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"),
			netip.MustParseAddr("2001:db8::9"))
	}
	return pick(g, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"),
		netip.MustParseAddr("10.0.1.9"), netip.MustParseAddr("192.0.2.1"))
}

func (g random) port() uint16 { return pick[uint16](g, 22, 53, 80, 443, 4000, 40000) }

func (g random) event() Event {
	v6 := g.IntN(2) == 0
	e := Event{At: time.Unix(1700000000+g.Int64N(1000), g.Int64N(1e9)).UTC()}
	e.Event = firewall.Event{
		Kind: firewall.EventKind(1 + g.IntN(5)), Time: time.Duration(e.At.UnixNano()),
		Proto: packet.Proto(pick[uint8](g, 1, 6, 6, 17, 58, 132, 200)),
		Src:   netip.AddrPortFrom(g.addr(v6), g.port()),
		Dst:   netip.AddrPortFrom(g.addr(v6), g.port()), Length: 20 + g.Uint32N(1480),
	}
	e.Hook = firewall.Hook{Dir: firewall.Direction(g.IntN(2))}
	e.Recv, e.Xmit = pick(g, "", "eth0", "eth1", "pod:a\"<b>\x1b\u202e\U0001f600"),
		pick(g, "", "eth0", "wg0")
	e.From, e.To = pick(g, "", "web-1"), pick(g, "", "\\back")
	e.Service = pick(g, "", "http", "\x1b[2J")
	e.Verdict = firewall.Verdict{Rule: uint16(g.IntN(65536)),
		Reason: pick(g, firewall.ReasonRule, firewall.ReasonTCPWindow, firewall.ReasonDecode+1)}
	e.Verdict.Pass = (e.Kind == firewall.EventStart || e.Kind == firewall.EventEnd)
	if e.Proto == packet.ProtoTCP {
		e.TCPFlags = uint8(g.IntN(256))
	}
	if e.Kind == firewall.EventEnd {
		e.Packets, e.Bytes = [2]uint64{g.Uint64(), 7}, [2]uint64{g.Uint64N(1 << 50), 0}
		e.Duration = time.Duration(g.Int64N(1e14))
	}
	if g.IntN(10) == 0 {
		e.Lost = g.Uint64N(1 << 40)
	}
	return e
}
