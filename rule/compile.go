package rule

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
)

// Program is a compiled rule set, which the engines of package firewall load. It is immutable. Its
// fields and methods are for engines and may change.
type Program = program.Program

// CompileOptions are the inputs of a Program other than the rules.
type CompileOptions struct {
	Default op.Action // of the default rule: ActionAllow or ActionDeny; 0 is ActionDeny
	Strict  bool      // Program.Strict
}

// Compile makes the Program of the enabled sets of s. Tables are not part of it: a Program names
// them only.
func Compile(s *Ruleset, o CompileOptions) (*Program, error) {
	return compile(s, o, true, new(Cache))
}

// compileFull makes the same Program without the help of the classifier: every condition is
// residual and every vector is all ones. It is slow to run and obviously right; tests compare the
// baked Program with it.
func compileFull(s *Ruleset, o CompileOptions) (*Program, error) {
	return compile(s, o, false, new(Cache))
}

// compiler holds a Program in the making.
type compiler struct {
	program.Program
	flows   map[string]int
	tables  map[string]int
	names   map[string]int
	globs   map[string]int
	hops    map[netip.AddrPort]uint32 // indexes in NextHops
	pipes   map[uint32]uint16         // Rule.Pipe by number, 0 for one without a bound
	seen    map[uint64]int            // how often a text came under one number, by hash
	work    *[program.NumDims]workspace
	named6  [2][]netip.Prefix // IPv6 prefixes of the baked conditions: source, destination
	numbers []uint16          // by slot

	manyPass bool // Ruleset.ManyPass
}

func compile(s *Ruleset, o CompileOptions, bake bool, cache *Cache) (*Program, error) {
	rules := s.Active()
	if len(rules) >= program.MaxRules {
		return nil, fmt.Errorf("%d rules: a program holds at most %d", len(rules),
			program.MaxRules-1)
	}
	c := &compiler{
		flows: map[string]int{}, tables: map[string]int{}, names: map[string]int{},
		globs: map[string]int{}, hops: map[netip.AddrPort]uint32{},
		seen: map[uint64]int{}, work: &cache.work,
	}
	c.Flows, c.flows[""], c.flows["default"] = []string{"default"}, 0, 0
	c.Strict = o.Strict
	last := &Rule{Number: program.DefaultNumber, Set: ReservedSet,
		Action: Action{Op: op.ActionDeny}}
	switch o.Default {
	case 0, op.ActionDeny:
	case op.ActionAllow:
		last.Action.Op = op.ActionAllow
	default:
		return nil, fmt.Errorf("the default rule cannot be %q: allow or deny", o.Default)
	}
	rules = append(rules, last)
	c.Rules = make([]program.Rule, len(rules))
	c.Texts = make([]string, len(rules))
	c.numbers = make([]uint16, len(rules))
	for slot, r := range rules {
		c.numbers[slot] = r.Number
	}
	c.First = len(rules)
	if err := c.takePipes(s, rules); err != nil {
		return nil, err
	}
	if err := c.takeNATs(s, rules); err != nil {
		return nil, err
	}
	c.manyPass = s.ManyPass
	parts := cache.take(rules, bake)
	c.reserve(parts)
	for slot, r := range rules {
		if err := c.rule(slot, &parts[slot]); err != nil {
			return nil, r.fail(err)
		}
	}
	if err := c.CheckWalk(); err != nil {
		return nil, err
	}
	if err := c.classify(); err != nil {
		return nil, err
	}
	return &c.Program, nil
}

// reserve makes space for the baked conditions of all rules.
func (c *compiler) reserve(parts []part) {
	var n [program.NumDims]int
	for i := range parts {
		for _, b := range parts[i].baked {
			n[b.dim]++
		}
	}
	for dim := range c.work {
		w := &c.work[dim]
		w.limits = emptied(w.limits, n[dim])
	}
}

// takePipes makes the pipes that rules name and that have a bound. A pipe is as an additional rule:
// engines give both ids from one pool.
func (c *compiler) takePipes(s *Ruleset, rules []*Rule) error {
	c.pipes = map[uint32]uint16{}
	for _, r := range rules {
		number := r.pipe()
		x := s.Pipes[uint16(number)]
		if number != 0 && s.ManyPass {
			return r.fail(errors.New("one_pass is disabled, so a packet would continue behind " +
				"the pipe, which Weir does not have: enable one_pass, and write what follows the " +
				"pipe in front of it"))
		}
		if _, have := c.pipes[number]; number == 0 || have || x == nil {
			continue
		}
		if x.Bandwidth == 0 {
			c.pipes[number] = 0
			continue
		}
		c.Pipes = append(c.Pipes, x.compiled(uint16(number)))
		c.pipes[number] = uint16(len(c.Pipes))
	}
	if n := len(rules) + len(c.Pipes); n > program.MaxRules {
		return fmt.Errorf("%d rules and pipes: a program holds at most %d", n-1, program.MaxRules-1)
	}
	return nil
}

// missing reports whether a rule names a pipe that has no configuration.
func (c *compiler) missing(r *Rule) bool {
	_, have := c.pipes[r.pipe()]
	return !have
}

// pipe returns the number of the pipe that the rule is, 0 if it is none.
func (r *Rule) pipe() uint32 {
	if r.Action.Op != op.ActionPipe {
		return 0
	}
	return r.Action.Arg
}

