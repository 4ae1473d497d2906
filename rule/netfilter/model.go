package netfilter

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weirnet/weir/rule"
)

// Source is one text to read.
type Source struct {
	Name string // of the file, for messages; "stdin"
	Text string
}

// Place is where a rule stands in its source.
type Place struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`   // from 1, 0 in JSON of nft
	Handle int    `json:"handle,omitempty"` // of nft
}

// String returns the place as messages begin with it.
func (p Place) String() string {
	if p.Handle != 0 {
		return fmt.Sprintf("%s: handle %d", p.File, p.Handle)
	}
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// hook is a place where netfilter asks chains.
type hook uint8

const (
	hookNone hook = iota // a chain that only jumps lead to
	prerouting
	input
	forward
	output
	postrouting
	numHooks
)

var hookNames = map[string]hook{"prerouting": prerouting, "input": input, "forward": forward,
	"output": output, "postrouting": postrouting}

func (h hook) String() string {
	for name, is := range hookNames {
		if is == h {
			return name
		}
	}
	return "none"
}

// Families of packets.
const (
	ipv4 = 1 << iota
	ipv6
	bothFamilies = ipv4 | ipv6
)

// chain is a list of rules.
type chain struct {
	key      string // distinguishes the chains of a ruleset
	name     string // for people: "filter INPUT"
	families int
	hook     hook
	priority int
	accept   bool // the policy
	rules    []*entry
	inserted []*entry // go in front of rules, the last one first
}

// verdict is what a rule does with a packet.
type verdict uint8

const (
	proceed verdict = iota // to the next rule
	accept
	drop
	reject // with a code
	jump   // to the chain target, and back
	goTo   // to the chain target, and back to where this chain was jumped to from
	back   // return
)

// entry is a rule of netfilter.
type entry struct {
	place   Place
	text    string // as in its source
	clauses []rule.Clause
	kinds   kinds // of packets, by conntrack; every kind if the rule does not ask
	verdict verdict
	target  string // key of the chain of jump and goTo
	code    rejection
	log     bool
	prob    float64
	comment string
	problem string // why the rule is left out, "" if it is not
	quiet   bool   // leaving it out changes no verdict
	other   bool   // it decides about packets in a way that rules do not have
	rate    *rate  // nil if the rule says none
}

// ruleset is what a reader found.
type ruleset struct {
	form    string
	chains  []*chain
	byKey   map[string]*chain
	tables  map[string]rule.Table
	ends    map[string]map[netip.Prefix]uint64 // seconds that members have left, by table
	names   map[string]string                  // of tables, by the names of the sets
	unknown map[string]Place                   // sets that rules ask and no source has
	netmask map[string]int                     // of ipsets that have one, by table
	seen    int                                // families that the source is complete for
	depth   int                                // how deep chains jump to others
	remarks []Remark
	left    map[Remark]bool // those that leave has added
	taken   map[string]bool // names of tables that sets have
	copies  map[string]int  // how many names with a number were tried, by the name without
}

func newRuleset(form string) *ruleset {
	return &ruleset{form: form, byKey: map[string]*chain{}, tables: map[string]rule.Table{},
		ends: map[string]map[netip.Prefix]uint64{}, names: map[string]string{},
		unknown: map[string]Place{}, netmask: map[string]int{}, left: map[Remark]bool{},
		taken: map[string]bool{"all": true, "": true}, copies: map[string]int{}}
}

// member adds a member of a table; left is how many seconds it has left, 0 for one that stays.
func (s *ruleset) member(table string, p netip.Prefix, left uint64) {
	s.tables[table][p] = 0
	if left == 0 {
		return
	}
	if s.ends[table] == nil {
		s.ends[table] = map[netip.Prefix]uint64{}
	}
	s.ends[table][p] = min(left, uint64(rule.MaxTimeout/time.Second))
}

// chain returns the chain of a key, and makes it.
func (s *ruleset) chain(key, name string, families int) *chain {
	if c := s.byKey[key]; c != nil {
		return c
	}
	c := &chain{key: key, name: name, families: families, accept: true}
	s.byKey[key] = c
	s.chains = append(s.chains, c)
	return c
}

// unconditional reports whether the rule matches every packet of its kinds.
func (e *entry) unconditional() bool {
	return len(e.clauses) == 0 && e.prob == 0 && e.rate == nil
}

// final reports whether no later rule sees what the rule matches.
func (e *entry) final() bool {
	return e.verdict == accept || e.verdict == drop || e.verdict == reject
}
