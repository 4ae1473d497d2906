package netfilter

import (
	"fmt"
	"slices"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// nftParser reads one rule of nft. It may become several entries, of which a packet matches one at
// most.
type nftParser struct {
	reader     *nftReader
	rule       *nftRule
	families   int
	all        []*entry
	translates string // what Weir has instead, if the rule translates
	rate       *rate
}

// fail leaves the rule out. The first reason counts.
func (p *nftParser) fail(format string, args ...any) {
	for _, e := range p.all {
		if e.problem == "" {
			e.problem = fmt.Sprintf(format, args...)
		}
	}
}

// also adds a clause.
func (p *nftParser) also(clauses ...rule.Clause) {
	for _, e := range p.all {
		for _, c := range clauses {
			if !slices.ContainsFunc(e.clauses, func(have rule.Clause) bool {
				return sameClause(have, c)
			}) {
				e.clauses = append(slices.Clip(e.clauses), c)
			}
		}
	}
}

func sameClause(a, b rule.Clause) bool {
	return len(a) == 1 && len(b) == 1 && a[0].Op == b[0].Op && a[0].Not == b[0].Not &&
		a[0].A == b[0].A && a[0].B == b[0].B && a[0].Name == b[0].Name &&
		len(a[0].Ranges)+len(a[0].Prefixes)+len(b[0].Ranges)+len(b[0].Prefixes) == 0
}

// split makes an entry of each combination of an entry and an alternative.
func (p *nftParser) split(alternatives []func(*entry)) {
	var all []*entry
	for _, e := range p.all {
		for i, alternative := range alternatives {
			one := *e
			one.clauses = slices.Clip(one.clauses)
			if i > 0 || len(all) > 0 {
				one.text = "" // stands above the first
			}
			alternative(&one)
			all = append(all, &one)
		}
	}
	if len(all) > 0 {
		p.all = all
	}
}

func (p *nftParser) parse() {
	for _, statement := range p.rule.Expr {
		for word, arg := range statement {
			p.statement(word, arg)
		}
	}
	if p.rate != nil {
		p.rate.end(p.all[0])
		p.rate.shared = p.rate.shared || len(p.all) > 1
	}
	for _, e := range p.all {
		e.rate = p.rate
		if e.problem != "" && e.text == "" {
			e.text = p.all[0].text
		}
	}
}

// nothing are statements that change no verdict.
var nothing = []string{"counter", "continue", "last", "comment"}

// nftProblems is why statements are not carried over.
var nftProblems = map[string]string{
	"queue": "packets are not queued to programs", "mangle": "rules do not change packets",
	"notrack":    "a rule makes a state or not by keep-state",
	"set":        "rules do not change tables; `weir fw table` does",
	"map":        "rules do not change tables",
	"meter":      ratesOfSources,
	"ct helper":  "there are no helpers: a data connection needs a rule of its own",
	"ct count":   connections,
	"ct timeout": "lifetimes are settings: [timeouts]",
	"quota":      "rules have no quota",
	"flow":       "known flows take the fast path by themselves; leave the flowtable out",
	"xt": "a rule of iptables-nft that nft cannot show: give the output of iptables-save and " +
		"ip6tables-save instead",
	"dup":    "packets are not duplicated; `log` makes an event",
	"fwd":    "it sends frames out of another interface; a rule `fwd` names a next hop of IP",
	"tproxy": tproxyHint,
	"synproxy": "SYN cookies are answered by themselves in a flood: the setting [states] " +
		"syn_cookies",
	"secmark": "rules do not change packets",
}

func (p *nftParser) statement(word string, arg any) {
	object, _ := arg.(map[string]any)
	each := func(set func(*entry)) {
		for _, e := range p.all {
			set(e)
		}
	}
	switch word {
	case "match":
		p.match(object)
	case "accept":
		each(func(e *entry) { e.verdict = accept })
	case "drop":
		each(func(e *entry) { e.verdict = drop })
	case "return":
		each(func(e *entry) { e.verdict = back })
	case "jump", "goto":
		each(func(e *entry) { p.toChain(e, word, object) })
	case "reject":
		p.reject(object)
	case "log":
		each(func(e *entry) { e.log = true })
	case "limit":
		twice := p.rate != nil
		p.rate = nftRate(object)
		p.rate.last(p.all[0])
		p.rate.shared = twice
	case "vmap":
		p.verdictMap(object)
	case "masquerade", "snat":
		p.translates = translationHint("SNAT")
		p.fail("%s", p.translates)
	case "dnat", "redirect":
		p.translates = translationHint("DNAT")
		p.fail("%s", p.translates)
	default:
		if why, ok := nftProblems[word]; ok {
			p.fail("%s", why)
			each(func(e *entry) {
				e.other = slices.Contains([]string{"queue", "notrack", "tproxy", "synproxy", "fwd",
					"xt", "dup", "set", "map", "meter"}, word)
			})
			if word == "flow" || word == "ct timeout" {
				each(func(e *entry) { e.quiet = true })
			}
		} else if !slices.Contains(nothing, word) {
			p.fail("the statement %s is not understood", word)
		}
	}
}

func (p *nftParser) toChain(e *entry, word string, to map[string]any) {
	name, _ := to["target"].(string)
	e.verdict, e.target = jump, nftKey(p.rule.Family, p.rule.Table, name)
	if word == "goto" {
		e.verdict = goTo
	}
}

func (p *nftParser) reject(with map[string]any) {
	kind, _ := with["type"].(string)
	what, _ := with["expr"].(string)
	word := kind
	if what != "" {
		word += " " + what
	}
	code, ok := rejections[word]
	if !ok {
		p.fail("unknown answer %s", word)
	}
	// What the answer needs is not listed as a condition of its own.
	switch {
	case code.reset:
		p.also(rule.Clause{proto(packet.ProtoTCP)})
	case ok && code.v4 < 0 && p.families != ipv6:
		p.also(version(ipv6)...)
	case ok && code.v6 < 0 && p.families != ipv4:
		p.also(version(ipv4)...)
	}
	for _, e := range p.all {
		e.verdict, e.code = reject, code
	}
}

// maxSplit is how many entries a rule may become.
const maxSplit = 4096

// verdictMap reads a map from values to verdicts.
func (p *nftParser) verdictMap(m map[string]any) {
	list := mapElements(m["data"])
	if ref, ok := m["data"].(string); ok {
		if set := p.reader.lookup(p.rule, ref); set != nil {
			list = set.Elem
		}
	}
	if list == nil || len(list)*len(p.all) > maxSplit {
		p.fail("a map that is empty, or too large to write out")
		return
	}
	var alternatives []func(*entry)
	var verdicts []string
	for _, item := range list {
		pair, _ := item.([]any)
		if len(pair) != 2 {
			p.fail("a map that is not understood")
			return
		}
		verdict, _ := pair[1].(map[string]any)
		text := fmt.Sprint(verdict)
		sub := &nftParser{reader: p.reader, rule: p.rule, families: p.families,
			all: []*entry{{kinds: anyKind}}}
		sub.match(map[string]any{"op": "==", "left": m["key"], "right": pair[0]})
		for word, arg := range verdict {
			sub.statement(word, arg)
		}
		for _, one := range sub.all {
			// of one verdict are those of conntrack states alone, which are one rule
			key := ""
			if one.kinds != anyKind && len(one.clauses) == 0 {
				key = text
			}
			if at := slices.Index(verdicts, key); at >= 0 && key != "" {
				before := alternatives[at]
				alternatives[at] = func(e *entry) {
					kept := e.kinds
					before(e)
					e.kinds |= kept & one.kinds
				}
				continue
			}
			verdicts = append(verdicts, key)
			alternatives = append(alternatives, func(e *entry) { e.take(one) })
		}
	}
	p.split(alternatives)
}

// take adds the conditions of another entry, and has its verdict.
func (e *entry) take(o *entry) {
	e.clauses = append(e.clauses, o.clauses...)
	e.kinds &= o.kinds
	e.verdict, e.target, e.code = o.verdict, o.target, o.code
	if e.problem == "" {
		e.problem = o.problem
	}
}

// mapElements returns the elements of an anonymous set or map.
func mapElements(v any) []any {
	m, _ := v.(map[string]any)
	list, _ := m["set"].([]any)
	return list
}
