// Package api is the protocol of a running node: plain values as JSON over HTTP on the node's unix
// socket, and a Client for it.
//
// A second, read-only socket answers what only reads: the GET requests but for packets, and why,
// flow and preview. It refuses any other with status 403.
//
// Every answer has a field "version". Fields are only ever added; the version rises when a field
// changes its meaning, which so far never happened. A request that fails is answered with a status
// of 400 or more and an Error; 503 says that the same request may succeed later.
//
//	GET  /v1/status        Status
//	GET  /v1/rules         Rules
//	GET  /v1/tables        Tables     ?members=0: only how many there are; ?name=TABLE: only one;
//	                       ?address=ADDRESS: only the longest prefix that holds it
//	GET  /v1/sets          Sets
//	GET  /v1/pipes         Pipes
//	GET  /v1/nat           NATs
//	GET  /v1/states        States     ?filter=EXPR
//	GET  /v1/events        JSON lines of events; ?filter=EXPR ?since=TIME|DURATION ?follow=0
//	GET  /v1/top           Top        ?n=ROWS
//	GET  /v1/history       History    ?since=NUMBER of a sample
//	GET  /v1/packets       JSON lines of Captured; ?filter=EXPR
//	GET  /metrics          text for Prometheus
//	POST /v1/do            Do       -> Done       a command: add, delete, set, table, flush, zero
//	POST /v1/commands      Commands -> Done       the commands of a file, all or none
//	POST /v1/load          Load     -> Done       the whole rule set
//	POST /v1/confirm                -> Done       keep what was loaded on trial
//	POST /v1/revert                 -> Done       go back to what was before it
//	POST /v1/states/delete DeleteStates -> Deleted  end the states that a filter picks
//	POST /v1/panic         Panic    -> Done       deny everything but the session that asks
//	POST /v1/panic/end              -> Done       the rules before
//	POST /v1/why           Why      -> Explanation
//	POST /v1/flow          FlowQuestion -> Flow    what is known of a flow
//	POST /v1/preview       RuleChange -> Preview   what a change of the rules would do
//	POST /v1/down                   -> Done       stop, remove everything; ?keep=1 keeps the files
//	GET  /v1/pods          Pods
//	POST /v1/pods          pod.Spec -> Pod        give a container its network
//	POST /v1/pods/detach   Detach   -> Done       detach it
//	POST /v1/pods/check    Detach   -> Done       compare it with what was made
//	POST /v1/pods/attached Attached -> IsAttached  is there anything of it?
//	POST /v1/pods/gc       GC       -> Done       detach all others of a network
//	GET  /v1/services      Services
//	POST /v1/services      AddService -> Services  add a service: an address that leads to pods
//	POST /v1/services/remove  RemoveService -> Done  remove it
//	GET  /v1/peers         Peers
//	POST /v1/peers         AddPeer  -> Done       add another node, or change it
//	POST /v1/peers/remove  RemovePeer -> Done     forget it
//	POST /v1/peers/key              -> PeerKey    what it needs to know of this one
package api

import (
	"errors"
	"net/netip"
	"time"

	"github.com/weirnet/weir/packet"
)

// Version is the version of all answers.
const Version = 1

// Error describes what failed and, if known, what to do.
type Error struct {
	Version int    `json:"version"`
	Message string `json:"message"`
	Advice  string `json:"hint,omitempty"`
	// mistakes in rule text: place, line, caret and hint of each
	Details string `json:"report,omitempty"`

	later bool // the answer had the status of ErrLater
}

// ErrLater is what the error of a request is (errors.Is) that is refused for now: the same request
// may succeed later. Its answer has the status 503.
var ErrLater = errors.New("try again later")

func (e *Error) Error() string { return e.Message }

// Is implements errors.Is.
func (e *Error) Is(target error) bool { return e.later && target == ErrLater }

// Report returns the mistakes in rule text, each with its place, line, caret and hint; "" if there
// are none.
func (e *Error) Report() string { return e.Details }

// Hint returns what to do next, or "".
func (e *Error) Hint() string { return e.Advice }

