package rule

import (
	"math"
	"net/netip"
	"strings"

	"github.com/weirnet/weir/rule/op"
)

// options reads the options up to the end of the rule.
func (p *parser) options(r *Rule) error {
	var mark token // the last of defer-action and liberal
	for !p.done() {
		t := p.peek()
		var err error
		switch options[t.text].form {
		case formState:
			err = p.state(r)
		case formRate:
			err = p.rate(r)
		case formMark:
			if t.text == "tag" {
				err = p.tag(r)
				break
			}
			mark = p.next()
			if t.text == "liberal" {
				r.Liberal = true
			} else {
				r.Defer = true
			}
		default:
			var c Clause
			if c, err = p.clause(p.option); c != nil {
				r.Options = append(r.Options, c)
			}
		}
		if err != nil {
			return err
		}
	}
	if (r.Defer || r.Liberal) && r.State.Op == op.StateNone {
		return p.fail(mark, "add keep-state, limit, record-state or set-limit",
			"%q is about states, but the rule makes none", mark.text)
	}
	return nil
}

// option reads one option that tests something.
func (p *parser) option() (Test, error) {
	t, err := p.need("option", "")
	if err != nil {
		return Test{}, err
	}
	o, ok := options[t.text]
	if !ok {
		return Test{}, p.unknownOption(t)
	}
	switch o.form {
	case formAddress:
		return p.address(o.op)
	case formPorts:
		return p.ports(o.op)
	case formProtocol:
		return p.protocolOption()
	case formInterface:
		return p.iface(t.text, o.op)
	case formFlags:
		return p.flags(t.text, o)
	case formFrag:
		if f := p.peek().text; !listsFlags(f, o.flags) {
			return Test{Op: op.CondFrag, A: op.FragOffset, B: op.FragOffset}, nil
		}
		return p.flags(t.text, o)
	case formNumber:
		n, err := p.needNum(t.text, 0, o.hi)
		return Test{Op: o.op, A: n}, err
	case formNumbers:
		lo := uint32(0)
		if o.op == op.CondTagged {
			lo = 1
		}
		return p.numbers(o.op, t.text, lo, o.hi)
	case formDSCP:
		return p.dscp()
	case formVersion:
		v, err := p.need(t.text, "ipversion 4 or ipversion 6")
		if err == nil && v.text != "4" && v.text != "6" {
			err = p.fail(v, "ipversion 4 or ipversion 6", "there is no IP version %s",
				quote(v.text))
		}
		if err != nil {
			return Test{}, err
		}
		return Test{Op: op.CondVersion, A: uint32(v.text[0] - '0')}, nil
	case formState, formRate, formMark:
		return Test{}, p.fail(t, "write it on its own, outside of { }",
			"%q is not a condition: it cannot be negated or stand in an or-block", t.text)
	}
	return Test{Op: o.op, A: o.a, B: o.b}, nil
}

func (p *parser) unknownOption(t token) error {
	switch t.text {
	case "log", "prob", "set":
		return p.fail(t, "[number] [set N] [prob P] ACTION [log] PROTO from ...",
			"%q is in the wrong place", t.text)
	case "or":
		return p.fail(t, "{ A or B }", "\"or\" outside of an or-block")
	case "}", ")":
		return p.fail(t, "", "%q without an open or-block", t.text)
	case "port", "ports", "dport", "sport", "eq":
		return p.fail(t, "a port stands behind its address: from any to me 22",
			"unknown option %s", quote(t.text))
	}
	if why, known := refusedOptions[t.text]; known {
		return p.fail(t, why, "%s is a word of ipfw that Weir does not have", quote(t.text))
	}
	hint := suggest(t.text, keys(options)...)
	if hint == "" && p.isPortPlace(p.at-1) && isServiceName(t.text) {
		hint = noService
	}
	return p.fail(t, hint, "unknown option %s", quote(t.text))
}

// The four conditions of each interface word lie in blocks of three.
const (
	opGlob = op.CondRecvGlob - op.CondRecv
	opAny  = op.CondRecvAny - op.CondRecv
	opAddr = op.CondRecvAddr - op.CondRecv
)

// maxInterface is IFNAMSIZ without the NUL.
const maxInterface = 15

// iface reads an interface: any, an address, a name or a glob.
func (p *parser) iface(word string, what op.Cond) (Test, error) {
	t, err := p.need("interface", word+" eth0, "+word+" eth*, "+word+" pod:NAME, "+word+" any")
	if err != nil {
		return Test{}, err
	}
	if t.text == "any" {
		return Test{Op: what + opAny}, nil
	}
	if strings.HasPrefix(t.text, "table(") {
		return Test{}, p.fail(t, "tables hold addresses; use a glob or an or-block",
			"interface tables are a part of ipfw that Weir does not have")
	}
	if _, err := netip.ParseAddr(t.text); err == nil {
		addr, err := p.addr(t)
		if err != nil {
			return Test{}, err
		}
		return Test{Op: what + opAddr,
			Prefixes: []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen())}}, nil
	}
	if strings.Count(t.text, ".") == 3 && strings.Trim(t.text, "0123456789./") == "" {
		return Test{}, p.fail(t, "an address without a prefix length: 192.0.2.1",
			"%s is not an IPv4 address", quote(t.text))
	}
	glob := strings.ContainsAny(t.text, "*?[]")
	if glob {
		if err := p.glob(t); err != nil {
			return Test{}, err
		}
	} else if err := p.name(t, "interface name", ":/@+"); err != nil {
		return Test{}, err
	}
	pod, isPod := strings.CutPrefix(t.text, "pod:")
	if isPod && pod == "" {
		return Test{}, p.fail(t, "pod:NAME or pod:*", "the name of the pod is missing")
	}
	if !isPod && !strings.Contains(t.text, "[") && len(t.text) > maxInterface {
		return Test{}, p.fail(t, "", "interface name is longer than %d bytes", maxInterface)
	}
	if glob {
		what += opGlob
	}
	return Test{Op: what, Name: t.text}, nil
}