// fail names the rule in an error.
func (r *Rule) fail(err error) error {
	if r.Pos.File != "" {
		return fmt.Errorf("%s:%d: rule %d: %w", r.Pos.File, r.Pos.Line, r.Number, err)
	}
	return fmt.Errorf("rule %d: %w", r.Number, err)
}

// rule makes the Code of a rule and its conditions.
func (c *compiler) rule(slot int, p *part) error {
	code := &c.Rules[slot]
	r, text := p.rule, p.text
	*code = program.Rule{
		Key: c.key(slot, p.hash), Number: r.Number, Set: r.Set, Action: r.Action.Op, Tag: r.Tag,
		Prob:  threshold(r.Prob),
		State: r.State.Op, Defer: r.Defer, Mask: r.State.Mask, Limit: r.State.Limit, Log: r.Log,
		LogMax: r.LogMax, Liberal: r.Liberal, Every: r.Rate.Every(), Burst: r.Rate.Burst,
		RateMask: r.Rate.Mask, RateNext: r.Rate.Next, Pipe: c.pipes[r.pipe()],
	}
	if c.Texts[slot] = text; r.Comment != "" {
		c.Texts[slot] = text + " // " + r.Comment
	}
	switch r.Action.Op {
	case op.ActionUnreach, op.ActionUnreach6:
		code.Arg = r.Action.Arg
	case op.ActionSkipTo: // never backwards: the rules after those of this number at the earliest
		code.Arg = c.target(max(r.Action.Arg, uint32(r.Number)+1))
	case op.ActionCall:
		code.Arg = c.target(r.Action.Arg)
	case op.ActionNAT:
		if err := c.natRule(code, r, c.manyPass); err != nil {
			return err
		}
	case op.ActionFwd:
		code.Arg = c.hop(r.Action.NextHop)
	case op.ActionPipe: // without a pipe ipfw drops what it would carry
		if code.Action = op.ActionAllow; c.missing(r) {
			code.Action = op.ActionDeny
		}
	}
	if code.State.LooksUp() {
		c.First = min(c.First, slot)
	}
	if err := c.flow(code, r); err != nil {
		return err
	}
	code.Cond = uint32(len(c.Conds))
	if err := c.clauses(slot, p); err != nil {
		return err
	}
	code.CondEnd = uint32(len(c.Conds))
	c.Features |= c.Needs(slot)
	return nil
}

func (c *compiler) flow(code *program.Rule, r *Rule) error {
	if r.State.Op == op.StateCheck && r.State.Flow == "any" {
		code.Flow = program.AnyFlow
		return nil
	}
	name := r.State.Flow
	if code.Action == op.ActionNAT && code.State != op.StateNone {
		name = program.NATFlow
	}
	id, err := intern(c.flows, &c.Flows, name, program.MaxFlows+1, "flow names")
	code.Flow = uint8(id)
	return err
}

// target returns the first slot with a number at or above number; the default rule is the last.
func (c *compiler) target(number uint32) uint32 {
	slot, _ := slices.BinarySearchFunc(c.numbers[:len(c.numbers)-1], number,
		func(have uint16, want uint32) int {
			return int(have) - int(want)
		})
	return uint32(slot)
}

// threshold turns a probability into the bound below which Mix passes; 0 for none.
func threshold(p float64) uint32 {
	bound := math.Ceil(p * (1 << 32))
	if bound >= 1<<32 {
		return 0
	}
	return uint32(bound)
}

// key gives a rule its identity, which is the same for the same number and text in every Program.
// It is different for each of several equal rules, which follow each other under one number.
func (c *compiler) key(slot int, h uint64) uint64 {
	n := 1
	switch first := slot == 0 || c.numbers[slot-1] != c.numbers[slot]; {
	case first && (slot+1 == len(c.numbers) || c.numbers[slot+1] != c.numbers[slot]): // alone
	case first:
		clear(c.seen)
		c.seen[h] = 1
	default:
		c.seen[h]++
		n = c.seen[h]
	}
	return max(fnv1a(h, string([]byte{0, byte(n), byte(n >> 8)})), 1)
}

const fnvBasis = 14695981039346656037

// fnv1a continues the hash of FNV-1a: hash/fnv takes only bytes.
func fnv1a(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// intern gives a name its id, a new one at the end of list if it has none.
func intern(ids map[string]int, list *[]string, name string, most int, what string) (int, error) {
	if id, ok := ids[name]; ok {
		return id, nil
	}
	if len(*list) == most {
		return 0, fmt.Errorf("%q is one of more than %d different %s", name, most, what)
	}
	id := len(*list)
	ids[name] = id
	*list = append(*list, name)
	return id, nil
}

// clauses adds what the dimensions decide of a rule, and appends the rest to Conds.
func (c *compiler) clauses(slot int, p *part) error {
	c.Rules[slot].Frag = p.frag
	for _, clause := range p.rest {
		if err := c.residual(clause); err != nil {
			return err
		}
	}
	for _, b := range p.baked {
		w := &c.work[b.dim]
		w.limits = append(w.limits, limited{slot, b.spans})
	}
	for dim := range c.named6 {
		c.named6[dim] = append(c.named6[dim], p.named6[dim]...)
	}
	return nil
}

// always reports whether the clause is true for every packet.
func (c Clause) always() bool {
	return slices.ContainsFunc(c, func(t Test) bool { return t.Op == op.CondTrue && !t.Not })
}