// Status is the state of a node.
type Status struct {
	Version  int       `json:"version"`
	Healthy  bool      `json:"healthy"`
	Problems []Problem `json:"problems,omitempty"`
	// what is doubtful about the rules (see Warnings) or beside them. The node is healthy all the
	// same.
	Warnings   []string    `json:"warnings,omitempty"`
	Host       string      `json:"host"` // the host's name
	Weir       string      `json:"weir"` // the version of the program, as weir version shows it
	PID        int         `json:"pid"`
	Since      time.Time   `json:"since"`
	Interfaces []Interface `json:"interfaces"`
	// not guarded, since another program made them for its containers
	Skipped []Skipped `json:"skipped,omitempty"`
	Rules   int       `json:"rules"` // without the default rule
	// where the rules come from: a file, "saved", "none"
	Source    string      `json:"source"`
	Default   string      `json:"default"` // what rule 65535 does: allow or deny
	Trial     *Trial      `json:"trial,omitempty"`
	Panic     *PanicState `json:"panic,omitempty"`
	States    int         `json:"states"`
	StatesMax int         `json:"states_max"`
	// connections that were open before and became states
	Adopted   int  `json:"adopted"`
	TakenOver bool `json:"takenover"` // enforcement was there when the agent started
	Pods      bool `json:"pods"`      // containers can be given networks
	// packets that something other than a rule decided
	Reasons map[string]uint64 `json:"reasons"`
	Table   StateTable        `json:"table"`
	// ports of the host that lead to other hosts
	Forwards []Forward `json:"forwards,omitempty"`
	// networks behind the host that leave with another source
	Masquerades []Masquerade `json:"masquerades,omitempty"`
	Binats      []Binat      `json:"binats,omitempty"`  // addresses of others behind the host
	Cluster     *Cluster     `json:"cluster,omitempty"` // of a host that has joined one
	Tunnel      *Tunnel      `json:"tunnel,omitempty"`  // to other nodes, if there is one
}

// Tunnel is the encrypted tunnel to other nodes.
type Tunnel struct {
	Interface string `json:"interface"`
	Backend   string `json:"backend"` // whose WireGuard it is: "user" or "kernel"
	// why it is ours in user space although the settings prefer the kernel's
	Reason string `json:"reason,omitempty"`
	// packets that waited for a session of their peer and were dropped, as too many waited or none
	// came in time; only ours in user space counts them
	DroppedQueueFull uint64 `json:"dropped_queue_full,omitempty"`
	DroppedNoSession uint64 `json:"dropped_no_session,omitempty"`
}

// Forward is a port of the host, or several in a row, that lead to another host behind it.
type Forward struct {
	Proto packet.Proto `json:"proto"`
	// the first port; an unspecified address: all of the host's
	Listen netip.AddrPort `json:"listen"`
	To     netip.AddrPort `json:"to"` // where the first port leads
	Ports  int            `json:"ports"`
}

// Masquerade is a network behind the host whose packets are masqueraded.
type Masquerade struct {
	Source netip.Prefix `json:"source"`
	To     string       `json:"to,omitempty"` // left out: that of the interface that they leave by
}

// Binat is an address that leads to another host, which leaves by it (1:1 NAT).
type Binat struct {
	Listen netip.Addr `json:"listen"`
	To     netip.Addr `json:"to"`
}

// StateTable is how full the state table of the kernel engine is, which packets found no space in
// it, and how its sweep is doing.
type StateTable struct {
	// entries in use, including expired ones that the sweep has not removed yet: a translated flow
	// takes three
	States    int `json:"states"`
	StatesMax int `json:"states_max"`
	// established states: never evicted
	Established int `json:"established"`
	HalfOpen    int `json:"half_open"` // the others
	HalfOpenMax int `json:"half_open_max"`
	PerSource   int `json:"half_open_per_source"` // 0: any number
	// packets whose state could not be made, by reason
	Refused map[string]uint64 `json:"refused"`
	// states evicted for others: expired, closed or half-open
	Evicted  uint64  `json:"reclaimed"`
	SweepLag float64 `json:"sweep_lag_seconds"` // age of the oldest expired state
	// events lost because the ring in the kernel was full
	EventsLost uint64 `json:"events_lost"`
	// packets of rules with limit-rate that found no place for a bucket of their own
	RatesFull uint64 `json:"rates_full"`

	Cookies Cookies `json:"syn_cookies"`

	Translations Translations `json:"translations"`
}

// Translations is how many flows are translated, behind the host's address or through published
// ports.
type Translations struct {
	Now     int    `json:"now"`
	Max     int    `json:"max"`
	PerPod  int    `json:"per_pod"`
	Made    uint64 `json:"made"`
	Evicted uint64 `json:"evicted"` // evicted for others
	Refused uint64 `json:"refused"` // packets for which no port could be had
}

// Cookies are figures of SYN cookies, by which the kernel answers for services of the host while
// too many states are half-open.
type Cookies struct {
	On         bool   `json:"on"`
	Impossible string `json:"impossible,omitempty"` // why they cannot be used
	Sent       uint64 `json:"sent"`
	Redeemed   uint64 `json:"redeemed"` // came back: connections
	Refused    uint64 `json:"refused"`  // came back, but the host opened no connection
	TimesOn    int    `json:"times_on"` // how often they were switched on
}

