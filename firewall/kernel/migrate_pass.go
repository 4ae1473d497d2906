package kernel

import (
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
	// Only the other engine has seen packets since the pass before: what has ended there ends here.
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
	prints []uint64 // of an entry as it was copied last, before the last pass
	names  []uint64 // of the entry here that it became
}

func newCopies(p *previousPins) *copies {
	return &copies{seed: maphash.MakeSeed(), prints: make([]uint64, p.places()),
		names: make([]uint64, p.places())}
}

// print is different for what has changed.
func (c *copies) print(x *entry) uint64 {
	return (maphash.Bytes(c.seed, bytesOf(x.sides[:])) ^ x.tag*printMix) | 1
}

const printMix = 0x9e3779b97f4a7c15 // the golden ratio

// name is that of one entry of our table, which has the id of a flow name.
func (c *copies) name(x *entry, flowID uint8) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	t := x.tuple()
	h.Write(bytesOf(append(t.addr[:], uint64(t.ports), uint64(t.proto), uint64(flowID),
		uint64(x.sides[0].Created))))
	return h.Sum64() | 1
}

// migrateLocked copies the states of another engine whose rules are in force here, and returns how
// many it has copied.
func (e *Engine) migrateLocked(how pass) (copied int, err error) {
	o := e.previous
	if o == nil {
		return 0, nil
	}
	liberal := map[uint32]bool{}
	for i := range e.rules {
		liberal[e.rules[i].Id] = e.rules[i].Flags&codeLiberal != 0
	}
	ended, came := map[uint64]bool{}, map[uint64]bool{}
	for tags, err := range o.pins.allTags() {
		if err != nil {
			return copied, err
		}
		n, err := e.migratePlaces(tags, how, liberal, ended, came)
		if copied += n; err != nil {
			return copied, err
		}
	}
	if !how.mirror {
		return copied, nil
	}
	for name := range came { // an entry may move
		delete(ended, name)
	}
	return copied, e.endMigratedLocked(ended)
}

// migratePlaces copies some entries of the table.
func (e *Engine) migratePlaces(tags tagRun, how pass, liberal map[uint32]bool,
	ended, came map[uint64]bool) (copied int, err error) {
	c, p := e.previous.copies, e.previous.pins
	var found entry
	for i, tag := range tags.tags {
		place := tags.first + uint32(i)
		name := c.names[place]
		if tag&tagMask != tagLive {
			if name != 0 {
				c.prints[place], c.names[place] = 0, 0
				ended[name] = true
			}
			continue
		}
		there, err := p.read(&found, place)
		if err != nil {
			return copied, err
		}
		if !there { // it changes just now
			continue
		}
		now, is := c.print(&found), changed
		if now == c.prints[place] {
			is = unchanged
		}
		if how.which&is == 0 {
			continue
		}
		x := found
		named, err := e.migrateEntry(p.renew(&x), how, liberal)
		if err != nil {
			return copied, err
		}
		if named == 0 {
			continue
		}
		copied++
		if name != named {
			came[named] = true
			if name != 0 {
				ended[name] = true
			}
		}
		if how.last { // it is done
			now = 0
		}
		c.prints[place], c.names[place] = now, named
	}
	return copied, nil
}

// migrateEntry copies one entry, and returns the name of what it became, 0 if it could not be
// copied. That of a translation is the inner one, with which the other goes.
func (e *Engine) migrateEntry(x *entry, how pass, liberal map[uint32]bool) (uint64, error) {
	o := e.previous
	if x == nil {
		return 0, nil
	}
	if x.translation() {
		name := o.copies.name(x, natFlow)
		if done, err := e.migrateTranslation(o.pins, x, how.how); err != nil || !done {
			return 0, err
		}
		return name, nil
	}
	id, kept := e.ids.byKey[o.pins.ruleKey(x.sides[0].Rule)]
	flowID, known := e.nameIDs.ids[nameFlow][o.pins.flowName(uint8(x.tag>>16))]
	if !kept || !known {
		return 0, nil
	}
	for _, link := range e.linksOf(x) {
		if err := e.migrateState(x, link, id, uint8(flowID), how.how, liberal[id],
			how.last); err != nil {
			return 0, err
		}
	}
	return o.copies.name(x, uint8(flowID)), nil
}

// endMigratedLocked ends entries of our table by their names.
func (e *Engine) endMigratedLocked(ended map[uint64]bool) error {
	if len(ended) == 0 {
		return nil
	}
	return e.endWhere(func(x *entry) bool {
		if !ended[e.previous.copies.name(x, uint8(x.tag>>16))] {
			return false
		}
		if !x.translation() {
			e.migrated--
		}
		return true
	})
}

// mostPasses is how many passes may come before the hooks change.
const mostPasses = 8

// followLocked copies what has changed, while the other engine alone sees packets, until there is
// hardly less from pass to pass.
func (e *Engine) followLocked() error {
	before := math.MaxInt
	for range mostPasses {
		n, err := e.migrateLocked(pass{how: adoptMerge, which: changed, mirror: true})
		if err != nil || n > before/2 {
			return err
		}
		before = n
	}
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
	if _, err := e.migrateLocked(pass{how: how, which: changed, last: true}); err != nil {
		return err
	}
	_, err := e.migrateLocked(pass{how: how, which: unchanged, last: true})
	return err
}
