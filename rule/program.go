package rule

import "net/netip"

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
	Rules    []Code         // by slot
	Conds    []Cond         // residual conditions of all rules, Code.Cond..Code.CondEnd; see Cond
	Prefixes []netip.Prefix // pool for OpSrcIn, OpDstIn
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
	// canonical text by slot, without number and set (Rule.Text), for people
	Texts []string
}

// Code is one rule as an engine sees it.
type Code struct {
	// identity across reloads: hash of number, canonical text and occurrence; 0 never
	Key     uint64
	Number  uint16    // the rule's number
	Set     uint8     // 0..31
	Action  ActionOp  // what to do
	Arg     uint32    // OpSkipTo, OpCall: target slot; OpUnreach, OpUnreach6: ICMP code
	Tag     uint16    // tag to set, 0 none
	Prob    uint32    // fails when Mix(random, slot) >= Prob; 0 means no prob option
	State   StateOp   // what the rule does with states
	Flow    uint8     // flow id of State; AnyFlow for check-state :any
	Defer   bool      // defer-action
	Mask    LimitMask // limit and set-limit: the parts of the tuple that are counted
	Limit   uint32    // limit and set-limit: N
	Log     bool      // log matching packets
	LogMax  uint32    // logamount, 0 means no bound
	Liberal bool      // states of this rule skip TCP window checks
	// has a positive frag condition: may be asked about a later fragment without a first
	Frag    bool
	Cond    uint32 // first residual condition in Conds
	CondEnd uint32 // one past the last
}

// AnyFlow is Code.Flow of check-state :any.
const AnyFlow = 255

// ActionOp is an action.
type ActionOp uint8

// The actions. check-state rules have OpCheck: they never act by themselves.
const (
	OpAllow ActionOp = iota + 1
	OpDeny
	OpReject
	OpReset
	OpUnreach
	OpUnreach6
	OpCount
	OpSkipTo
	OpCall
	OpReturn
	OpCheck
)

// StateOp is what a rule does with states.
type StateOp uint8

// The state operations, by the words of the language.
const (
	StateNone     StateOp = iota
	StateCheck            // check-state
	StateKeep             // keep-state
	StateLimit            // limit
	StateRecord           // record-state
	StateSetLimit         // set-limit
)

// LooksUp reports whether a rule with this operation looks the packet's state up before its own
// conditions are evaluated. The others only make states.
func (s StateOp) LooksUp() bool { return s >= StateCheck && s <= StateLimit }

// LimitMask names the parts of the tuple that a limit counts by, seen from the packet that makes
// the state.
type LimitMask uint8

// The parts of a limit mask.
const (
	LimitSrcAddr LimitMask = 1 << iota
	LimitSrcPort
	LimitDstAddr
	LimitDstPort
)

// Cond is one condition of a rule. A rule matches when every clause is true; a clause is a run of
// conditions joined by FlagOr: all but the last of a clause carry it. What the bit vectors decide
// alone is not repeated here, so Conds holds only the residue.
type Cond struct {
	Op    CondOp
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

// CondOp is the kind of a condition.
type CondOp uint8

// The conditions. "Ranges[A:A+N]" means: true when the value is in one of these.
const (
	OpFalse       CondOp = iota
	OpTrue               // always
	OpVersion            // A: 4 or 6
	OpProto              // A: protocol number
	OpSrcIn              // source in Prefixes[A:A+N]
	OpDstIn              // destination in Prefixes[A:A+N]
	OpSrcMe              // source is an address of the host; A: 0 both families, 6 only IPv6 (me6)
	OpDstMe              //
	OpSrcTable           // source in table A; B: wanted value, used if N is 1
	OpDstTable           //
	OpSrcPort            // TCP, UDP, UDP-Lite, SCTP source port in Ranges[A:A+N]
	OpDstPort            //
	OpIn                 // direction is in
	OpOut                //
	OpRecv               // receive interface has exact name id A
	OpXmit               //
	OpVia                //
	OpRecvGlob           // receive interface matches glob id A
	OpXmitGlob           //
	OpViaGlob            //
	OpRecvAny            // there is a receive interface
	OpXmitAny            //
	OpViaAny             //
	OpRecvAddr           // receive interface carries the address Prefixes[A]
	OpXmitAddr           //
	OpViaAddr            //
	OpFlags              // TCP, flags & B == A (A and B are low bytes)
	OpEstab              // TCP with RST or ACK
	OpSeq                // TCP sequence number == A
	OpAck                // TCP acknowledgement == A
	OpWin                // TCP window in Ranges[A:A+N]
	OpFrag               // fragment bits: flags of FragBits, bits & B == A; plain frag: offset != 0
	OpICMPType           // ICMP type t set in the 256-bit mask: Ranges[A:A+N] of types
	OpICMP6Type          //
	OpTTL                // TTL or hop limit in Ranges[A:A+N]
	OpLen                // IP length in Ranges[A:A+N]
	OpID                 // IPv4 identification in Ranges[A:A+N]
	OpIPOptions          // IPv4 options: flags of OptionBits, bits & B == A
	OpTOS                // IPv4 TOS, low bits: tos & B == A
	OpDSCP               // DSCP d is set in the 64-bit mask A | B<<32; both families
	OpPrecedence         // IPv4 precedence == A
	OpTagged             // the packet carries a tag in Ranges[A:A+N]
	OpVerRevPath         // the route back to the source leaves by the receive interface
	OpVerSrcReach        // there is a route to the source, other than a default route or blackhole
	OpAntiSpoof          // the source is not in a connected network of another interface
)

// FragBits are the values that OpFrag compares.
const (
	FragOffset = 1 << iota // offset != 0
	FragMF
	FragDF
	FragRF
)

// OptionBits are the values that OpIPOptions compares. They are those of the decoder
// (docs/design/0002-decoder.md).
const (
	OptSSRR = 1 << iota // strict source route
	OptLSRR             // loose source route
	OptRR               // record route
	OptTS               // time stamp
)

// Range is an inclusive range of numbers.
type Range struct{ Lo, Hi uint32 }

// Features is a set of parts of the language.
type Features uint64

// Mix spreads the packet's random word over the rules of a Program, so that several prob rules are
// independent: engines compare Mix(random, slot) with Code.Prob. (The finalizer of MurmurHash3.)
func Mix(random, slot uint32) uint32 {
	x := random ^ slot*0x9e3779b9
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	x ^= x >> 16
	return x
}