// Problem is something wrong with a node.
type Problem struct {
	What   string `json:"what"`
	Advice string `json:"hint,omitempty"`
}

// Interface is an interface that is guarded.
type Interface struct {
	Name  string `json:"name"`
	Index uint32 `json:"index"`
	Hook  string `json:"hook"` // tcx or clsact; tunnel: in user space
	// the programs that packets meet before Weir's, in that order
	Before []Before `json:"before,omitempty"`
}

// Before is a program of another owner that packets meet before Weir's at an interface.
type Before struct {
	Hook      string `json:"hook"`              // xdp, tcx, filter or nftables
	Direction string `json:"direction"`         // in or out
	Name      string `json:"name"`              // its owner's; of nftables: table and chain
	Program   uint32 `json:"program,omitempty"` // the kernel's id of it
}

// Skipped is an interface that is not guarded although the settings match it.
type Skipped struct {
	Name  string `json:"name"`
	Index uint32 `json:"index"`
	Maker string `json:"maker"` // the program that makes interfaces of such names
}

// Trial is a rule set that was loaded and is rolled back unless it is confirmed.
type Trial struct {
	Name        string  `json:"name"`
	LeftSeconds float64 `json:"left_seconds"`
}

// Rules is the rule set with its counters, in order of evaluation; the last one is the default
// rule.
type Rules struct {
	Version int        `json:"version"`
	Since   time.Time  `json:"since"` // a rule without packets has matched none since
	Rules   []Rule     `json:"rules"`
	Table   StateTable `json:"table"`
}

// Rule is one rule.
type Rule struct {
	Number   uint16     `json:"number"`
	Set      uint8      `json:"set"`
	Disabled bool       `json:"disabled,omitempty"` // its set is disabled: it is not evaluated
	Text     string     `json:"text"`               // canonical, without the number
	Packets  uint64     `json:"packets"`
	Bytes    uint64     `json:"bytes"`
	Last     *time.Time `json:"last,omitempty"`               // of the last match
	Rate     *float64   `json:"packets_per_second,omitempty"` // set by a client that asked twice
}

// Tables are the tables of the rule set by name.
type Tables struct {
	Version int     `json:"version"`
	Tables  []Table `json:"tables"`
}

// Table is a named set of prefixes.
type Table struct {
	Name string `json:"name"`
	// the containers with this label; no command changes it
	Label bool `json:"label,omitempty"`
	// the file whose lines are the members; no command changes them
	File    string       `json:"file,omitempty"`
	Items   int          `json:"items"` // how many members
	Entries []TableEntry `json:"entries"`
}

// TableEntry is a member of a table.
type TableEntry struct {
	Prefix string `json:"prefix"`
	Value  uint32 `json:"value"`
	// LeftSeconds is how long it stays, nil without a timeout.
	LeftSeconds *float64 `json:"left_seconds,omitempty"`
}

// Sets are which sets are disabled and which have rules.
type Sets struct {
	Version  int        `json:"version"`
	Disabled []int      `json:"disabled"`
	Used     []SetCount `json:"used"`
}

// Pipes are the pipes that are configured.
type Pipes struct {
	Version int    `json:"version"`
	Pipes   []Pipe `json:"pipes"`
}

// Pipe is a pipe. Config is the text after "pipe N config".
type Pipe struct {
	Number    uint16 `json:"number"`
	Config    string `json:"config"`
	Bandwidth uint64 `json:"bandwidth_bits"` // in a second, 0 for no bound
	Burst     uint32 `json:"burst_bytes"`
}

// NATs are the instances of nat that are configured.
type NATs struct {
	Version int   `json:"version"`
	NATs    []NAT `json:"nat"`
}

// NAT is an instance. Config is the text after "nat N config".
type NAT struct {
	Number uint16 `json:"number"`
	Config string `json:"config"`
}

// SetCount is a set with rules.
type SetCount struct {
	Set   int `json:"set"`
	Rules int `json:"rules"`
}

// States are the live states.
type States struct {
	Version int        `json:"version"`
	States  []State    `json:"states"`
	Table   StateTable `json:"table"`
}

