package rule

import (
	"net/netip"

	"github.com/weirnet/weir/rule/op"
)

// Rule is one parsed rule. Lists in it are shared freely; a Rule is not changed after it was made.
// A Rule made by hand must look like the parser's: ranges in order, values within their
// field, names of the parser's characters.
//
// Its conditions are clauses: the rule matches when every clause of Clauses is true. The five
// clauses of the header (PROTO from SRC SRCPORT to DST DSTPORT) differ from Options only in where
// they are printed.
type Rule struct {
	Pos     Pos
	Number  uint16  // 1..65534; 0: not numbered yet (Ruleset.Add gives a number)
	Set     uint8   // 0..31
	Prob    float64 // 0: no prob option; else 0 < Prob < 1
	Action  Action
	Log     bool
	LogMax  uint32 // logamount; 0: no bound
	Tag     uint16 // tag to set; 0: none
	State   State
	Rate    Rate // limit-rate
	Defer   bool // defer-action
	Liberal bool // liberal
	Proto   Clause
	Src     Clause
	SrcPort Clause
	Dst     Clause
	DstPort Clause
	Options []Clause
	Comment string // text after //
}

// Pos is the place of a rule in its file: columns count bytes from 1, End is the column after the
// last byte.
type Pos struct {
	File     string // "" for a command line
	Line     int    // from 1
	Col, End int
}

// Action is what a rule does with a packet.
type Action struct {
	Op op.Action
	// ActionSkipTo, ActionCall: rule number; ActionPipe, ActionNAT: number of the pipe, of the
	// instance; ActionUnreach, ActionUnreach6: ICMP code; else 0
	Arg uint32
	// ActionFwd: the next hop; the port is 0 for that of the packet
	NextHop netip.AddrPort
}

// State is what a rule does with states. A check-state rule has StateCheck.
type State struct {
	Op    op.State
	Flow  string       // "": the flow named "default"; check-state: "any" for all
	Mask  op.LimitMask // StateLimit, StateSetLimit
	Limit uint32       // StateLimit, StateSetLimit: at least 1
}

// Clause is an or-list: true when at least one of its tests is. The empty Clause is true.
type Clause []Test

// Test is one possibly negated condition. Op says what is compared. The fields that it uses are
// those that op.Cond names, with the pools in place. Prefixes is for CondSrcIn, CondDstIn (any
// length) and CondRecvAddr, CondXmitAddr, CondViaAddr (one full-length prefix). Ranges is for
// ports, types and number lists, Name for table, interface and glob, Value for tables, and A and B
// for the rest.
type Test struct {
	Not      bool
	Op       op.Cond
	Prefixes []netip.Prefix
	Ranges   []Range
	// table (CondSrcTable, CondDstTable), interface (CondRecv...) or glob (CondRecvGlob...)
	Name     string
	HasValue bool // the table entry must have Value
	Value    uint32
	A, B     uint32
}

// Clauses returns every clause of the rule that is not empty: header first, then options. The rule
// matches when all are true. A rule with nat is about IPv4 only, one with fwd about the family of
// its next hop.
func (r *Rule) Clauses() []Clause {
	all := make([]Clause, 0, 5+len(r.Options))
	for _, c := range [...]Clause{r.Proto, r.Src, r.SrcPort, r.Dst, r.DstPort} {
		if len(c) > 0 {
			all = append(all, c)
		}
	}
	for _, c := range r.Options {
		if len(c) > 0 {
			all = append(all, c)
		}
	}
	switch {
	case r.Action.Op == op.ActionNAT, r.Action.Op == op.ActionFwd && r.Action.NextHop.Addr().Is4():
		all = append(all, Clause{{Op: op.CondVersion, A: 4}})
	case r.Action.Op == op.ActionFwd:
		all = append(all, Clause{{Op: op.CondVersion, A: 6}})
	}
	return all
}

// Range is an inclusive range of numbers.
type Range struct{ Lo, Hi uint32 }