// glob checks a pattern of interface names: its characters, and that its classes are closed.
func (p *parser) glob(t token) error {
	if err := p.name(t, "interface name", ":/@+*?[]!^"); err != nil {
		return err
	}
	for i := 0; i < len(t.text); i++ {
		if strings.IndexByte("]!^", t.text[i]) >= 0 {
			return p.fail(t.sub(i, i+1), "em[0-9], em[!0], em[13]",
				"%s outside of a class of characters", quote(t.text[i:i+1]))
		}
		if t.text[i] != '[' {
			continue
		}
		width, _ := class(t.text[i:], 0)
		if width == 0 {
			return p.fail(t.sub(i, len(t.text)), "em[0-9], em[!0], em[13]",
				"the class of characters is empty, not closed or out of order")
		}
		i += width - 1
	}
	return nil
}

// flags reads a list like syn,!ack: these flags set, those not, the others ignored.
func (p *parser) flags(word string, o option) (Test, error) {
	var names []string
	for _, f := range o.flags {
		names = append(names, f.name)
	}
	hint := "a comma list of " + strings.Join(names, " ") + ", each with or without !"
	t, err := p.need("list of "+word, hint)
	if err != nil {
		return Test{}, err
	}
	var set, clear uint32
	for _, item := range t.split() {
		name, not := strings.CutPrefix(item.text, "!")
		bits, ok := findFlag(o.flags, name)
		if !ok {
			return Test{}, p.fail(item, hint, "%s is not one of %s", quote(item.text), word)
		}
		if not {
			clear |= bits
		} else {
			set |= bits
		}
		if set&clear != 0 {
			return Test{}, p.fail(item, "", "%s is wanted both set and not set", quote(name))
		}
	}
	return Test{Op: o.op, A: set, B: set | clear}, nil
}

func findFlag(flags []bitName, name string) (uint32, bool) {
	for _, f := range flags {
		if f.name == name {
			return f.bits, true
		}
	}
	return 0, false
}

// listsFlags reports whether a word begins with a flag of the list, or wants to.
func listsFlags(word string, flags []bitName) bool {
	first, _, list := strings.Cut(word, ",")
	first, not := strings.CutPrefix(first, "!")
	_, ok := findFlag(flags, first)
	return ok || list || not
}

func (p *parser) dscp() (Test, error) {
	t, err := p.need("dscp", "a name (ef, af11, cs1, ...), a number from 0 to 63 or a comma list")
	if err != nil {
		return Test{}, err
	}
	var mask uint64
	for _, item := range t.split() {
		n, err := p.dscpValue(item)
		if err != nil {
			return Test{}, err
		}
		mask |= 1 << n
	}
	return Test{Op: op.CondDSCP, A: uint32(mask), B: uint32(mask >> 32)}, nil
}

func (p *parser) dscpValue(t token) (uint32, error) {
	for n, name := range dscpNames {
		if name != "" && name == strings.ToLower(t.text) {
			return uint32(n), nil
		}
	}
	if strings.ToLower(t.text) == "cs0" {
		return 0, nil
	}
	if t.text == "" || t.text[0] < '0' || t.text[0] > '9' {
		return 0, p.fail(t, "be, cs1-cs7, af11-af43, va, ef or a number from 0 to 63",
			"unknown dscp %s", quote(t.text))
	}
	if _, ok := decimal(t.text); ok { // never octal, as in ipfw, which reads 0x2e as 0
		return p.decNum(t, "dscp", 0, 63)
	}
	return p.num(t, "dscp", 0, 63)
}

// state reads keep-state, limit, record-state or set-limit with their arguments.
func (p *parser) state(r *Rule) error {
	t := p.next()
	if r.State.Op != op.StateNone {
		return p.fail(t, "", "a rule has one of keep-state, limit, record-state and set-limit")
	}
	s := State{Op: stateWords[t.text]}
	if s.Op == op.StateLimit || s.Op == op.StateSetLimit {
		if s.Mask = p.parts(); s.Mask == 0 {
			return p.fail(p.peek(), t.text+" src-addr 10",
				"expected src-addr, src-port, dst-addr or dst-port, found %s", p.found(p.peek()))
		}
		n, err := p.needDec("number of states", 1, math.MaxInt32)
		if err != nil {
			return err
		}
		s.Limit = n
	}
	flow, err := p.flow(false)
	s.Flow = flow
	r.State = s
	return err
}

// flow reads [:NAME].
func (p *parser) flow(any bool) (string, error) {
	t := p.peek()
	if !strings.HasPrefix(t.text, ":") {
		return "", nil
	}
	p.next()
	name := t.sub(1, len(t.text))
	switch {
	case name.text == "":
		return "", p.fail(t, "keep-state :web", "the flow name is missing")
	case name.text == "default":
		return "", nil
	case name.text == "any" && !any:
		return "", p.fail(t, "only check-state looks for any flow", "\":any\" is not a flow name")
	}
	return name.text, p.name(name, "flow name", "")
}
