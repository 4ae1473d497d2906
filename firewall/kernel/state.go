package kernel

import (
	"fmt"
	"iter"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

const sideProved = uint32(flow.SideProved)

// entry is a copy of one state in the kernel.
type entry struct {
	place uint32
	tag   uint64
	addr  [4]uint64 // low end, high end
	sides [2]weirSide
}

// entries yields copies of the live entries of the table, from memory that we share with the
// kernel.
func (e *Engine) entries() iter.Seq2[*entry, error] {
	return func(yield func(*entry, error) bool) {
		var s weirSet
		var t, again weirTagLine
		var tags *ebpf.Memory
		states, err := e.objects.States.Memory()
		if err == nil {
			tags, err = e.objects.Tags.Memory()
		}
		if err != nil {
			yield(nil, fmt.Errorf("map the memory of the states: %w", err))
			return
		}
		for n := range int64(states.Size()) / int64(unsafe.Sizeof(s)) {
			if err = readAt(tags, &t, n); err == nil && anyLive(&t.Tag) {
				// What was removed while it was copied is left out: its tag has changed.
				if err = readAt(states, &s, n); err == nil {
					err = readAt(tags, &again, n)
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for way := range t.Tag {
				if t.Tag[way]&tagMask != tagLive || t.Tag[way] != again.Tag[way] {
					continue
				}
				x := entry{place: uint32(n)*ways + uint32(way), tag: t.Tag[way],
					sides: [2]weirSide{s.Side[2*way], s.Side[2*way+1]}}
				a := &s.Addr[way]
				x.addr = [4]uint64{a.LowHi, a.LowLo, a.HighHi, a.HighLo}
				if !yield(&x, nil) {
					return
				}
			}
		}
	}
}

// readAt copies the nth element of a map.
func readAt[T any](m *ebpf.Memory, to *T, n int64) error {
	size := int64(unsafe.Sizeof(*to))
	_, err := m.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(to)), size), n*size)
	return err
}

func anyLive(tags *[ways]uint64) bool {
	for i := range tags {
		if tags[i]&tagMask == tagLive {
			return true
		}
	}
	return false
}

// key returns the key, without the id of the flow name.
func (x *entry) key() flow.Key {
	return flow.Key{LowHi: x.addr[0], LowLo: x.addr[1], HighHi: x.addr[2], HighLo: x.addr[3],
		Ports: uint32(x.tag >> 32), Proto: packet.Proto(x.tag >> 24)}
}

// state returns the state as the state machine sees it, and which of the two sides made it.
func (x *entry) state() (s flow.State, made int) {
	s.Proto = packet.Proto(x.tag >> 24)
	if x.sides[1].Flags&metaMade != 0 {
		made = 1
	}
	s.Loose = x.sides[0].Flags&metaLoose != 0
	for i := range s.Sides {
		w := &x.sides[made^i]
		s.Sides[i] = flow.Side{
			Last: time.Duration(w.Last), Packets: w.Packets, Bytes: w.Bytes, Start: w.Start,
			End: w.End, Ack: w.Ack, Edge: w.Edge, Win: w.Win,
			Flags: flow.SideFlags(w.Flags), Scale: uint8(w.Flags >> 8 & 15),
		}
	}
	return s, made
}

// States yields the live states: those that have not expired and whose rule is in force. A
// translated flow comes once, with both its tuples.
func (e *Engine) States() iter.Seq2[firewall.State, error] {
	return func(yield func(firewall.State, error) bool) {
		now := e.now()
		slots, flows := e.slots()
		translated, err := e.translations(now)
		if err != nil {
			yield(firewall.State{}, err)
			return
		}
		for x, err := range e.entries() {
			if err != nil {
				yield(firewall.State{}, err)
				return
			}
			rule, ok := slots[x.sides[0].Rule]
			if !ok {
				continue
			}
			s := e.show(x, rule, flows)
			if s.Deadline < time.Duration(now) {
				continue
			}
			if t := translated[x.tuple()]; t != nil {
				s.WireFrom, s.WireTo = t.WireFrom, t.WireTo
				if s.From != t.From { // what the pod answers has made the state
					s.WireFrom, s.WireTo = s.WireTo, s.WireFrom
				}
				t.Rule = s.Rule
			}
			if !yield(s, nil) {
				return
			}
		}
		for _, t := range translated {
			if t.Rule == 0 && !yield(*t, nil) {
				return
			}
		}
	}
}