// State is a live flow. From sent the packet that created it. Pairs are forward, reverse.
type State struct {
	Proto string `json:"proto"`
	From  string `json:"from"`
	To    string `json:"to"`
	// ICMPType is the type of the query of an ICMP exchange, whose port is the id of the query.
	ICMPType uint8 `json:"icmp_type,omitempty"`
	// Interface is the one that a link-local flow belongs to.
	Interface   string    `json:"interface,omitempty"`
	Flow        string    `json:"flow"`
	Phase       string    `json:"phase"`
	Rule        uint16    `json:"rule"`
	AgeSeconds  float64   `json:"age_seconds"`
	LeftSeconds float64   `json:"left_seconds"`
	Packets     [2]uint64 `json:"packets"`
	Bytes       [2]uint64 `json:"bytes"`
	// WireFrom and WireTo are what a translated flow looks like on the wire, as From and To are
	// what rules see.
	WireFrom string `json:"wire_from,omitempty"`
	WireTo   string `json:"wire_to,omitempty"`
	// Engine is "tunnel" for what the engine of the tunnel to other nodes has, and "" for the
	// kernel's. A flow between pods of two nodes has a state in each.
	Engine string `json:"engine,omitempty"`
}

// DeleteStates requests the deletion of the states that a filter selects, in the syntax of GET
// /v1/states.
type DeleteStates struct {
	Filter string `json:"filter"`
}

// Deleted is how many states were ended.
type Deleted struct {
	Version int `json:"version"`
	Deleted int `json:"deleted"`
}

// Command is one line in ipfw's grammar: "add 100 allow ip from any to any", "delete 100", "table
// web add 10.0.0.0/8".
type Command struct {
	Line string `json:"line"`
	// Lenient: what is to be removed and is not there is no error
	Lenient bool `json:"lenient,omitempty"`
}

// Commands are the lines of a file in ipfw's grammar. Unlike Load they change the rules in force.
// They are done all, or none of them.
type Commands struct {
	Name string `json:"name"` // of the file, for messages
	Text string `json:"text"`
}

// Load replaces the whole rule set by the content of a rule file.
type Load struct {
	Name string `json:"name"` // of the file, for messages
	Text string `json:"text"`
	// a duration: go back to the previous rules unless confirmed in time
	Confirm string `json:"confirm,omitempty"`
	// SaveNew or SaveReplace: once confirmed, the text becomes the node's rule file
	Save string `json:"save,omitempty"`
	// the session that asks, to be warned if these rules would not let it in again
	Session *Session `json:"session,omitempty"`
}

// The values of Load.Save. SaveNew refuses where there is a rule file; SaveReplace keeps it under
// another name.
const (
	SaveNew     = "new"
	SaveReplace = "replace"
)

// Session is a TCP connection to a service of the host by which its owner works there.
type Session struct {
	From netip.AddrPort `json:"from"`
	To   netip.AddrPort `json:"to"`
}

// Panic requests that everything is denied except a session.
type Panic struct {
	Session *Session `json:"session,omitempty"`
	// Force: deny everything also without a session, or one that does not end at this host.
	Force bool `json:"force,omitempty"`
}

// PanicState is a panic that is on.
type PanicState struct {
	Since   time.Time `json:"since"`
	Session *Session  `json:"session,omitempty"` // which it spares
}

// WarningsQuery requests warnings about the rules in force.
type WarningsQuery struct {
	Session *Session `json:"session,omitempty"`
}

// Warnings are warnings about the rules in force, as sentences.
type Warnings struct {
	Version  int      `json:"version"`
	Warnings []string `json:"warnings"`
}

// Why asks what would happen to a packet.
type Why struct {
	Packet string `json:"packet"` // in text form
}

// Explanation is what would happen to a packet, and why.
type Explanation struct {
	Version int    `json:"version"`
	Packet  string `json:"packet"`
	Passed  bool   `json:"passed"`
	Rule    uint16 `json:"rule"` // that decides; 0: decided before the rules
	Text    string `json:"text,omitempty"`
	Reason  string `json:"reason"`           // "rule", or what else decided
	Answer  string `json:"answer,omitempty"` // what the sender gets back
	State   bool   `json:"state"`            // a state would be made
	Found   string `json:"found,omitempty"`  // the live state that the packet belongs to
	Tries   []Try  `json:"tries"`            // rules in the order in which they were tried
}

// Try is a rule that was tried, and the outcome.
type Try struct {
	Rule    uint16 `json:"rule"`
	Text    string `json:"text"`
	Outcome string `json:"outcome"`
	Index   int    `json:"-"` // of the rule in the Program
}

// Done is the answer to a change.
type Done struct {
	Version int    `json:"version"`
	Message string `json:"message,omitempty"` // for people; what an "add" prints
	Rules   int    `json:"rules"`             // after the change, without the default rule
	// what is doubtful about the rules
	Warnings []string `json:"warnings,omitempty"`
}
