package kernel

import (
	"errors"
	"hash/maphash"
	"math"
)

// The table of another engine is copied in passes. The first copies everything, and later ones what
// has changed since. They get shorter and shorter: so little is missing when the hooks change, and
// what is missing then is there some milliseconds later.

// pass is how the table of another engine is copied.
type pass struct {
	how   uint32 // adoptMerge and adoptStale for what is here already
	which which
	last  bool // nothing of the other engine will be left
	// What has ended in the other table ends here, if only the other engine saw its packets.
	mirror bool
}

// which entries a pass copies: those that have changed since they were copied last, or not.
type which uint8

const (
	changed which = 1 << iota
	unchanged
	everything = changed | unchanged
)

// copies is what is known of the passes over a table.
type copies struct {
	seed maphash.Seed
	// by place, 0 for none
	prints []uint64 // of an entry as it was copied last; without notDone from the last pass on
	names  []uint64 // of the entry here that it became

	// A time before the hooks changed, or 0: what our programs saw is later, by their own clock.
	followed int64
}

func newCopies(p *previousPins) *copies {
	return &copies{seed: maphash.MakeSeed(), prints: make([]uint64, p.places()),
		names: make([]uint64, p.places())}
}

// print is different for what has changed.
func (c *copies) print(x *entry) uint64 {
	return (maphash.Bytes(c.seed, bytesOf(x.sides[:])) ^ x.tag*printMix) | notDone
}

// notDone in a print: the last pass has not copied the entry.
const notDone = 1

const printMix = 0x9e3779b97f4a7c15 // the golden ratio

// name is that of one entry of our table, which has the id of a flow name.
func (c *copies) name(x *entry, flowID uint8) uint64 {
	words := [...]uint64{x.addr[0], x.addr[1], x.addr[2], x.addr[3],
		uint64(flowID)<<48 | x.tag>>24, uint64(x.sides[0].Created)}
	return maphash.Bytes(c.seed, bytesOf(words[:])) | 1
}

// nameHere is the name of an entry of our own table.
func (c *copies) nameHere(x *entry) uint64 { return c.name(x, uint8(x.tag>>16)) }

// migrateLocked copies the states of another engine whose rules are in force here, and returns how
// many it has copied.
func (e *Engine) migrateLocked(how pass) (copied int, err error) {
	if e.previous == nil {
		return 0, nil
	}
	m := newMigration(e, how)
	defer func() { err = errors.Join(err, m.stop()) }()
	for tags, err := range e.previous.pins.allTags() {
		if err == nil {
			err = m.migratePlaces(tags)
		}
		if err != nil {
			return m.copied, err
		}
	}
	if err := m.flush(); err != nil || !how.mirror {
		return m.copied, err
	}
	for name := range m.came { // an entry may move
		delete(m.ended, name)
	}
	return m.copied, e.endMigratedLocked(m.ended)
}

// migration is one pass over the table of another engine.
type migration struct {
	pass
	engine      *Engine
	copies      *copies
	liberal     map[uint32]bool // by the id of a rule
	ended, came map[uint64]bool // names; only of a mirror
	copied      int
	batches
}

func newMigration(e *Engine, how pass) *migration {
	m := &migration{pass: how, engine: e, copies: e.previous.copies, liberal: map[uint32]bool{},
		ended: map[uint64]bool{}, came: map[uint64]bool{}}
	for i := range e.rules {
		m.liberal[e.rules[i].Id] = e.rules[i].Flags&codeLiberal != 0
	}
	return m
}

// migratePlaces copies some entries of the table.
func (m *migration) migratePlaces(tags tagRun) error {
	c, p := m.copies, m.engine.previous.pins
	var found, x entry
	for i, tag := range tags.tags {
		place := tags.first + uint32(i)
		if tag&tagMask != tagLive {
			if name := c.names[place]; name != 0 {
				c.prints[place], c.names[place] = 0, 0
				m.end(name)
			}
			continue
		}
		there, err := p.read(&found, place)
		if err != nil {
			return err
		}
		if !there { // it changes just now
			continue
		}
		now, is := c.print(&found), changed
		switch c.prints[place] {
		case now:
			is = unchanged
		case now &^ notDone:
			continue
		}
		// Only a connection of TCP becomes strict.
		if m.which&is == 0 || is == unchanged && m.last && !found.connection() {
			continue
		}
		x = found
		if err := m.migrateEntry(p.renew(&x), now); err != nil {
			return err
		}
	}
	return nil
}

