package kernel

import (
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

// BenchmarkTakeOver measures what the start of an agent takes where the one before has left a
// million entries and guards an interface. It measures opening the engine with its programs, the
// first Load, and the first Attach, after which the other engine is gone. It does so with tables of
// the same size and of another. Run with -benchtime 1x.
func BenchmarkTakeOver(b *testing.B) {
	const million = 1 << 20
	for _, kind := range []struct {
		name    string
		entries int // that each n makes
		calls   func(n, rule uint32, now int64) []weirCall
	}{{"udp", 1, udpState}, {"tcp", 1, tcpState}, {"translations", 2, translation}} {
		b.Run(kind.name, func(b *testing.B) {
			t := newTakeOver(b, 2*million)
			e := t.start("first")
			rule := e.rules[1].Id
			var calls []weirCall
			for n := range uint32(million / kind.entries) {
				calls = append(calls, kind.calls(n, rule, e.now())...)
				if len(calls) >= entriesAtOnce {
					if err := e.call.adopt(calls); err != nil {
						b.Fatal(err)
					}
					calls = calls[:0]
				}
			}
			for _, name := range []string{"same", "resized"} {
				if err := e.Close(); err != nil {
					b.Fatal(err)
				}
				if name == "resized" {
					t.options.MaxStates += million
				}
				e = t.start(name)
				if n := countStates(b, e); n < million*99/100 {
					b.Errorf("%s: %d entries", name, n)
				}
			}
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// takeOver starts one engine after another on the same pins and the same interface.
type takeOver struct {
	b       *testing.B
	host    *nstest.Node
	index   uint32
	dir     string
	options firewall.Options
}

func newTakeOver(b *testing.B, states int) *takeOver {
	lab := nstest.New(b)
	t := &takeOver{b: b, host: lab.Node("host"), dir: filepath.Join(nstest.Bpffs(b), "weir"),
		options: firewall.DefaultOptions()}
	lab.Join(t.host, "eth0", "10.0.0.1/24", lab.Node("peer"), "eth0", "10.0.0.2/24")
	o := &t.options
	o.MaxStates, o.MaxHalfOpen, o.MaxPerSource = states, states, 0
	o.Timeouts.UDP, o.Timeouts.UDPReply, o.Timeouts.Established = time.Hour, time.Hour, time.Hour
	t.must(t.host.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		t.index = uint32(i.Index)
		return err
	}))
	return t
}

func (t *takeOver) must(err error) {
	t.b.Helper()
	if err != nil {
		t.b.Fatalf("%+v", err)
	}
}

// start starts an engine and reports how long its steps take.
func (t *takeOver) start(name string) (e *Engine) {
	program := compile(t.b, "add check-state\nadd allow ip from any to any keep-state\n")
	began := time.Now()
	whole := began
	step := func(what string, do func() error) {
		t.must(t.host.Do(do))
		t.b.ReportMetric(time.Since(began).Seconds(), name+"-"+what+"-s")
		began = time.Now()
	}
	step("open", func() (err error) {
		e, err = Open(Config{Dir: t.dir, Options: t.options})
		return err
	})
	step("load", func() error { return e.Load(program) })
	step("attach", func() error { _, err := e.Attach(t.index); return err })
	t.b.ReportMetric(time.Since(whole).Seconds(), name+"-s")
	return e
}

// adoptedKey is that of the nth flow.
func adoptedKey(proto packet.Proto, n uint32) (k flow.Key, from flow.End) {
	return flow.KeyBetween(proto, netip.AddrPortFrom(netip.AddrFrom4([4]byte{20, byte(n >> 16),
		byte(n >> 8), byte(n)}), 4000), netip.MustParseAddrPort("10.0.0.1:53"), 0)
}

// stateCall describes a state of the nth flow whose sides both have the flags.
func stateCall(proto packet.Proto, n, rule, flags uint32, now int64) weirCall {
	k, from := adoptedKey(proto, n)
	x := entry{tag: uint64(k.Ports)<<32 | uint64(proto)<<24,
		addr: [4]uint64{k.LowHi, k.LowLo, k.HighHi, k.HighLo}}
	for i := range x.sides {
		d := &x.sides[i]
		*d = weirSide{Last: now, Created: now, Rule: rule, Packets: 2, Bytes: 100, Start: n,
			End: n + 100, Ack: n + 100, Edge: n + 60000, Win: 60000, Flags: flags}
		if i == int(from) {
			d.Flags |= metaMade | sideProved
		}
	}
	return x.call(0, 0)
}

func udpState(n, rule uint32, now int64) []weirCall {
	return []weirCall{stateCall(packet.ProtoUDP, n, rule, uint32(flow.SideSeen), now)}
}

func tcpState(n, rule uint32, now int64) []weirCall {
	const flags = flow.SideSeen | flow.SideAcked | flow.SideSyn
	return []weirCall{stateCall(packet.ProtoTCP, n, rule, uint32(flags), now)}
}

// translation describes both entries of a translation without a state.
func translation(n, _ uint32, now int64) []weirCall {
	inner := stateCall(packet.ProtoTCP, n, natRule, metaLoose, now)
	wire := stateCall(packet.ProtoTCP, n|1<<23, natRule, metaWire|metaSource, now)
	inner.Key.Flow, wire.Key.Flow = natFlow, natFlow
	for i := range inner.Side {
		inner.Side[i].Flags &= metaMade | metaLoose
		wire.Side[i].Flags &= metaMade | metaWire | metaSource
	}
	inner.Side[1].Track = uint32(flow.PhaseEstablished)
	wire.Side[1].Track = 0
	wire.Count = adoptPartner
	return []weirCall{inner, wire}
}
