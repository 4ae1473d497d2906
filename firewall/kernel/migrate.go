package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// The states of an engine with another layout, or with tables of other sizes, are migrated: they
// are adopted when the first Program is loaded. They are adopted again, while its programs and ours
// both run, for every interface that passes from one to the other. TCP numbers only grow, so a
// later adoption brings a state up to date. A state is liberal until the last interface is ours and
// until it has followed its connection from one copy to the next. So a packet that was sent after
// the copy passes. One that has not followed when no copy is left becomes loose: the next packets
// of both sides tell its numbers, as those of an adopted connection.

// previous is what another engine has pinned.
type previous struct {
	dir    string
	pins   *previousPins
	copies *copies // what was copied; nil before the first copy
	taken  bool    // its hooks are ours, those that could be opened
}

// findPrevious opens what another engine has pinned, nil if there is nothing that can be read: an
// unknown layout, or a start that did not complete. One that guards comes first: others may be what
// starts have left that ended before they had a hook.
func (e *Engine) findPrevious() (*previous, error) {
	if e.dir == "" {
		return nil, nil
	}
	others, err := otherLayouts(e.dir)
	if err != nil {
		return nil, err
	}
	if e.resized {
		others = append([]string{e.dir}, others...)
	}
	slices.SortStableFunc(others, func(a, b string) int {
		return cmp.Compare(bit(guards(b)), bit(guards(a)))
	})
	for _, dir := range others {
		pins, err := openPins(dir)
		if errors.Is(err, errNotRead) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what a previous Weir has left in %s: %w", dir, err)
		}
		return &previous{dir: dir, pins: pins}, nil
	}
	return nil, nil
}

var linkOfKey = [...]uint32{0}

// linksOf returns the links to migrate a state to, 0 for that of its key. A link-local key before
// firstLinks does not hold its link: it is each on which the host has the address of one of its
// ends, nearly always one.
func (e *Engine) linksOf(x *entry) []uint32 {
	k := x.key()
	if e.previous.pins.layout >= firstLinks || !k.LinkLocal() {
		return linkOfKey[:]
	}
	var links []uint32
	for _, i := range e.ifs {
		if slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool {
			return a.Addr() == k.Low().Addr() || a.Addr() == k.High().Addr()
		}) {
			links = append(links, i.Index)
		}
	}
	return links
}

// A try takes some microseconds. It misses if the stream advances by more than a window meanwhile,
// which happens only if this thread loses the processor. A state that never keeps up begins again
// with the numbers of the next packets.
const mergeTries = 100

// adoptionOf describes a state for its adoption on a link under a rule. A connection of TCP that is
// not to be strict is liberal.
func adoptionOf(x *entry, to *target, strict bool) weirCall {
	c := x.call(to.flowID, to.link)
	if !to.liberal && x.sides[0].Flags&metaLiberal != 0 {
		c.forgetNumbers()
	}
	for i := range c.Side {
		d := &c.Side[i]
		d.Rule, d.Track = to.rule, 0
		d.Flags &^= metaLiberal | metaBehind
		if strict || c.Key.Proto != packet.ProtoTCP {
			continue
		}
		if d.Flags |= metaLiberal; !to.liberal {
			d.Flags |= metaBehind
		}
	}
	return c
}

// keepUp copies a state that has to be strict, and was copied once, until it has missed nothing
// since the copy before.
func (m *migration) keepUp(i *entryCopy) error {
	const halfOpen = tagHalfOpen | tagAnswered
	p := m.engine.previous.pins
	for try := 1; try < mergeTries; try++ {
		x, err := p.at(i.place)
		if err != nil || x == nil || (x.tag^i.tag)&^halfOpen != 0 {
			return err
		}
		c := adoptionOf(x, &i.to, true)
		if c.Count = m.how; try == mergeTries-1 {
			c.Count |= adoptResync
		}
		if err := m.engine.call.ask(&c); err != nil {
			return err
		}
		if c.Result == adoptMade {
			m.engine.migrated++
		}
		if c.Result != adoptMade && c.Result != adoptBehind {
			return nil
		}
	}
	return nil
}

// forgetNumbers makes a state that was liberal loose: its numbers need not be those of its
// connection, which continued without them.
func (c *weirCall) forgetNumbers() {
	over := c.Side[0].Flags&c.Side[1].Flags&uint32(flow.SideFin) != 0
	if c.Key.Proto != packet.ProtoTCP || over {
		return
	}
	const scale = 15 << 8
	for i := range c.Side {
		d := &c.Side[i]
		d.Flags = d.Flags&^(uint32(flow.SideAcked|flow.SideSyn)|scale) | uint32(flow.SideScaled) |
			looseScale<<8 | metaLoose
	}
}

