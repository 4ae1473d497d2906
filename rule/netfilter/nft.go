package netfilter

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weirnet/weir/rule"
)

// nftObject is one object of `nft -j list ruleset` (libnftables-json(5)). One field is not nil.
type nftObject struct {
	Table *nftTable
	Chain *nftChain
	Rule  *nftRule
	Set   *nftSet
	Map   *nftSet
}

type nftTable struct {
	Family, Name string
	Flags        any // a word, or a list of words
}

type nftChain struct {
	Family, Table, Name, Type, Hook, Policy string
	Prio                                    json.RawMessage
}

type nftRule struct {
	Family, Table, Chain, Comment string
	Handle                        int
	Expr                          []map[string]any
}

type nftSet struct {
	Family, Table, Name string
	Type                any // a name, or a list of names for concatenations
	Elem                []any
	Flags               []string
}

// nftReader reads the ruleset of nft.
type nftReader struct {
	set    *ruleset
	source string
	sets   map[string]*nftSet
	nat    map[*chain]bool
	heard  map[string]bool
	// tables that are not in force, or may not be
	dormant map[string]bool
	// the rule that is being read asks for the next header of IPv6
	nextHeader bool
}

var nftFamilies = map[string]int{"ip": ipv4, "ip6": ipv6, "inet": bothFamilies}

// readNft reads the JSON of `nft -j list ruleset`.
func readNft(s *ruleset, src Source) error {
	var doc struct{ Nftables []nftObject }
	if err := json.Unmarshal([]byte(src.Text), &doc); err != nil {
		return fmt.Errorf("%s: not the output of `nft -j list ruleset`: %w", src.Name, err)
	}
	if doc.Nftables == nil {
		return fmt.Errorf("%s: JSON without \"nftables\": give the output of "+
			"`nft -j list ruleset`", src.Name)
	}
	r := &nftReader{set: s, source: src.Name, sets: map[string]*nftSet{}, nat: map[*chain]bool{},
		heard: map[string]bool{}, dormant: map[string]bool{}}
	for _, o := range doc.Nftables {
		if o.Table != nil && !o.Table.inForce() {
			r.leaveDormant(o.Table)
		}
		for _, set := range []*nftSet{o.Set, o.Map} {
			if set != nil {
				r.sets[nftKey(set.Family, set.Table, set.Name)] = set
			}
		}
	}
	for _, o := range doc.Nftables {
		if o.Chain != nil {
			if err := r.chain(o.Chain); err != nil {
				return err
			}
		}
	}
	for _, o := range doc.Nftables {
		if o.Rule != nil {
			r.rule(o.Rule)
		}
	}
	return nil
}

func nftKey(family, table, name string) string { return family + " " + table + " " + name }

// chain reads a chain.
func (r *nftReader) chain(c *nftChain) error {
	families, ok := nftFamilies[c.Family]
	if !ok {
		r.other(c.Family, c.Table)
		return nil
	}
	if r.dormant[nftKey(c.Family, c.Table, "")] {
		return nil
	}
	key := nftKey(c.Family, c.Table, c.Name)
	to := r.set.chain(key, key, families)
	if c.Hook == "" {
		return nil
	}
	if c.Type == "nat" {
		r.nat[to] = true
		return nil
	}
	hook, ok := hookNames[c.Hook]
	if !ok {
		r.set.remarks = append(r.set.remarks, Remark{Place: Place{File: r.source}, Text: key,
			Left: true, Effect: EffectUnknown, Why: "the hook " + c.Hook + " is not one of the " +
				"rules; prerouting is next to it"})
		return nil
	}
	if err := json.Unmarshal(c.Prio, &to.priority); err != nil {
		return fmt.Errorf("%s: priority %s of chain %s is not a number", r.source, c.Prio, key)
	}
	to.hook, to.accept = hook, c.Policy != "drop"
	return nil
}

// inForce reports whether a table has no flags but those that change nothing of its rules.
func (t *nftTable) inForce() bool {
	words, isList := t.Flags.([]any)
	if !isList && t.Flags != nil {
		words = []any{t.Flags}
	}
	return !slices.ContainsFunc(words, func(w any) bool { return w != "owner" && w != "persist" })
}

