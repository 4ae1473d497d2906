// Package op has the operations of the rule language: the actions of rules, their conditions, and
// what they do with states. Package rule uses them in its rules, as go/ast uses go/token.
package op

// Action is an action.
type Action uint8

// The actions. check-state rules have ActionCheckState: they never act by themselves.
const (
	ActionAllow Action = iota + 1
	ActionDeny
	ActionReject
	ActionReset
	ActionUnreach
	ActionUnreach6
	ActionCount
	ActionSkipTo
	ActionCall
	ActionReturn
	ActionCheckState
	ActionPipe // pipe; a Program has ActionAllow or ActionDeny in its place
	ActionNAT  // nat
	ActionFwd  // fwd
)

// State is what a rule does with states.
type State uint8

// The state operations, by the words of the language.
const (
	StateNone     State = iota
	StateCheck          // check-state
	StateKeep           // keep-state
	StateLimit          // limit
	StateRecord         // record-state
	StateSetLimit       // set-limit
)

// LooksUp reports whether a rule with this operation looks the packet's state up before its own
// conditions are evaluated. The others only make states.
func (s State) LooksUp() bool { return s >= StateCheck && s <= StateLimit }

// LimitMask names the parts of the tuple that a limit counts by, seen from the packet that makes
// the state. The source address of IPv6 is its /64.
type LimitMask uint8

// The parts of a limit mask.
const (
	LimitSrcAddr LimitMask = 1 << iota
	LimitSrcPort
	LimitDstAddr
	LimitDstPort
)

// Cond is the kind of a condition.
type Cond uint8

// The conditions. "Ranges[A:A+N]" means: true when the value is in one of these.
const (
	CondFalse       Cond = iota
	CondTrue             // always
	CondVersion          // A: 4 or 6
	CondProto            // A: protocol number
	CondSrcIn            // source in Prefixes[A:A+N]
	CondDstIn            // destination in Prefixes[A:A+N]
	CondSrcMe            // source is an address of the host; A: 0 both families, 6 only IPv6 (me6)
	CondDstMe            //
	CondSrcTable         // source in table A; B: wanted value, used if N is 1
	CondDstTable         //
	CondSrcPort          // TCP, UDP, UDP-Lite, SCTP source port in Ranges[A:A+N]
	CondDstPort          //
	CondIn               // direction is in
	CondOut              //
	CondRecv             // receive interface has exact name id A
	CondXmit             //
	CondVia              //
	CondRecvGlob         // receive interface matches glob id A
	CondXmitGlob         //
	CondViaGlob          //
	CondRecvAny          // there is a receive interface
	CondXmitAny          //
	CondViaAny           //
	CondRecvAddr         // receive interface carries the address Prefixes[A]
	CondXmitAddr         //
	CondViaAddr          //
	CondFlags            // TCP, flags & B == A (A and B are low bytes)
	CondEstab            // TCP with RST or ACK
	CondSeq              // TCP sequence number == A
	CondAck              // TCP acknowledgement == A
	CondWin              // TCP window in Ranges[A:A+N]
	CondFrag             // fragment bits: flags of FragBits, bits & B == A; plain frag: offset != 0
	CondICMPType         // ICMP type t set in the 256-bit mask: Ranges[A:A+N] of types
	CondICMP6Type        //
	CondTTL              // TTL or hop limit in Ranges[A:A+N]
	CondLen              // IP length in Ranges[A:A+N]
	CondID               // IPv4 identification in Ranges[A:A+N]
	CondIPOptions        // IPv4 options: flags of OptionBits, bits & B == A
	CondTOS              // IPv4 TOS, low bits: tos & B == A
	CondDSCP             // DSCP d is set in the 64-bit mask A | B<<32; both families
	CondPrecedence       // IPv4 precedence == A
	CondTagged           // the packet carries a tag in Ranges[A:A+N]
	CondVerRevPath       // the route back to the source leaves by the receive interface
	CondVerSrcReach      // there is a route to the source, other than a default route or blackhole
	CondAntiSpoof        // the source is not in a connected network of another interface
)

// FragBits are the values that CondFrag compares.
const (
	FragOffset = 1 << iota // offset != 0
	FragMF
	FragDF
	FragRF
)

// OptionBits are the values that CondIPOptions compares. They are those of the decoder
// (docs/design/0002-decoder.md).
const (
	OptSSRR = 1 << iota // strict source route
	OptLSRR             // loose source route
	OptRR               // record route
	OptTS               // time stamp
)