// migrateAllLocked makes the first copy, when the rules are in force. A start before this one may
// have made one into the same table and ended before it had a hook. Then what has changed in the
// other table since is merged, and the counters are copied again.
func (e *Engine) migrateAllLocked() error {
	o := e.previous
	if o == nil || o.copies != nil {
		return nil
	}
	o.copies = newCopies(o.pins)
	first := pass{which: everything}
	if e.takenOver && !e.guarded {
		first.how = adoptMerge | adoptStale
	}
	if _, err := e.migrateLocked(first); err != nil {
		return fmt.Errorf("take over the states of a previous Weir: %w", err)
	}
	if e.guarded { // it counts by itself
		return nil
	}
	return e.migrateCountersLocked()
}

// Migrated returns how many states of an engine with another layout, or other sizes, were taken
// over.
func (e *Engine) Migrated() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.migrated
}

// migrateTranslation copies the two entries of a translation, which refer to each other by their
// places, or brings the inner one up to date.
func (m *migration) migrateTranslation(inner *entry, print uint64) error {
	p := m.engine.previous.pins
	if inner.sides[0].Flags&metaWire != 0 {
		return nil // it is migrated with the other entry
	}
	wire, err := p.at(inner.partner())
	if err != nil || wire == nil || !wire.translation() || wire.partner() != inner.place {
		return err
	}
	for _, x := range []*entry{wire, inner} {
		if k := x.key(); p.layout < firstLinks && k.LinkLocal() {
			return nil
		}
	}
	name := m.copies.name(inner, natFlow)
	p.renewTranslation(wire, inner)
	first, second := inner.call(natFlow, 0), wire.call(natFlow, 0)
	first.Count, second.Count = m.how, m.how|adoptPartner
	if err := m.reserve(); err != nil {
		return err
	}
	m.adopt(first, entryCopy{place: inner.place, print: print, name: name, translation: true})
	m.adopt(second, entryCopy{partner: true})
	return nil
}

// migrateCountersLocked lets the rules continue to count where they stood.
func (e *Engine) migrateCountersLocked() error {
	if e.previous == nil {
		return nil
	}
	for key, old := range e.previous.pins.ids {
		id, ok := e.ids.byKey[key]
		if !ok {
			continue
		}
		n, err := e.previous.pins.counter(old)
		if err != nil {
			return err
		}
		// A negative base is added.
		base := weirCounter{Packets: -n.Packets, Bytes: -n.Bytes}
		if err := e.objects.Bases.Put(id&0xffff, base); err != nil {
			return fmt.Errorf("take over the counters of a previous Weir: %w", err)
		}
	}
	return nil
}

// isResized reports whether the pinned tables have other sizes than the options ask for: then they
// count as another engine's. So do those of which Remove has left a hook, and those without one of
// the maps.
func (e *Engine) isResized() (bool, error) {
	if e.dir == "" {
		return false, nil
	}
	if e.lacksMap() {
		return true, nil
	}
	for name, want := range map[string]uint32{"states": setsFor(e.options.MaxStates),
		"tracks":  setsFor(e.options.MaxTracks),
		"sources": sourceCells(e.options.MaxHalfOpen) / sourceLine} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(e.dir, name), nil)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		have := m.MaxEntries()
		if err := m.Close(); err != nil {
			return false, err
		}
		if have != want {
			return true, nil
		}
	}
	return false, nil
}

// lacksMap reports whether something is pinned that is or was in use, and the pin of a map is not
// there. A program that is attached has the map as long as it is there itself.
func (e *Engine) lacksMap() bool {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(e.dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	if !there(completeName) {
		return guards(e.dir)
	}
	for name := range e.maps() {
		if !there(name) {
			return true
		}
	}
	return false
}

// setAsideLocked moves what is pinned with other sizes out of the way of our own pins.
func (e *Engine) setAsideLocked() error {
	to, err := setAside(e.dir)
	if err != nil {
		return fmt.Errorf("set the tables of other sizes aside: %w", err)
	}
	if e.previous != nil && e.previous.dir == e.dir {
		e.previous.dir = to
	}
	e.resized = false
	return nil
}
