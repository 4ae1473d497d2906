package kernel

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// natGrace is how long a translation outlives its flow: NAT_GRACE of bpf/lib/tcp.h.
const natGrace = 2 * time.Second

// tuple is what an entry is found by, whatever its flow name.
type tuple struct {
	addr  [4]uint64
	ports uint32
	proto packet.Proto
}

func (x *entry) tuple() tuple {
	return tuple{x.addr, uint32(x.tag >> 32), packet.Proto(x.tag >> 24)}
}

// original returns the ends of an entry in the direction of its first packet.
func (x *entry) original() (from, to netip.AddrPort) {
	k := x.key()
	return k.DisplayEnds(x.made())
}

// ends are who began a flow, and to whom.
type ends struct{ from, to netip.AddrPort }

// innerEnds returns the ends of the flows of all translations, as they are behind the host, by the
// places of their inner entries.
func (e *Engine) innerEnds() (map[uint32]ends, error) {
	all := map[uint32]ends{}
	for x, err := range e.entries() {
		if err != nil {
			return nil, err
		}
		if x.translation() && x.sides[0].Flags&metaWire == 0 {
			from, to := x.original()
			all[x.place] = ends{from, to}
		}
	}
	return all, nil
}

// made says which side made the entry.
func (x *entry) made() flow.End {
	if x.sides[1].Flags&metaMade != 0 {
		return 1
	}
	return 0
}

// partner is the place of the other entry of a translation: partner_of of bpf/lib/types.h.
func (x *entry) partner() uint32 { return x.sides[0].Track }

// phase is that of the flow of a translation, by its inner entry: a part of side_nat_word of
// bpf/lib/types.h.
func (x *entry) phase() flow.Phase { return flow.Phase(x.sides[1].Track & natPhase) }

// translations returns the live ones by their inner tuples, as states of no rule.
func (e *Engine) translations(now int64) (map[tuple]*firewall.State, error) {
	wires, inners := map[uint32]*entry{}, []*entry{}
	for x, err := range e.entries() {
		if err != nil {
			return nil, err
		}
		switch {
		case !x.translation():
		case x.sides[0].Flags&metaWire != 0:
			wires[x.place] = x
		default:
			inners = append(inners, x)
		}
	}
	all := map[tuple]*firewall.State{}
	for _, x := range inners {
		w := wires[x.partner()]
		if w == nil || w.partner() != x.place {
			continue
		}
		s := &firewall.State{Proto: packet.Proto(x.tag >> 24), Phase: x.phase(),
			Created: time.Duration(x.sides[0].Created),
			Last:    time.Duration(max(x.sides[0].Last, x.sides[1].Last))}
		k := x.key()
		s.Query, s.Link = k.ICMPQueryType(x.made()), k.Link()
		s.From, s.To = x.original()
		s.WireFrom, s.WireTo = w.original()
		s.Deadline = s.Last + e.options.Timeouts.Of(s.Proto, s.Phase)
		if time.Duration(now) <= s.Deadline+natGrace {
			all[x.tuple()] = s
		}
	}
	return all, nil
}
