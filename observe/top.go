package observe

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// Top sums up events and states: the pairs with the most traffic, and those refused most. Its
// memory is bounded: when there are more pairs than it has space for, the smallest are evicted and
// added to the others. It is not safe for concurrent use.
type Top struct {
	max     int
	refused map[pairKey]*Refusals
	others  Count
	total   Count              // refused packets, all
	ended   map[pairKey]uint64 // bytes of states that have ended since the last call of Talkers
	before  map[pairKey]uint64 // bytes of talkers at the last call of Talkers
	called  time.Time          // when Talkers was last called
}

// Count is a number of packets and bytes.
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

type pairKey struct {
	proto    packet.Proto
	src, dst netip.Addr
	port     uint16 // of dst; 0 if the protocol has none: each ping has an id of its own
}

func pairOf(proto packet.Proto, src, dst netip.AddrPort) pairKey {
	k := pairKey{proto: proto, src: src.Addr(), dst: dst.Addr()}
	if proto.HasPorts() {
		k.port = dst.Port()
	}
	return k
}

// to is the destination as it is shown.
func (k *pairKey) to() netip.AddrPort { return netip.AddrPortFrom(k.dst, k.port) }

// Refusals are the packets from one end to the other that were refused.
type Refusals struct {
	Proto   packet.Proto
	Src     netip.Addr
	Dst     netip.AddrPort
	Rule    uint16 // of the last one
	Reason  firewall.Reason
	Last    time.Time
	Packets uint64
	Bytes   uint64
}

// Talker is a pair with live states or with states that ended since the last call of Talkers.
type Talker struct {
	Proto   packet.Proto
	Src     netip.Addr // the originator
	Dst     netip.AddrPort
	States  int
	Packets uint64
	Bytes   uint64  // both directions, of live states
	Rate    float64 // bytes per second since the last call of Talkers
}

// NewTop has space for max pairs of each kind.
func NewTop(max int) *Top {
	return &Top{max: max, refused: map[pairKey]*Refusals{},
		ended: map[pairKey]uint64{}, before: map[pairKey]uint64{}}
}

// Add adds an event.
func (t *Top) Add(e *firewall.Event, at time.Time) {
	k := pairOf(e.Proto, e.Src, e.Dst)
	switch {
	case Refused(e):
		t.total.Packets++
		t.total.Bytes += uint64(e.Length)
		r := t.refused[k]
		if r == nil {
			t.evict()
			r = &Refusals{Proto: e.Proto, Src: k.src, Dst: k.to()}
			t.refused[k] = r
		}
		r.Packets++
		r.Bytes += uint64(e.Length)
		r.Rule, r.Reason, r.Last = e.Verdict.Rule, e.Verdict.Reason, at
	case e.Kind == firewall.EventEnd:
		if _, known := t.ended[k]; !known && len(t.ended) >= t.max {
			return // Talkers was not called for long; the counters of rules still have it
		}
		t.ended[k] += e.Bytes[0] + e.Bytes[1]
	}
}

// evict removes the smaller half of the refusals when there is no space, so that the work for one
// event is small on average.
func (t *Top) evict() {
	if len(t.refused) < t.max {
		return
	}
	sizes := make([]uint64, 0, len(t.refused))
	for _, r := range t.refused {
		sizes = append(sizes, r.Packets)
	}
	slices.Sort(sizes)
	middle, drop := sizes[len(sizes)/2], len(sizes)/2
	for k, r := range t.refused {
		if drop > 0 && r.Packets <= middle {
			t.others.Packets += r.Packets
			t.others.Bytes += r.Bytes
			delete(t.refused, k)
			drop--
		}
	}
}

// Total returns how much was refused in all, and how much of it belongs to evicted pairs.
func (t *Top) Total() (all, others Count) { return t.total, t.others }

// Refused returns the n pairs that were refused most.
func (t *Top) Refused(n int) []Refusals {
	all := make([]Refusals, 0, len(t.refused))
	for _, r := range t.refused {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Refusals) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), b.Last.Compare(a.Last),
			a.Src.Compare(b.Src), a.Dst.Compare(b.Dst))
	})
	return all[:min(n, len(all))]
}

// Talkers adds the live states up by pair and returns the n with the highest rate since the last
// call, then by bytes. now is the time of the call.
func (t *Top) Talkers(states func(yield func(firewall.State) bool), now time.Time, n int) []Talker {
	pairs := map[pairKey]*Talker{}
	for s := range states {
		k := pairOf(s.Proto, s.From, s.To)
		p := pairs[k]
		if p == nil {
			p = &Talker{Proto: s.Proto, Src: k.src, Dst: k.to()}
			pairs[k] = p
		}
		p.States++
		p.Packets += s.Packets[0] + s.Packets[1]
		p.Bytes += s.Bytes[0] + s.Bytes[1]
	}
	passed := now.Sub(t.called).Seconds()
	bytes := make(map[pairKey]uint64, min(len(pairs), t.max))
	for k, n := range t.ended {
		if pairs[k] == nil {
			pairs[k] = &Talker{Proto: k.proto, Src: k.src, Dst: k.to()}
		}
		pairs[k].Rate = float64(n)
	}
	all := make([]Talker, 0, len(pairs))
	for k, p := range pairs {
		if t.called.IsZero() || passed <= 0 {
			p.Rate = 0
		} else {
			p.Rate = max(0, p.Rate+float64(p.Bytes)-float64(t.before[k])) / passed
		}
		if len(bytes) < t.max*16 && p.States > 0 {
			bytes[k] = p.Bytes
		}
		all = append(all, *p)
	}
	clear(t.ended)
	t.before, t.called = bytes, now
	slices.SortFunc(all, func(a, b Talker) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Bytes, a.Bytes),
			a.Src.Compare(b.Src), a.Dst.Compare(b.Dst))
	})
	return all[:min(n, len(all))]
}
