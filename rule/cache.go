package rule

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
)

// A Cache compiles a sequence of rule sets that share most of their rules: it keeps the compiled
// form of each rule. The zero Cache is ready. It is not safe for concurrent use.
type Cache struct {
	parts []part // of the rules compiled last, in order
	work  [program.NumDims]workspace
}

// Compile is the function Compile.
func (c *Cache) Compile(s *Ruleset, o CompileOptions) (*Program, error) {
	return compile(s, o, true, c)
}

// lookahead is how many rules may have gone at one place before the rules behind them are taken for
// new.
const lookahead = 16

// take returns the parts of the rules, and keeps them for the next time.
func (c *Cache) take(rules []*Rule, bake bool) []part {
	parts := make([]part, len(rules))
	old := c.parts
	for i, r := range rules {
		at := slices.IndexFunc(old[:min(len(old), lookahead)],
			func(p part) bool { return p.rule == r })
		if at < 0 {
			parts[i] = newPart(r, bake)
			continue
		}
		parts[i], old = old[at], old[at+1:]
	}
	c.parts = parts
	return parts
}

// part is what a rule compiles to, whatever stands around it. A Rule never changes, so that its
// address stands for it.
type part struct {
	rule  *Rule
	text  string
	hash  uint64 // of number and text
	frag  bool   // it has a test of fragments that is not negated
	baked []baked
	rest  []Clause // what no dimension decides
	// IPv6 prefixes of the baked conditions: source, destination
	named6 [2][]netip.Prefix
}

// baked is the set of keys of one dimension for which the rule's conditions are true.
type baked struct {
	dim   program.Dim
	spans spans
}

func newPart(r *Rule, bake bool) part {
	p := part{rule: r, text: r.core()}
	p.hash = fnv1a(fnv1a(fnv1a(fnvBasis, strconv.Itoa(int(r.Number))), " "), p.text)
	var all [program.NumDims]spans
	var is [program.NumDims]bool
	for _, clause := range r.Clauses() {
		for i := range clause {
			p.frag = p.frag || clause[i].Op == op.CondFrag && !clause[i].Not
		}
		if clause.always() {
			continue
		}
		dim := clause.dim()
		if !bake || dim == noDim {
			p.rest = append(p.rest, clause)
			continue
		}
		s := clause.spans(dim)
		if is[dim] {
			s = intersect(all[dim], s)
		}
		is[dim], all[dim] = true, s
		if dim == program.DimSrc || dim == program.DimDst {
			p.note6(dim, clause)
		}
	}
	for dim := range program.NumDims {
		if is[dim] {
			p.baked = append(p.baked, baked{dim, all[dim]})
		}
	}
	return p
}

func (p *part) note6(dim program.Dim, clause Clause) {
	for i := range clause {
		for _, prefix := range clause[i].Prefixes {
			if prefix.Addr().Is6() {
				p.named6[dim] = append(p.named6[dim], prefix.Masked())
			}
		}
	}
}
