package soft

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// udp returns a UDP packet between two ends.
func udp(t testing.TB, from, to string) []byte {
	t.Helper()
	a, z := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	return enginetest.Packet(t, ip(a, z), build.UDP{SrcPort: a.Port(), DstPort: z.Port()},
		build.Data("hello"))
}

// tcp returns a TCP segment between two ends.
func tcp(t testing.TB, from, to string, flags uint8, seq, ack uint32) []byte {
	t.Helper()
	a, z := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	return enginetest.Packet(t, ip(a, z),
		build.TCP{SrcPort: a.Port(), DstPort: z.Port(), Flags: flags,
			Seq: seq, Ack: ack, Window: 1000})
}

func ip(a, z netip.AddrPort) build.Layer {
	if a.Addr().Is4() {
		return build.IPv4{Src: a.Addr(), Dst: z.Addr()}
	}
	return build.IPv6{Src: a.Addr(), Dst: z.Addr()}
}

// in and out are hooks at a time in seconds.
func in(seconds float64) *firewall.Input {
	return &firewall.Input{Hook: firewall.Hook{Dir: firewall.In, Recv: 1},
		Now: time.Duration(seconds * float64(time.Second))}
}

func out(seconds float64) *firewall.Input {
	return &firewall.Input{Hook: firewall.Hook{Dir: firewall.Out, Xmit: 1},
		Now: time.Duration(seconds * float64(time.Second))}
}

// states returns the live states.
func states(t testing.TB, e *Engine) []firewall.State {
	t.Helper()
	var all []firewall.State
	for s, err := range e.States() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// handshake opens a TCP connection through w.
func handshake(t testing.TB, w *Worker, client, server string, now float64) {
	t.Helper()
	const syn, ack = packet.FlagSYN, packet.FlagACK
	for i, v := range []firewall.Verdict{
		w.Evaluate(in(now), tcp(t, client, server, syn, 100, 0)),
		w.Evaluate(out(now), tcp(t, server, client, syn|ack, 500, 101)),
		w.Evaluate(in(now), tcp(t, client, server, ack, 101, 501)),
	} {
		if !v.Pass {
			t.Fatalf("segment %d of the handshake: %+v", i, v)
		}
	}
}
