package netfilter

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// Options are what the sources do not say.
type Options struct {
	// Networks are the networks of the host, with its addresses. Their broadcast addresses are
	// members of the table Broadcast, their subnet-router anycast addresses of the table Anycast.
	Networks []netip.Prefix
	// Local is what the local routes of the host lead to. What is not one of its addresses is a
	// member of the table Local.
	Local []netip.Prefix
}

// Import reads the sources, which together are one rule set, and writes it as rules of Weir. It
// finds out by itself which form each has. An error names the place.
func Import(sources []Source, o Options) (*Result, error) {
	set, err := read(sources, o)
	if err != nil {
		return nil, err
	}
	if len(set.chains) == 0 {
		return nil, errors.New("no chain of a filter was found")
	}
	set.check()
	if err := set.loops(); err != nil {
		return nil, err
	}
	set.broadcast(o)
	w := set.write()
	if err := w.number(); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(keys(set.unknown)) {
		set.unfilled(set.unknown[name], "table %s is empty: the members of the set were not part "+
			"of what was read; give the output of `ipset save` too", name)
	}
	set.families()
	result := &Result{Form: set.form, IPv4: set.seen&ipv4 != 0, IPv6: set.seen&ipv6 != 0}
	if err := result.readBack(w); err != nil {
		return nil, err
	}
	if !set.loop(result.Rules.Rules, w.checksAt()) {
		return result, nil
	}
	if err := result.readBack(w); err != nil {
		return nil, err
	}
	return result, nil
}

// loop notes that the rules may let a packet jump more often than engines do, and reports whether
// it has noted something.
func (s *ruleset) loop(rules []*rule.Rule, checks uint32) bool {
	n, calls := jumps(rules, checks), mostChecks(rules, checks)
	switch {
	case n > program.MaxJumps:
		s.note(Place{}, "a packet for which more than %d of the jumps below are true is "+
			"dropped, with the reason loop; up to %d stand on one way: let fewer chains be "+
			"asked about each packet", program.MaxJumps, n)
	case n+2*calls > program.MaxJumps: // each call has a return
		s.note(Place{}, "a packet that neither belongs to a flow nor begins one is dropped, with "+
			"the reason loop, if more than %d of the rules below that let packets of known flows "+
			"pass are about it; %d may be: accept established,related in one rule in front of "+
			"them", (program.MaxJumps-n)/2, calls)
	default:
		return false
	}
	return true
}

// readBack sets the text of the rules, and what it says.
func (r *Result) readBack(w *writer) (err error) {
	r.Remarks = w.set.remarks
	r.Text = w.text(r.Remarks)
	if r.Rules, err = rule.ParseFile("imported", r.Text, nil); err != nil {
		return fmt.Errorf("the imported rules cannot be read back; this is a mistake of "+
			"weir import: %w", err)
	}
	if _, err := rule.Compile(r.Rules, rule.CompileOptions{}); err != nil {
		return fmt.Errorf("the imported rules cannot be loaded: %w", err)
	}
	return nil
}

// check finds the rules that cannot be written, whatever stands around them.
func (s *ruleset) check() {
	known := map[*chain]bool{}
	var decides func(c *chain) bool // a rule that c leads to does
	decides = func(c *chain) bool {
		if _, asked := known[c]; !asked {
			known[c] = false // also for a chain that jumps to itself, which loops refuses
			known[c] = slices.ContainsFunc(c.rules, func(e *entry) bool {
				to := s.byKey[e.target]
				return e.problem == "" && (e.final() || to != nil && decides(to))
			})
		}
		return known[c]
	}
	for _, c := range s.chains {
		for _, e := range c.rules {
			to := s.byKey[e.target]
			jumps := e.verdict == jump || e.verdict == goTo
			decides := e.verdict != proceed && (e.verdict != jump || to == nil || decides(to))
			if !decides {
				e.rate = nil
			}
			switch err := e.writable(); {
			case e.problem != "":
				e.quiet = e.quiet || e.verdict == jump && !decides
			case jumps && to == nil:
				e.problem = "there is no chain " + e.target
			case e.rate != nil && !e.fits():
				e.problem = e.rate.problem()
			case err != nil:
				e.problem = err.Error()
			}
		}
	}
}

// writable returns why the rule language has no words for the conditions.
func (e *entry) writable() error {
	if is := only(e.clauses); is != 0 && !slices.Contains(havePorts, is) &&
		slices.ContainsFunc(e.clauses, asksPort) {
		return errors.New("rules know the ports of TCP, UDP, UDP-Lite and SCTP alone")
	}
	r := rule.Rule{Action: rule.Action{Op: op.ActionCount}}
	for _, c := range e.clauses {
		put(&r, c)
	}
	_, err := rule.ParseRule(r.String(), nil)
	if e := (*rule.Error)(nil); errors.As(err, &e) {
		return errors.New(e.Msg)
	}
	return err
}

// havePorts are the protocols whose ports rules know.
var havePorts = []packet.Proto{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoUDPLite,
	packet.ProtoSCTP}

