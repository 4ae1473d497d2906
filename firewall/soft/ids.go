package soft

// maxIDs is how many ids rules may get before the engine frees those of rules that are gone.
const maxIDs = 1 << 18

// numberLocked gives every rule an id that it keeps as long as it is loaded, and every flow name
// too. States name their rule by its id.
func (e *Engine) numberLocked(c *config) {
	if e.nextID > maxIDs {
		e.forgetLocked()
	}
	ids := make(map[uint64]uint32, len(c.rules))
	for i := range c.rules {
		key := c.rules[i].Key
		id, ok := e.ids[key]
		if !ok {
			id = e.nextID
			e.nextID++
		}
		ids[key] = id
		c.ids = append(c.ids, id)
	}
	e.ids = ids
	c.slots = make([]int32, e.nextID)
	for i := range c.slots {
		c.slots[i] = -1
	}
	for slot, id := range c.ids {
		c.slots[id] = int32(slot)
	}
	// A flow name keeps its number from one Program to the next; states of names that are gone have
	// lost their rule.
	flows := make(map[string]uint8, len(c.prog.Flows))
	var used [256]bool
	for _, name := range c.prog.Flows {
		if id, ok := e.flows[name]; ok {
			flows[name], used[id] = id, true
		}
	}
	free := 0
	for _, name := range c.prog.Flows {
		if _, ok := flows[name]; !ok {
			for used[free] {
				free++
			}
			flows[name], used[free] = uint8(free), true
		}
		c.flows = append(c.flows, flows[name])
	}
	e.flows = flows
}

// forgetLocked ends every state whose rule is gone and starts the numbers of rules over above those
// in use.
func (e *Engine) forgetLocked() {
	for _, s := range e.shards {
		s.hold()
		for _, t := range []*table{&s.established, &s.halfOpen} {
			t.purge = len(t.tags)
			s.sweep(t, len(t.tags), 0, nil)
		}
		s.release()
	}
	// Numbers in use stay; the next free one is found from the bottom by renumbering in place.
	old := e.cfg
	renumber := make([]uint32, len(old.slots))
	ids := make([]uint32, len(old.ids))
	slots := make([]int32, len(old.ids))
	for slot, id := range old.ids {
		renumber[id], ids[slot], slots[slot] = uint32(slot), uint32(slot), int32(slot)
	}
	c := *old
	c.ids, c.slots = ids, slots
	c.prepareFastPath()
	for _, s := range e.shards { // all of them: they share the tracks
		s.hold()
		defer s.release() // also in a panic: a held shard evaluates no packet
	}
	e.tracks.renumber(old, renumber)
	e.rates.renumber(old.prog.Pipes,
		func(id uint32) (uint32, bool) { return renumber[id], !old.gone(id) })
	for _, s := range e.shards {
		for _, t := range []*table{&s.established, &s.halfOpen} {
			t.each(func(r ref) { t.entries[r].rule = renumber[t.entries[r].rule] })
		}
		clear(s.cache[:])
		s.cfg = &c
		s.moves++
	}
	e.cfg = &c
	e.nextID = uint32(len(ids))
	for i := range c.rules {
		e.ids[c.rules[i].Key] = uint32(i)
	}
}
