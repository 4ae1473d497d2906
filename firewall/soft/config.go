package soft

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
)

// config is everything that an evaluation reads and never writes: the Program in the engine's own
// ids, the tables, and what is known of the host. A change makes a new config, which every shard
// takes over between two packets.
type config struct {
	prog    *program.Program
	rules   []program.Rule
	ids     []uint32 // by slot: the engine's number of the rule, which outlives the Program
	slots   []int32  // by id: slot, -1 when the rule is gone
	flows   []uint8  // by the Program's flow id: the engine's
	lookups []uint16 // slots of the rules that look states up, in order
	class   *classes
	tables  []*members // by the Program's table id
	host    *host
	opts    *firewall.Options
	logs    []logBudget // by slot
	logging bool        // some rule logs
	// by id: the verdict of a hit if the rule simply allows, else the zero Verdict
	short []firewall.Verdict
	// by slot: the verdict of a match if the rule simply allows or denies, else the zero Verdict
	simple []firewall.Verdict
	// by slot: the verdict of a match if the rule simply keeps state and allows, else the zero
	// Verdict
	keepState    []firewall.Verdict
	firstLooksUp bool // the first rule looks a state up for every packet
	// the first rule whose vectors match decides about a packet without a state
	stateless bool
	after     int              // the first slot whose conditions count for it
	firstFlow uint8            // the engine's id of the flow name that the first rule looks up
	udp       [2]time.Duration // lifetimes of UDP: one side seen, both sides seen
	gen       uint64           // counts Programs: records of fragments do not outlive theirs
}

// slotOf returns the slot of the rule with an id, or -1.
func (c *config) slotOf(id uint32) int {
	if int(id) < len(c.slots) {
		return int(c.slots[id])
	}
	return -1
}

// gone reports that the rule with an id is no longer there. Of ids that are newer than c it knows
// nothing.
func (c *config) gone(id uint32) bool { return int(id) < len(c.slots) && c.slots[id] < 0 }

// liberal reports whether states of the rule in a slot skip the window checks.
func (c *config) liberal(slot int) bool { return c.opts.Liberal || c.rules[slot].Liberal }

// CheckProgram returns the error that Load would return, and does nothing else.
func CheckProgram(p *program.Program) error {
	if err := p.Check(); err != nil {
		return fmt.Errorf("soft: load: %w", err)
	}
	return nil
}
