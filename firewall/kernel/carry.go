package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
)

// What an engine has pinned whose pins are not ours is carried over: its states are adopted when
// the first Program is loaded, and again, while its programs and ours both judge, at every
// interface that goes from one to the other. Numbers of TCP only move on, so an adopted state is
// brought up to the moment. Until the last interface has changed hands, and until it has followed
// its connection from one copy to the next, a state is liberal: a packet that went on since the
// copy was made passes.

// older is what another engine has pinned.
type older struct {
	dir    string
	pins   *oldPins
	copied bool // for the first time
	taken  bool // its hooks were, those that could be
}

// findOlder opens what another engine has pinned, nil if there is nothing that can be read: no
// layout that we know, or a start that was cut short.
func (e *Engine) findOlder() (*older, error) {
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
	for _, dir := range others {
		pins, err := openPins(dir)
		if errors.Is(err, errNotRead) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what an older Weir has left in %s: %w", dir, err)
		}
		return &older{dir: dir, pins: pins}, nil
	}
	return nil, nil
}

// carryLocked copies the states of another engine whose rules are in force here. With last nothing
// of the other engine will be left. how is what adoptMerge and adoptStale say of states that are here.
func (e *Engine) carryLocked(how uint32, last bool) error {
	o := e.older
	if o == nil {
		return nil
	}
	liberal := map[uint32]bool{}
	for i := range e.rules {
		liberal[e.rules[i].Id] = e.rules[i].Flags&codeLiberal != 0
	}
	for x, err := range o.pins.states() {
		if err != nil {
			return err
		}
		if x.translation() {
			if err := e.carryTranslation(o.pins, x); err != nil {
				return err
			}
			continue
		}
		id, ok := e.ids.byKey[o.pins.ruleKey(x.sides[0].Rule)]
		flow, known := e.labels.ids[labelFlow][o.pins.flowName(uint8(x.tag>>16))]
		if !ok || !known {
			continue
		}
		for _, link := range e.linksOf(x) {
			if err := e.carryState(x, link, id, uint8(flow), how, liberal[id] ||
				!last); err != nil {
				return err
			}
		}
	}
	return nil
}

// linksOf returns the links to carry a state to, 0 for where it is. A link-local one of an older
// layout does not say where it is: it is where the host has the address of one of its ends, which
// is nearly always one place.
func (e *Engine) linksOf(x *entry) []uint32 {
	k := x.key()
	if e.older.pins.layout >= firstLinks || !k.LinkLocal() {
		return []uint32{0}
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

// A try takes some microseconds and misses if the stream has gone on by more than a window in them,
// which takes that we lost the processor. A state that never keeps up stays liberal.
const mergeTries = 100

// carryState copies one state; what finds no room in a smaller table is lost. One that has to be
// strict is copied until it has missed nothing since the copy before.
func (e *Engine) carryState(x *entry, link, rule uint32, flow uint8, how uint32,
	liberal bool) (err error) {
	const halfOpen = tagHalfOpen | tagAnswered
	tag := x.tag | halfOpen
	// Of a state that was liberal there the numbers need not be those of its connection.
	liberal = liberal || x.sides[0].Flags&metaLiberal != 0
	for range mergeTries {
		c := x.call(flow, link)
		for i := range c.Side {
			d := &c.Side[i]
			d.Rule, d.Track = rule, 0
			d.Flags &^= metaLiberal
			if liberal {
				d.Flags |= metaLiberal
			}
		}
		c.Count = how
		if err := e.call.ask(&c); err != nil {
			return err
		}
		if c.Result == adoptMade {
			e.carried++
		}
		if liberal || how&adoptStale != 0 || c.Result != adoptMade && c.Result != adoptBehind {
			return nil
		}
		if x, err = e.older.pins.at(x.place); err != nil || x == nil || x.tag|halfOpen != tag {
			return err
		}
	}
	return nil
}

// carryAllLocked makes the first copy, when the rules are in force.
func (e *Engine) carryAllLocked() error {
	o := e.older
	if o == nil || o.copied {
		return nil
	}
	o.copied = true
	if err := e.carryLocked(0, false); err != nil {
		return fmt.Errorf("take over the states of an older Weir: %w", err)
	}
	if e.takenOver {
		return nil
	}
	return e.carryCountersLocked()
}

// Carried returns how many states of an engine with another layout, or other sizes, were taken
// over.
func (e *Engine) Carried() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.carried
}

// carryTranslation copies the two entries of a translation, which know each other by their places.
func (e *Engine) carryTranslation(p *oldPins, wire *entry) error {
	if wire.sides[0].Flags&metaWire == 0 {
		return nil // the other entry brings it along
	}
	inner, err := p.at(wire.sides[0].Track)
	if err != nil || inner == nil || !inner.translation() || inner.sides[0].Track != wire.place {
		return err
	}
	for _, x := range []*entry{wire, inner} {
		if k := x.key(); p.layout < firstLinks && k.LinkLocal() {
			return nil
		}
	}
	p.renewTranslation(wire, inner)
	first := inner.call(natFlow, 0)
	if err := e.call.ask(&first); err != nil || first.Result != adoptMade {
		return err
	}
	second := wire.call(natFlow, 0)
	second.Place = first.Place + 1
	return e.call.ask(&second)
}

// carryCountersLocked lets the rules go on counting where they stood.
func (e *Engine) carryCountersLocked() error {
	if e.older == nil {
		return nil
	}
	for key, old := range e.older.pins.ids {
		id, ok := e.ids.byKey[key]
		if !ok {
			continue
		}
		n, err := e.older.pins.counter(old)
		if err != nil {
			return err
		}
		// What is taken off is less than nothing: it is added.
		base := weirCounter{Packets: -n.Packets, Bytes: -n.Bytes}
		if err := e.objects.Bases.Put(id&0xffff, base); err != nil {
			return fmt.Errorf("go on with the counters of an older Weir: %w", err)
		}
	}
	return nil
}

// isResized says that what is pinned has tables of other sizes than they should have: it counts as
// another engine's.
func (e *Engine) isResized() (bool, error) {
	if e.dir == "" {
		return false, nil
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

// setAsideLocked moves what is pinned with other sizes out of the way of our own pins.
func (e *Engine) setAsideLocked() error {
	to, err := setAside(e.dir)
	if err != nil {
		return fmt.Errorf("set the tables of other sizes aside: %w", err)
	}
	if e.older != nil && e.older.dir == e.dir {
		e.older.dir = to
	}
	e.resized = false
	return nil
}