// leaveDormant records that a dormant table is left out. nft 1.0.6 writes any word in place of that
// flag.
func (r *nftReader) leaveDormant(t *nftTable) {
	r.dormant[nftKey(t.Family, t.Name, "")] = true
	r.set.remarks = append(r.set.remarks, Remark{Place: Place{File: r.source},
		Text: "table " + t.Family + " " + t.Name, Left: true, Effect: EffectUnknown,
		Why: "a table with flags may be dormant, then its rules are not in force: nft list " +
			"ruleset shows it; if it is not, take the flags out of the JSON"})
}

// other records a table of frames that are not IP.
func (r *nftReader) other(family, table string) {
	key := family + " " + table
	if !r.heard[key] {
		r.set.remarks = append(r.set.remarks, Remark{Place: Place{File: r.source},
			Text: "table " + key, Left: true, Effect: EffectUnknown,
			Why: "rules are about IP, not about frames"})
	}
	r.heard[key] = true
}

// rule reads a rule. A map of verdicts makes several of it.
func (r *nftReader) rule(n *nftRule) {
	families, ok := nftFamilies[n.Family]
	if !ok || r.dormant[nftKey(n.Family, n.Table, "")] {
		return
	}
	key := nftKey(n.Family, n.Table, n.Chain)
	c := r.set.chain(key, key, families)
	at := Place{File: r.source, Handle: n.Handle}
	p := &nftParser{reader: r, rule: n, families: families, all: []*entry{{place: at,
		text: nftText(n), kinds: anyKind, comment: n.Comment}}}
	r.nextHeader = false
	p.parse()
	for _, e := range p.all { // a statement that changes nothing may stand before a verdict
		e.quiet = e.quiet && e.verdict == proceed
	}
	if p.translates != "" && (r.nat[c] || c.hook == hookNone) {
		r.set.leave(&entry{place: at, text: p.all[0].text, problem: p.translates,
			other: true})
		return
	}
	if r.nat[c] { // what it accepts is not translated, and goes to the other chains as all does
		for _, e := range p.all {
			if e.verdict == drop || e.verdict == reject || e.verdict == jump || e.verdict == goTo {
				e.problem = "a chain of type nat is not carried over"
				r.set.leave(e)
			}
		}
		return
	}
	for _, e := range p.all { // iptables has ports with a protocol alone
		if e.problem == "" && e.portsOfOthers() {
			r.set.leavePart(e, p.all[0].text)
			break
		}
	}
	if r.nextHeader && slices.ContainsFunc(p.all, func(e *entry) bool { return e.problem == "" }) {
		r.set.note(at, "nft looks at the first next header alone; the rule below is also about "+
			"packets with extension headers in front of that protocol")
	}
	c.rules = append(c.rules, p.all...)
}

// nftLeft returns how many seconds an element of a set has left, 0 for one that stays.
func nftLeft(e any) uint64 {
	outer, _ := e.(map[string]any)
	inner, _ := outer["elem"].(map[string]any)
	for _, word := range []string{"expires", "timeout"} {
		if n, ok := inner[word].(float64); ok && n > 0 {
			return uint64(max(n, 1))
		}
	}
	return 0
}

// lookup returns the set of a reference like "@name", nil if there is none.
func (r *nftReader) lookup(n *nftRule, ref string) *nftSet {
	if len(ref) < 2 || ref[0] != '@' {
		return nil
	}
	return r.sets[nftKey(n.Family, n.Table, ref[1:])]
}

// table returns the name of the table that a set of addresses becomes, and fills it.
func (r *nftReader) table(s *nftSet) (string, error) {
	name := r.set.tableName(nftKey(s.Family, s.Table, s.Name), s.Name)
	if r.set.tables[name] != nil {
		return name, nil
	}
	t := rule.Table{}
	r.set.tables[name] = t
	for _, e := range s.Elem {
		v, err := value(e)
		if err != nil {
			delete(r.set.tables, name)
			return "", err
		}
		prefixes, err := v.prefixes()
		if err != nil {
			delete(r.set.tables, name)
			return "", err
		}
		for _, p := range prefixes {
			r.set.member(name, p, nftLeft(e))
		}
	}
	if len(t) == 0 || slices.Contains(s.Flags, "dynamic") {
		r.set.unfilled(Place{File: r.source},
			"table %s: nothing fills it but `weir fw table`; the set "+
				"%s of nft is filled by rules or another program", name, s.Name)
	}
	return name, nil
}
