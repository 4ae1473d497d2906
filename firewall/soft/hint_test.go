package soft

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// TestHintsChangeNothing gives the same packets to two engines with the same secret, of which one
// forgets before each of them where states are. Tables are small, so that states are moved and
// evicted, and flows share hints.
func TestHintsChangeNothing(t *testing.T) {
	o := Options{Options: firewall.DefaultOptions()}
	o.MaxStates, o.MaxHalfOpen = 300, 150
	const rules = "add 1 check-state\nadd 2 allow ip from any to any out keep-state\n" +
		"add 3 allow udp from any to any 53 in keep-state\n"
	with, without := load(t, o, rules), load(t, o, rules)
	without.seed = with.seed
	for _, table := range []*table{&without.shards[0].established, &without.shards[0].halfOpen} {
		table.seed = with.seed
	}
	g := rand.New(rand.NewPCG(testrand.Seed(t), 1))
	pkts := hintPackets(t, g)
	shared := map[uint64]int{}
	for _, b := range pkts {
		var p packet.Packet
		p.Decode(b)
		shared[hintOf(&p)]++
	}
	if len(shared) > len(pkts)*9/10 {
		t.Fatalf("%d packets have %d hints: too few share one", len(pkts), len(shared))
	}
	now, found := time.Second, 0
	for i := range 300_000 {
		switch g.IntN(20000) {
		case 0, 1, 2:
			drop := uint16(g.IntN(4))
			for _, e := range []*Engine{with, without} {
				if _, err := e.DeleteStates(func(s firewall.State) bool {
					return s.From.Port()%4 == drop
				}); err != nil {
					t.Fatal(err)
				}
			}
		case 3:
			now += 40 * time.Second
		}
		now += time.Duration(g.IntN(3_000_000))
		in := firewall.Input{Now: now, Hook: firewall.Hook{Dir: firewall.Direction(g.IntN(2)),
			Recv: 1, Xmit: 2}}
		b := pkts[g.IntN(len(pkts))]
		s := without.shards[0]
		s.hints, s.moves = [hints]*entry{}, s.moves+1
		got, want := with.Worker(0).Evaluate(&in, b), without.Worker(0).Evaluate(&in, b)
		if got != want {
			t.Fatalf("packet %d %x: %+v with hints, %+v without", i, b, got, want)
		}
		if got.State == firewall.StateHit {
			found++
		}
	}
	if found < 10_000 {
		t.Errorf("only %d packets met their state", found)
	}
	all := func(e *Engine) (states []firewall.State) {
		for s, err := range e.States() {
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, s)
		}
		return states
	}
	if a, b := all(with), all(without); !slices.Equal(a, b) {
		t.Errorf("%d states with hints, %d without, or other ones", len(a), len(b))
	}
}

// hintPackets returns packets of both directions of a few hundred flows, some of which have the
// same port or address at both ends.
func hintPackets(t *testing.T, g *rand.Rand) (all [][]byte) {
	v4 := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
	v6 := []string{"fd00::1", "fd00::2", "fd00:1::1"}
	for range 900 {
		ends := v4
		if g.IntN(3) == 0 {
			ends = v6
		}
		src, dst := netip.MustParseAddr(ends[g.IntN(3)]), netip.MustParseAddr(ends[g.IntN(3)])
		ports := [2]uint16{uint16(50 + g.IntN(12)), uint16(50 + g.IntN(12))}
		for range 2 {
			var ip build.Layer = build.IPv4{Src: src, Dst: dst}
			if src.Is6() {
				ip = build.IPv6{Src: src, Dst: dst}
			}
			var l4 build.Layer = build.UDP{SrcPort: ports[0], DstPort: ports[1]}
			if g.IntN(2) == 0 {
				flags := []uint8{packet.FlagSYN, packet.FlagSYN | packet.FlagACK,
					packet.FlagACK, packet.FlagACK | packet.FlagFIN, packet.FlagRST}[g.IntN(5)]
				l4 = build.TCP{SrcPort: ports[0], DstPort: ports[1], Seq: uint32(g.IntN(2)),
					Ack: uint32(g.IntN(2)), Flags: flags, Window: 1000}
			}
			b := enginetest.Packet(t, ip, l4)
			all = append(all, b)
			src, dst = dst, src
			ports[0], ports[1] = ports[1], ports[0]
		}
	}
	return all
}
