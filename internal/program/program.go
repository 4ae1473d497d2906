// Package program is the compiled form of a rule set: what rule.Compile makes and what engines run,
// flat arrays without pointers to syntax. It is internal, so that it can change with the engines.
//
// # The classifier
//
// Classifier holds bit vectors over equivalence classes. Each dimension (source, destination,
// ports, protocol, TCP flags, ICMP type, hook) maps a packet's value to a class and the class to a
// vector with one bit per slot. The AND of a packet's vectors has a bit for every rule whose baked
// conditions are true. A clause is baked if one dimension decides it alone: negation and or-blocks
// are set operations when the Program is made, and cost nothing when it runs. What is left of a
// rule is tested by Cond after its bit was found.
//
// The price of a packet is bounded for every rule set: one lookup per used dimension and
// ceil(rules/64) words per vector.
package program

import (
	"math"
	"math/bits"
	"net/netip"
	"time"

	"github.com/weirnet/weir/rule/op"
)

// Limits of a Program. A rule set beyond one of them is refused by Compile, naming the rule.
const (
	MaxRules      = 16384 // rules with the default rule
	MaxFlows      = 254   // flow names beside "default"; id 255 is AnyFlow
	MaxGlobs      = 64    // distinct interface globs ("eth*", "pod:*")
	MaxNames      = 4096  // distinct exact interface names
	MaxTables     = 256   // distinct tables named by rules
	MaxCalls      = 16    // depth of call
	MaxJumps      = 256   // skipto, call and return taken for one packet
	DefaultNumber = 65535 // number of the last rule
)

// Program is a checked and compiled rule set: flat arrays, no pointer to syntax, the same for every
// engine. It is immutable once made. The index of a rule in Rules is its slot; slots are in order
// of evaluation and the last one is the default rule. docs/design/0003-evaluation.md says how a
// Program is walked.
type Program struct {
	Rules    []Rule         // by slot
	Conds    []Cond         // residual conditions of all rules, Rule.Cond..Rule.CondEnd; see Cond
	Prefixes []netip.Prefix // pool for CondSrcIn, CondDstIn
	Ranges   []Range        // pool for the conditions that take number ranges
	Flows    []string       // flow names by flow id; Flows[0] is "default"
	Tables   []string       // table names by table id
	Names    []string       // exact interface names by name id
	Globs    []string       // interface globs by glob id (a bit number)
	First    int            // slot of the first rule that looks up states; len(Rules) if none does
	// a rule file is in force: fragments without a known first fragment are dropped
	Strict   bool
	Classes  Classifier // the bit vectors
	Features Features   // what the rules need of an engine
	Pipes    []Pipe     // those that rules name, Rule.Pipe
	NATs     []NAT      // those that rules name, Rule.Arg
	// next hops of rules with fwd, each once; the port is 0 for that of the packet
	NextHops []netip.AddrPort
	// It is the first, or was in force before: what its instances of nat cannot have now is held,
	// and no reason to refuse it.
	Returns bool
	// canonical text by slot, without number and set (Rule.Text), for people
	Texts []string
}

// Rule is one rule as an engine sees it.
type Rule struct {
	// identity across reloads: hash of number, canonical text and occurrence; 0 never
	Key    uint64
	Number uint16    // the rule's number
	Set    uint8     // 0..31
	Action op.Action // what to do
	// ActionSkipTo, ActionCall: target slot; ActionUnreach, ActionUnreach6: ICMP code; ActionNAT:
	// the instance's number, perhaps with NATContinues; ActionFwd: index in NextHops
	Arg     uint32
	Tag     uint16       // tag to set, 0 none
	Prob    uint32       // fails when Mix(random, slot) >= Prob; 0 means no prob option
	State   op.State     // what the rule does with states
	Flow    uint8        // flow id of State; AnyFlow for check-state :any
	Defer   bool         // defer-action
	Mask    op.LimitMask // limit and set-limit: the parts of the tuple that are counted
	Limit   uint32       // limit and set-limit: N
	Log     bool         // log matching packets
	LogMax  uint32       // logamount, 0 means no bound
	Liberal bool         // states of this rule skip TCP window checks
	// limit-rate: the time between two packets, 0 for none, and how many may match at once, at
	// least 1. Then the parts of the tuple that are counted, 0 for all packets together. The last
	// says that the rule does not match what is too much, instead of dropping it
	Every    time.Duration
	Burst    uint32
	RateMask op.LimitMask
	RateNext bool
	Pipe     uint16 // 1 + index in Pipes of the pipe that takes what the rule passes; 0: none
	// has a positive frag condition: may be asked about a later fragment without a first
	Frag    bool
	Cond    uint32 // first residual condition in Conds
	CondEnd uint32 // one past the last
}