func asksPort(c rule.Clause) bool {
	return slices.ContainsFunc(c, func(t rule.Test) bool {
		return t.Op == op.CondSrcPort || t.Op == op.CondDstPort
	})
}

// portsOfOthers reports whether the entry asks for ports of protocols whose ports rules do not
// know, among others.
func (e *entry) portsOfOthers() bool {
	within := func(c rule.Clause) bool {
		return len(c) > 0 && !slices.ContainsFunc(c, func(t rule.Test) bool {
			return t.Not || t.Op != op.CondProto ||
				!slices.Contains(havePorts, packet.Proto(t.A))
		})
	}
	return slices.ContainsFunc(e.clauses, asksPort) && !slices.ContainsFunc(e.clauses, within)
}

// keys is maps.Keys for the map of unknown sets.
func keys(m map[string]Place) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// read reads each source by its form.
func read(sources []Source, o Options) (*ruleset, error) {
	set := newRuleset("")
	set.localRoutes(o)
	set.anycast(o)
	ufw := &ufwFiles{}
	tables := &iptablesReader{set: set}
	for _, src := range sources {
		form := recognise(src)
		var err error
		switch form {
		case "nft":
			err = readNft(set, src)
			set.seen = bothFamilies
		case "ufw":
			ufw.add(src)
		case "iptables-save":
			err = tables.read(src)
		case "nft text":
			err = fmt.Errorf("%s: the text of nft is not read, its JSON is: nft -j list ruleset",
				src.Name)
		default:
			err = errForm{src.Name}
		}
		if err != nil {
			return nil, err
		}
		if !strings.Contains(set.form, form) {
			set.form = strings.TrimPrefix(set.form+", "+form, ", ")
		}
	}
	if err := ufw.read(tables); err != nil {
		return nil, err
	}
	for _, c := range set.chains {
		slices.Reverse(c.inserted)
		c.rules = append(c.inserted, c.rules...)
	}
	if set.seen&ipv6 == 0 {
		delete(set.tables, Anycast)
	}
	return set, nil
}

// recognise returns the form of a source, "" if it has none.
func recognise(src Source) string {
	text := strings.TrimSpace(src.Text)
	if strings.HasPrefix(text, "{") {
		return "nft"
	}
	if ufwName(src.Name) != "" {
		return "ufw"
	}
	ufw := false
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		switch {
		case strings.HasPrefix(l, "### tuple ###"), strings.HasPrefix(l, ":ufw-user-"),
			strings.HasPrefix(l, ":ufw6-user-"), strings.HasPrefix(l, ":ufw-before-input - [0:0]"),
			strings.HasPrefix(l, "DEFAULT_INPUT_POLICY="):
			ufw = true
		case strings.HasPrefix(l, ":INPUT "), strings.HasPrefix(l, ":PREROUTING "),
			strings.HasPrefix(l, ":FORWARD "):
			return "iptables-save"
		case strings.HasPrefix(l, "table ") && strings.HasSuffix(l, "{"):
			return "nft text"
		}
	}
	switch {
	case ufw:
		return "ufw"
	case strings.Contains(text, "*filter"), strings.HasPrefix(text, "create "),
		strings.HasPrefix(text, "-A "), strings.Contains(text, "\nCOMMIT"):
		return "iptables-save"
	}
	return ""
}

// loops refuses chains that jump in a circle, as the kernel does.
func (s *ruleset) loops() error {
	const inside, done = 1, 2
	state, depth := map[string]int{}, map[string]int{}
	var visit func(c *chain) error
	visit = func(c *chain) error {
		if state[c.key] == inside {
			return fmt.Errorf("the chain %s jumps to itself by way of others", c.name)
		}
		if state[c.key] == done {
			return nil
		}
		state[c.key] = inside
		for _, e := range c.rules {
			if to := s.byKey[e.target]; to != nil && (e.verdict == jump || e.verdict == goTo) {
				if err := visit(to); err != nil {
					return err
				}
				depth[c.key] = max(depth[c.key], depth[to.key]+1)
			}
		}
		if depth[c.key] > program.MaxCalls {
			return fmt.Errorf("from the chain %s chains jump to others %d times deep; rules can "+
				"call %d times deep", c.name, depth[c.key], program.MaxCalls)
		}
		s.depth = max(s.depth, depth[c.key])
		state[c.key] = done
		return nil
	}
	for _, c := range s.chains {
		if err := visit(c); err != nil {
			return err
		}
	}
	return nil
}

// families says what happens to a family without rules.
func (s *ruleset) families() {
	switch s.seen {
	case ipv4:
		s.note(Place{}, "no rules for IPv6 were read: it is refused; give the output of "+
			"ip6tables-save too")
	case ipv6:
		s.note(Place{}, "no rules for IPv4 were read: it is refused; give the output of "+
			"iptables-save too")
	}
}

// errForm refuses a file of a form that is not known.
type errForm struct{ name string }

func (e errForm) Error() string {
	return e.name + ": not the output of iptables-save, ip6tables-save or `nft -j list ruleset`, " +
		"and not a file of ufw"
}

// Hint returns how to write such a file.
func (errForm) Hint() string {
	return "iptables-save > FILE or nft -j list ruleset > FILE writes one"
}
