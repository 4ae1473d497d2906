package firewall

import (
	"iter"
	"net/netip"
	"time"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// Engine enforces one Program. Methods may be called from any goroutine; Load and the setters are
// atomic for packets: each packet is evaluated entirely by the old or entirely by the new
// configuration.
type Engine interface {
	// Load replaces the Program. States and counters of a rule that is in both Programs, with the
	// same number and text, stay; other states end. An error changes nothing.
	Load(p *rule.Program) error
	// Replace is Load, and replaces the members of these tables in the same step. No packet is
	// evaluated by the old rules with the new tables, or by the new rules with the old tables. An
	// error changes nothing.
	Replace(p *rule.Program, tables map[string][]rule.TableEntry) error
	// SetTable replaces the members of a table; tables do not belong to a Program and exist from
	// their first mention.
	SetTable(name string, entries []rule.TableEntry) error
	// AddTable and DeleteTable change single members.
	AddTable(name string, e rule.TableEntry) error
	DeleteTable(name string, p netip.Prefix) error
	// SetInterfaces replaces the interfaces of the host with their addresses, which recv, xmit, via
	// and me compare.
	SetInterfaces(ifs []Interface) error
	// SetRoutes replaces the routes of the host: verrevpath and versrcreach look sources up in
	// them. Of several routes to one prefix the first one counts.
	SetRoutes(routes []Route) error
	// Rules returns the counters of the loaded Program's rules by slot.
	Rules() ([]RuleCounter, error)
	// Zero sets the counters of the rules with the given number to 0, of all rules for number 0.
	Zero(number uint16) error
	// Decisions returns how many packets got each decision. A packet that is evaluated on its way
	// in and on its way out counts twice.
	Decisions() (map[Decision]Count, error)
	// States yields the live states. The order is unspecified; states that come or go meanwhile may
	// be missed.
	States() iter.Seq2[State, error]
	// DeleteStates ends the states for which drop returns true and returns how many they were.
	DeleteStates(drop func(State) bool) (int, error)
	// Close releases what the engine holds. Whether enforcement continues (pinned programs) depends
	// on the engine.
	Close() error
}

// Interface is an interface of the host, or a pod ("pod:NAME").
type Interface struct {
	Index uint32
	Name  string
	Addrs []netip.Prefix // its addresses, each with the length of its network
	// The host's own source checks: net.ipv4.conf.*.accept_local and rp_filter.
	AcceptLocal bool
	ReversePath ReversePath
	// What local routes by the interface lead to (ip route add local), apart from its addresses.
	Local []netip.Prefix
	// net.ipv6.conf.*.forwarding: the host is a router of the interface's networks (Mine).
	Router6 bool
	// It is the kernel's WireGuard interface of the tunnel to other nodes. No host leases an
	// address there. What leaves by it has no recv, as in the tunnel in user space.
	Tunnel bool
}

// ReversePath is a mode of net.ipv4.conf.*.rp_filter (RFC 3704).
type ReversePath uint8

// The modes. Strict: the route back to the source leaves by the same interface. Loose: there is a
// route back.
const (
	ReverseNone ReversePath = iota
	ReverseStrict
	ReverseLoose
)

// RuleCounter counts the packets that a rule matched.
type RuleCounter struct {
	Key     uint64 // identity of the rule: the same number and text have the same in every Program
	Number  uint16
	Packets uint64
	Bytes   uint64
	Last    time.Duration // when it matched last, 0 never
}

// State describes a live state, for display and tools.
type State struct {
	Proto packet.Proto
	// as in the packet that made it; ICMP: the port of From and To is the id
	From, To netip.AddrPort
	Query    uint8  // ICMP: type of the query
	Link     uint32 // index of the interface of link-local ends, else 0
	// WireFrom and WireTo are the translated From and To, as on the wire. They are invalid if the
	// flow is not translated. A translated flow without a state of a rule has Rule 0.
	WireFrom, WireTo netip.AddrPort
	FlowName         string
	Rule             uint16
	Key              uint64 // identity of the rule, as in RuleCounter
	Phase            flow.Phase
	Created          time.Duration // on the engine's clock
	Last             time.Duration // when its last packet came
	Deadline         time.Duration // when it ends without another packet
	Packets          [2]uint64     // forward, reverse
	Bytes            [2]uint64
}

// Route is a route of the host, for verrevpath and versrcreach. The kernel engine looks routes up
// in the kernel instead.
type Route struct {
	Dst       netip.Prefix
	Interface uint32 // index
	Blackhole bool   // a blackhole, unreachable or prohibit route
}