// AnyFlow is Rule.Flow of check-state :any.
const AnyFlow = 255

// Cond is one condition of a rule. A rule matches when every clause is true; a clause is a run of
// conditions joined by FlagOr: all but the last of a clause carry it. What the bit vectors decide
// alone is not repeated here, so Conds holds only the residue.
type Cond struct {
	Op    op.Cond
	Flags CondFlags
	N     uint16 // number of pool entries, or a small argument
	A     uint32 // first pool entry, or an argument
	B     uint32 // a second argument
}

// CondFlags modify a condition.
type CondFlags uint8

// FlagNot inverts one condition; FlagOr joins it with the next one.
const (
	FlagNot CondFlags = 1 << iota
	FlagOr
)

// Range is an inclusive range of numbers.
type Range struct{ Lo, Hi uint32 }

// PipeShift is how many bits of Pipe.PerByte are fractions of a nanosecond.
const PipeShift = 16

// Pipe is a token bucket of bytes, or one for each combination of the parts of the tuple that are
// not masked. IPv4 and IPv6 have buckets of their own then.
type Pipe struct {
	Key        uint64        // identity across reloads: hash of number and configuration; 0 never
	Number     uint16        // of the pipe
	PerByte    uint64        // time between two bytes, 2^-PipeShift ns, at least 1
	Depth      time.Duration // how long an empty bucket takes to be full again
	Src, Dst   uint32        // masks of IPv4 addresses
	Src6, Dst6 uint8         // prefix lengths of IPv6 addresses; Src6 is at most 64
	Ports      uint32        // masks of the ports, source << 16 | destination
	Proto      uint8         // mask of the protocol
}

// MaxPerByte bounds Pipe.PerByte: the cost of a packet below 16 MiB is a number of 64 bits.
const MaxPerByte = 1 << 40

// MaxCost is the most that a packet costs, 78 hours. A GSO packet of tiny segments, each with long
// headers, has up to a gigabyte on the wire, which would cost more at a low bandwidth.
const MaxCost = time.Duration(1<<(64-PipeShift) - 1)

// Masked reports whether the pipe has more than one bucket.
func (p *Pipe) Masked() bool {
	return p.Src|p.Dst|p.Ports != 0 || p.Src6|p.Dst6|p.Proto != 0
}

// Cost returns the time that a packet of n bytes takes of a bucket.
func (p *Pipe) Cost(n uint32) time.Duration {
	const roundUp = 1<<PipeShift - 1
	hi, lo := bits.Mul64(uint64(n), p.PerByte)
	if hi != 0 || lo > math.MaxUint64-roundUp {
		return MaxCost
	}
	return time.Duration((lo + roundUp) >> PipeShift)
}

// Features is a set of parts of the language.
type Features uint64

// Mix spreads the packet's random word over the rules of a Program, so that several prob rules are
// independent: engines compare Mix(random, slot) with Rule.Prob. (The finalizer of MurmurHash3.)
func Mix(random, slot uint32) uint32 {
	x := random ^ slot*0x9e3779b9
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	x ^= x >> 16
	return x
}
