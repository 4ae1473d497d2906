package firewall

import (
	"iter"
	"net/netip"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/rule"
)

// Engine enforces one Program. Methods may be called from any goroutine; Load and the setters are
// atomic for packets: each packet is evaluated wholly by the old or wholly by the new
// configuration.
type Engine interface {
	// Load replaces the Program. States whose rule (Code.Key) is still there live on, counters of
	// these rules too; other states end. An error changes nothing.
	Load(p *rule.Program) error
	// Replace is Load, and with the same switch the members of these tables are replaced: no packet
	// meets the old rules with new tables, or new rules with old tables. An error changes nothing.
	Replace(p *rule.Program, tables map[string][]TableEntry) error
	// SetTable replaces the members of a table; tables live apart from Programs and exist from
	// their first mention.
	SetTable(name string, entries []TableEntry) error
	// AddTable and DeleteTable change single members.
	AddTable(name string, e TableEntry) error
	DeleteTable(name string, p netip.Prefix) error
	// SetInterfaces tells the interfaces of the host with their addresses: it feeds recv, xmit, via
	// and me.
	SetInterfaces(ifs []Interface) error
	// SetRoutes replaces the routes of the host: verrevpath and versrcreach look sources up in
	// them. Of several routes to one prefix the first one counts.
	SetRoutes(routes []Route) error
	// Rules returns the counters of the loaded Program's rules by slot.
	Rules() ([]RuleCounter, error)
	// Zero sets the counters of the rules with the given number to 0, of all rules for number 0.
	Zero(number uint16) error
	// Decisions returns how many packets were evaluated, by what became of them. A packet that is
	// evaluated on its way in and on its way out counts twice.
	Decisions() (map[Decision]Count, error)
	// States yields the live states. The order is unspecified; states that come or go meanwhile may
	// be missed.
	States() iter.Seq2[State, error]
	// Cut ends the states for which drop returns true and returns how many.
	Cut(drop func(State) bool) (int, error)
	// Close gives back what the engine holds. Whether enforcement continues (pinned programs) is
	// the engine's own rule.
	Close() error
}

// TableEntry is a member of a table.
type TableEntry struct {
	Prefix netip.Prefix
	Value  uint32
}

// Interface is an interface of the host, or a pod ("pod:NAME").
type Interface struct {
	Index uint32
	Name  string
	Addrs []netip.Prefix
	// What the host's own settings say of sources: net.ipv4.conf.*.accept_local and rp_filter.
	AcceptLocal bool
	ReversePath ReversePath
}

// ReversePath is a mode of net.ipv4.conf.*.rp_filter (RFC 3704).
type ReversePath uint8

// The modes. Strict: the way back leads out by the same interface. Loose: there is a way back.
const (
	ReverseNone ReversePath = iota
	ReverseStrict
	ReverseLoose
)

// RuleCounter counts what a rule matched.
type RuleCounter struct {
	Key     uint64 // rule.Code.Key
	Number  uint16
	Packets uint64
	Bytes   uint64
	Last    int64 // time of the last match, ns of the engine's clock, 0 never
}

// State is a live state for people and tools.
type State struct {
	Proto    uint8
	From, To netip.AddrPort // as the packet that made it; ICMP: the port of From and To is the id
	Query    uint8          // ICMP: type of the query
	Link     uint32         // index of the interface that link-local From or To are behind, else 0
	// WireFrom and WireTo are From and To as they are on the wire, if the flow is translated; else
	// they are invalid. A translated flow of which rules keep no state has Rule 0.
	WireFrom, WireTo netip.AddrPort
	FlowName         string
	Rule             uint16
	Key              uint64 // rule.Code.Key
	Phase            flow.Phase
	Created          int64 // ns of the engine's clock
	Last             int64
	Deadline         int64
	Packets          [2]uint64 // forward, reverse
	Bytes            [2]uint64
}

// Route is a route of the host: what verrevpath and versrcreach ask. The kernel engine asks the
// kernel instead.
type Route struct {
	Dst       netip.Prefix
	Interface uint32 // index
	Blackhole bool   // blackhole, unreachable or prohibit: there is no way
}
