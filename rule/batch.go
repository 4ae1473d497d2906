package rule

// Batch applies commands one after the other. The result is that of Command.Apply for each, but
// lines that only move whole sets walk the rules once together: a file may have any number of them.
type Batch struct {
	rules *Ruleset
	moves setMoves
}

// NewBatch returns a Batch that changes s. The rules of s have their sets after Flush.
func NewBatch(s *Ruleset) *Batch { return &Batch{rules: s} }

// Apply executes a command as its own Apply does.
func (b *Batch) Apply(c *Command) error {
	switch {
	case c.Kind == CommandSwap:
		b.moves.swap(c.From, c.To)
		return nil
	case c.Kind == CommandMove && c.Number == 0:
		b.moves.move(c.From, c.To)
		return nil
	case c.asksSets():
		b.Flush()
	}
	return c.Apply(b.rules)
}

// Flush does what is left to do.
func (b *Batch) Flush() {
	b.moves.apply(b.rules)
	b.moves = setMoves{}
}

// asksSets reports whether a command reads or writes the sets of rules.
func (c *Command) asksSets() bool {
	switch c.Kind {
	case CommandAdd, CommandMove, CommandFlush:
		return true
	case CommandDelete:
		return c.Sets != 0
	}
	return false
}

// setMoves is where the rules of each set go.
type setMoves struct {
	to    [1 << 8]uint8
	begun bool // else every set stays
}

func (m *setMoves) begin() {
	if !m.begun {
		m.begun = true
		for i := range m.to {
			m.to[i] = uint8(i)
		}
	}
}

func (m *setMoves) swap(a, b uint8) {
	m.begin()
	for i, to := range m.to {
		switch to {
		case a:
			m.to[i] = b
		case b:
			m.to[i] = a
		}
	}
}

func (m *setMoves) move(from, to uint8) {
	m.begin()
	for i, now := range m.to {
		if now == from {
			m.to[i] = to
		}
	}
}

func (m *setMoves) apply(s *Ruleset) {
	if !m.begun {
		return
	}
	for i, r := range s.Rules {
		if to := m.to[r.Set]; to != r.Set {
			s.Rules[i] = r.inSet(to)
		}
	}
}
