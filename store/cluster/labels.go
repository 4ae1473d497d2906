package cluster

// labelCounts count how many entries of pods give an address a label. They are most of what a host
// keeps of the pods of others beside the copy, so each is small: the name of a table is there once.
type labelCounts struct {
	tables map[string]*labelTable
	counts map[labelMember]uint32
	free   []uint32 // numbers of tables that have no members any more
}

// labelTable is a table that has members.
type labelTable struct{ number, members uint32 }

// labelMember is an address in a table. Addresses of pods are neither mapped nor have zones
// (Pod.check), so that As16 is different for each.
type labelMember struct {
	table uint32
	addr  [16]byte
}

func newLabelCounts() labelCounts {
	return labelCounts{map[string]*labelTable{}, map[labelMember]uint32{}, nil}
}

// has reports whether an address has a label.
func (c *labelCounts) has(l Label) bool {
	t := c.tables[l.Table]
	return t != nil && c.counts[labelMember{t.number, l.Addr.As16()}] > 0
}

// add adds to the count of a label, and reports whether the address had it before.
func (c *labelCounts) add(l Label, by int) (had bool) {
	t := c.tables[l.Table]
	if t == nil {
		if by <= 0 {
			return false
		}
		t = &labelTable{number: c.unused()}
		c.tables[l.Table] = t
	}
	m := labelMember{t.number, l.Addr.As16()}
	count := c.counts[m]
	n := int(count) + by
	if n > 0 {
		c.counts[m] = uint32(n)
	} else {
		delete(c.counts, m)
	}
	switch had = count > 0; {
	case !had && n > 0:
		t.members++
	case had && n <= 0:
		if t.members--; t.members == 0 {
			delete(c.tables, l.Table)
			c.free = append(c.free, t.number)
		}
	}
	return had
}

// unused returns a number that no table has. The caller gives it to one with a member.
func (c *labelCounts) unused() uint32 {
	if last := len(c.free) - 1; last >= 0 {
		n := c.free[last]
		c.free = c.free[:last]
		return n
	}
	return uint32(len(c.tables))
}