// migrateEntry copies one entry, if it can be copied. It is recorded as what it becomes; a
// translation as the inner entry, with which the other goes.
func (m *migration) migrateEntry(x *entry, print uint64) error {
	e, o := m.engine, m.engine.previous
	if x == nil {
		return nil
	}
	if x.translation() {
		return m.migrateTranslation(x, print)
	}
	id, kept := e.ids.byKey[o.pins.ruleKey(x.sides[0].Rule)]
	flowID, known := e.nameIDs.ids[nameFlow][o.pins.flowName(uint8(x.tag>>16))]
	if !kept || !known {
		return nil
	}
	i := entryCopy{place: x.place, print: print, name: m.copies.name(x, uint8(flowID)), tag: x.tag,
		to: target{rule: id, flowID: uint8(flowID), liberal: m.liberal[id]}}
	strict := m.last && !i.to.liberal
	how := m.how
	if strict && how&adoptStale != 0 { // no other copy follows
		how |= adoptResync
	}
	i.follows = strict && how&adoptStale == 0
	for _, i.to.link = range e.linksOf(x) {
		c := adoptionOf(x, &i.to, strict)
		c.Count = how
		if err := m.reserve(); err != nil {
			return err
		}
		m.adopt(c, i)
	}
	return nil
}

// record follows the adoption of an entry.
func (m *migration) record(i *entryCopy, result int64) error {
	if i.partner || i.translation && result < 0 {
		return nil
	}
	if !i.translation && result == adoptMade {
		m.engine.migrated++
	}
	if i.follows && (result == adoptMade || result == adoptBehind) {
		if err := m.keepUp(i); err != nil {
			return err
		}
	}
	m.copied++
	if before := m.copies.names[i.place]; before != i.name {
		if m.mirror {
			m.came[i.name] = true
		}
		if before != 0 {
			m.end(before)
		}
	}
	m.copies.prints[i.place], m.copies.names[i.place] = i.print, i.name
	switch {
	case m.last && result < 0: // there may be a place later
		m.copies.prints[i.place] = 0
	case m.last:
		m.copies.prints[i.place] = i.print &^ notDone
	}
	return nil
}

// end records that an entry is gone in the other table.
func (m *migration) end(name uint64) {
	if m.mirror {
		m.ended[name] = true
	}
}

// endMigratedLocked ends entries of our table by their names, but those of flows of which our
// programs have seen packets: they end by themselves. A translation does not have the time of each
// packet, its state does. The table is walked once, since packets may be held meanwhile.
func (e *Engine) endMigratedLocked(ended map[uint64]bool) error {
	if len(ended) == 0 {
		return nil
	}
	c := e.previous.copies
	var found []*entry
	talks := map[tuple]bool{}
	for x, err := range e.entries() {
		if err != nil {
			return err
		}
		if !ended[c.nameHere(x)] {
			continue
		}
		found = append(found, x)
		if last := max(x.sides[0].Last, x.sides[1].Last); c.followed > 0 && last >= c.followed &&
			!x.translation() {
			talks[x.tuple()] = true
		}
	}
	var errs []error
	for _, x := range found {
		if talks[x.tuple()] {
			continue
		}
		if !x.translation() {
			e.migrated--
		}
		errs = append(errs, e.remove(x))
	}
	return errors.Join(errs...)
}

// mostPasses is how many passes may come before the hooks change.
const mostPasses = 8

// followLocked copies what has changed, while the other engine alone sees packets, until there is
// hardly less from pass to pass.
func (e *Engine) followLocked() error {
	before := math.MaxInt
	for range mostPasses {
		n, err := e.migrateLocked(pass{how: adoptMerge, which: changed, mirror: true})
		if err != nil {
			return err
		}
		if n == 0 || n > before/2 {
			break
		}
		before = n
	}
	e.previous.copies.followed = e.now() - clockLag*e.config.Tick
	return nil
}

// catchUpLocked copies what is missing when the hooks have changed. If nothing is left of the other
// engine, all states are strict then. One whose copy there has changed since may have missed
// packets, both here and there: it takes its numbers from the next ones. Nothing is merged before
// that: it would hide what is missing.
func (e *Engine) catchUpLocked(last bool) error {
	if !last {
		_, err := e.migrateLocked(pass{which: changed})
		return err
	}
	const how = adoptMerge | adoptStale
	if _, err := e.migrateLocked(pass{how: how, which: changed, last: true,
		mirror: true}); err != nil {
		return err
	}
	_, err := e.migrateLocked(pass{how: how, which: unchanged, last: true})
	return err
}