// show turns an entry into what people and tools see.
func (e *Engine) show(x *entry, rule *weirCode, flows map[uint8]string) firewall.State {
	fs, made := x.state()
	k := x.key()
	from, to := k.DisplayEnds(flow.End(made))
	s := firewall.State{
		Proto: fs.Proto, From: from, To: to, Query: k.ICMPQueryType(flow.End(made)), Link: k.Link(),
		FlowName: flows[uint8(x.tag>>16)], Rule: rule.Number, Key: rule.Key,
		Phase: fs.Phase(), Created: time.Duration(x.sides[0].Created), Last: fs.Last(),
		Deadline: fs.Deadline(&e.options.Timeouts),
	}
	for i := range fs.Sides {
		s.Packets[i], s.Bytes[i] = fs.Sides[i].Packets, fs.Sides[i].Bytes
	}
	return s
}

// slots returns the rules in force by their ids, and the flow names by theirs.
func (e *Engine) slots() (map[uint32]*weirCode, map[uint8]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	byID := make(map[uint32]*weirCode, len(e.rules))
	rules := append([]weirCode(nil), e.rules...)
	for i := range rules {
		byID[rules[i].Id] = &rules[i]
	}
	flows := map[uint8]string{}
	for id, name := range e.nameIDs.used[nameFlow] {
		flows[uint8(id)] = name
	}
	return byID, flows
}

// DeleteStates ends the states for which drop returns true and returns how many.
func (e *Engine) DeleteStates(drop func(firewall.State) bool) (int, error) {
	slots, flows := e.slots()
	cut := 0
	for x, err := range e.entries() {
		if err != nil {
			return cut, err
		}
		rule, ok := slots[x.sides[0].Rule]
		if !ok || !drop(e.show(x, rule, flows)) {
			continue
		}
		c := weirCall{Op: opRemove, Place: x.place, TagWord: x.tag, Count: goneDeleted}
		if err := e.call.ask(&c); err != nil {
			return cut, err
		}
		cut += int(c.Result)
	}
	return cut, nil
}

// Adopt makes states of TCP connections that are open already, and returns how many it made. Of
// states only From, To, Link, Key (of a rule in force) and FlowName count. They are loose, since
// their windows were not seen, and established. A state that is there already stays.
func (e *Engine) Adopt(states []firewall.State) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	made := 0
	for i := range states {
		s := &states[i]
		id, ok := e.ids.byKey[s.Key]
		if !ok {
			return made, fmt.Errorf("adopt %s -> %s: rule %d is not in force", s.From, s.To, s.Rule)
		}
		name := s.FlowName
		if name == "" {
			name = e.nameIDs.name(nameFlow, 0)
		}
		flowID, ok := e.nameIDs.ids[nameFlow][name]
		if !ok {
			return made, fmt.Errorf("adopt %s -> %s: no rule uses the flow name %q", s.From, s.To,
				name)
		}
		c := adoption(s, id, uint8(flowID), e.now())
		if err := e.call.ask(&c); err != nil {
			return made, err
		}
		if c.Result < 0 {
			return made, fmt.Errorf("adopt %s -> %s: %s", s.From, s.To, firewall.Reason(-c.Result))
		}
		made += int(c.Result)
	}
	return made, nil
}

// adoption describes an established, loose state.
func adoption(s *firewall.State, rule uint32, flowID uint8, now int64) weirCall {
	k, from := flow.KeyBetween(packet.ProtoTCP, s.From, s.To, s.Link)
	c := weirCall{Op: opAdopt}
	c.Key.LowHi, c.Key.LowLo, c.Key.HighHi, c.Key.HighLo = k.LowHi, k.LowLo, k.HighHi, k.HighLo
	c.Key.Ports, c.Key.Proto, c.Key.Flow = k.Ports, uint8(k.Proto), flowID
	for i := range c.Side {
		d := &c.Side[i]
		d.Last, d.Created, d.Rule = now, now, rule
		d.Flags = uint32(flow.SideSeen) | metaLoose | metaAdopted
		if i == int(from) {
			d.Flags |= metaMade | sideProved
		}
	}
	return c
}

// now returns the time of the programs, ns.
func (e *Engine) now() int64 {
	if e.clock != nil {
		return e.clock()
	}
	return monotonic()
}
