package rule

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
)

// maxComment is the longest comment of a rule, in bytes.
const maxComment = 255

// rule reads what follows "add": [number] [set N] [prob P] ACTION [log [logamount N]] [tag N] BODY
// [// comment].
func (p *parser) rule() (*Rule, error) {
	r := new(Rule)
	steps := [...]func(*Rule) error{p.head, p.action, p.marks, p.body, p.stateless, p.remark}
	for _, step := range steps {
		if err := step(r); err != nil {
			return nil, err
		}
	}
	r.Pos = Pos{File: p.file, Line: p.number, Col: 1, End: len(p.text) + 1}
	return r, nil
}

// head reads the number, the set and the probability.
func (p *parser) head(r *Rule) error {
	if t := p.peek(); t.text != "" && t.text[0] >= '0' && t.text[0] <= '9' {
		p.next()
		if n, _ := decimal(t.text); n == program.DefaultNumber {
			return p.fail(t, "the default rule is a setting; the highest number of a rule is 65534",
				"rule 65535 is the default rule")
		}
		n, err := p.decNum(t, "rule number", 0, program.DefaultNumber-1)
		if err != nil {
			return err
		}
		r.Number = uint16(n)
	}
	for {
		switch {
		case p.accept("set"):
			n, err := p.needDec("set number", 0, ReservedSet)
			if err != nil {
				return err
			}
			r.Set = uint8(n)
		case p.accept("prob"):
			t, err := p.need("probability", "a number above 0 and up to 1")
			if err != nil {
				return err
			}
			v, err := strconv.ParseFloat(t.text, 64)
			if err != nil || math.IsNaN(v) || v <= 0 || v > 1 ||
				strings.ContainsAny(t.text, "xX_") {
				return p.fail(t, "half of the packets: prob 0.5",
					"probability must be a number above 0 and up to 1, not %s", quote(t.text))
			}
			if r.Prob = v; v == 1 {
				r.Prob = 0
			}
		default:
			return nil
		}
	}
}

// action reads the action with its argument.
func (p *parser) action(r *Rule) error {
	if p.done() && p.comment != nil { // ipfw: a number and a comment alone count
		r.Action.Op = op.ActionCount
		return nil
	}
	t, err := p.need("action", "allow, deny, count, ...")
	if err != nil {
		return err
	}
	action, ok := actions[t.text]
	if !ok {
		if why, known := refusedActions[t.text]; known {
			return p.fail(t, why, "%s is a word of ipfw that Weir does not have", quote(t.text))
		}
		hint := cmp.Or(suggest(t.text, keys(actions)...),
			"a word such as allow, deny, reject, count or skipto")
		return p.fail(t, hint, "unknown action %s", quote(t.text))
	}
	r.Action.Op = action
	switch action {
	case op.ActionUnreach:
		if r.Action.Arg, err = p.code("unreach", codes4); err == nil {
			err = p.noMTU()
		}
	case op.ActionUnreach6:
		r.Action.Arg, err = p.code("unreach6", codes6)
	case op.ActionSkipTo, op.ActionCall, op.ActionPipe, op.ActionNAT:
		if t := p.peek(); t.text == "tablearg" ||
			action == op.ActionNAT && t.text == "global" {
			return p.fail(t, refusedNAT[t.text],
				"%q is a word of ipfw that Weir does not have", t.text)
		}
		what := "rule number"
		switch action {
		case op.ActionPipe:
			what = "pipe number"
		case op.ActionNAT:
			what = "nat number"
		}
		r.Action.Arg, err = p.needDec(what, 1, program.DefaultNumber)
	case op.ActionFwd:
		r.Action.NextHop, err = p.hop()
	case op.ActionCheckState:
		r.State.Op = op.StateCheck
		r.State.Flow, err = p.flow(true)
	}
	return err
}

// noMTU refuses the MTU that newer versions of ipfw take behind the code. A number there may also
// be a protocol.
func (p *parser) noMTU() error {
	_, isNumber := decimal(p.peek().text)
	if !isNumber || isAbbreviation(p.ahead(1).text, "from") {
		return nil
	}
	return p.fail(p.peek(), "leave the number out",
		"an MTU of its own for unreach is a part of ipfw that Weir does not have")
}

func (p *parser) code(word string, codes []code) (uint32, error) {
	t, err := p.need("code of "+word, word+" "+codes[1].name)
	if err != nil {
		return 0, err
	}
	var names []string
	for _, c := range codes {
		if c.name == t.text {
			return c.code, nil
		}
		names = append(names, c.name)
	}
	if t.text[0] >= '0' && t.text[0] <= '9' {
		return p.num(t, "code of "+word, 0, 255)
	}
	hint := suggest(t.text, names...)
	if hint == "" {
		hint = "a number or one of " + strings.Join(names, " ")
	}
	return 0, p.fail(t, hint, "unknown code %s of %s", quote(t.text), word)
}

// marks reads log and tag, in any order.
func (p *parser) marks(r *Rule) error {
	if r.Action.Op == op.ActionCheckState {
		return nil
	}
	for {
		t := p.peek()
		switch t.text {
		case "log":
			p.next()
			r.Log = true
			if p.accept("logamount") {
				n, err := p.needDec("logamount", 0, math.MaxUint32)
				if err != nil {
					return err
				}
				r.LogMax = n
			}
		case "tag":
			if err := p.tag(r); err != nil {
				return err
			}
		case "altq", "untag":
			return p.refuse(t)
		default:
			return nil
		}
	}
}

func (p *parser) tag(r *Rule) error {
	t := p.next()
	if r.Tag != 0 {
		return p.fail(t, "", "a rule sets one tag")
	}
	n, err := p.needDec("tag", 1, math.MaxUint16-1)
	r.Tag = uint16(n)
	return err
}

func (p *parser) refuse(t token) error {
	return p.fail(t, refusedOptions[t.text], "%s is a word of ipfw that Weir does not have",
		quote(t.text))
}

// body reads PROTO from SRC to DST and the options. Options alone are a body too.
func (p *parser) body(r *Rule) error {
	if r.Action.Op == op.ActionCheckState {
		if p.everyPacket() {
			return nil
		}
		if !p.done() {
			return p.fail(p.peek(),
				"a check-state rule looks up every packet; conditions belong to the rule with "+
					"keep-state", "check-state takes no conditions")
		}
		return nil
	}
	if p.done() {
		if p.comment != nil && r.Action.Op == op.ActionCount || r.Action.Op == op.ActionReturn {
			return nil
		}
		return p.fail(p.peek(), "every packet is \"ip from any to any\"",
			"protocol and addresses are missing")
	}
	if p.hasHeader() {
		if err := p.header(r); err != nil {
			return err
		}
	}
	return p.options(r)
}

// stateless refuses that a rule with nat makes states: its translation is the state of both sides,
// and one side alone would not follow a connection.
func (p *parser) stateless(r *Rule) error {
	if r.Action.Op != op.ActionNAT || r.State.Op == op.StateNone {
		return nil
	}
	at := p.words[p.at-1]
	for _, t := range p.words {
		if t.text == r.State.Op.Word() {
			at = t
		}
	}
	return p.fail(at, "leave it out: the answers to what nat has translated follow the translation",
		"a rule with nat makes no states")
}

// everyPacket takes "ip from any to any", which says nothing.
func (p *parser) everyPacket() bool {
	for i, word := range []string{"ip", "from", "any", "to", "any", ""} {
		if t := p.ahead(i).text; t != word && (i > 0 || t != "all") {
			return false
		}
	}
	p.at = len(p.words)
	return true
}

// hasHeader reports whether the body begins with PROTO from SRC to DST.
func (p *parser) hasHeader() bool {
	for _, t := range p.words[p.at:] {
		if t.text == "from" {
			return true
		}
	}
	first := p.skipNots()
	if _, option := options[first]; option {
		return false
	}
	if _, ok := decimal(first); ok || first == "ip" || first == "all" || first == "to" {
		return true
	}
	_, ok := p.names.protocol(first)
	return ok
}

func (p *parser) header(r *Rule) (err error) {
	if r.Proto, err = p.clause(p.protocol); err != nil {
		return err
	}
	if r.Src, r.SrcPort, err = p.side("from", op.CondSrcIn, op.CondSrcPort); err != nil {
		return err
	}
	r.Dst, r.DstPort, err = p.side("to", op.CondDstIn, op.CondDstPort)
	return err
}

// side reads one end of the packet: word ADDRESS [PORTS].
func (p *parser) side(word string, addr, port op.Cond) (where, ports Clause, err error) {
	if t := p.peek(); isAbbreviation(t.text, word) {
		p.next()
	} else {
		hint := "PROTO from ADDRESS [PORT] to ADDRESS [PORT]"
		if t.text == "or" {
			hint = "{ A or B }"
		} else if p.isPortPlace(p.at) && isServiceName(t.text) {
			hint = noService
		}
		return nil, nil, p.fail(t, hint,
			"expected %q, found %s", word, p.found(t))
	}
	where, err = p.clause(func() (Test, error) { return p.address(addr) })
	if err != nil {
		return nil, nil, err
	}
	p.portPlace = p.at
	if p.startsPorts() {
		p.portPlace = 0
		ports, err = p.clause(func() (Test, error) { return p.ports(port) })
	}
	return where, ports, err
}

func (p *parser) found(t token) string {
	if t.text == "" {
		return "the end of the rule"
	}
	return quote(t.text)
}

// noService is the hint for an unknown word where ports stand.
const noService = "no service has this name in /etc/services; write the number of the port"

// isPortPlace reports whether a word stands directly behind an address without ports.
func (p *parser) isPortPlace(at int) bool { return p.portPlace > 0 && at == p.portPlace }

// isServiceName reports whether a word could be the name of a service.
func isServiceName(t string) bool {
	return t != "" && (t[0]|0x20) >= 'a' && (t[0]|0x20) <= 'z' && !strings.ContainsAny(t, "({.:/")
}

// startsPorts reports whether ports come next: a number, or the name of a service that is not an
// option too.
func (p *parser) startsPorts() bool {
	t := p.skipNots()
	if t == "" {
		return false
	}
	if t == "any" || t[0] >= '0' && t[0] <= '9' {
		return true
	}
	if _, option := options[t]; option || refusedOptions[t] != "" || t == "to" {
		return false
	}
	first, _, _ := strings.Cut(t, ",")
	_, ok := p.names.service(unescape(first))
	if !ok {
		low, _, ranged := strings.Cut(first, "-")
		_, ok = p.names.service(unescape(low))
		ok = ok && ranged
	}
	return ok
}

// remark takes the comment.
func (p *parser) remark(r *Rule) error {
	if p.comment == nil {
		return nil
	}
	t := *p.comment
	if len(t.text) > maxComment {
		return p.fail(t.sub(maxComment, len(t.text)), "", "the comment is longer than %d bytes",
			maxComment)
	}
	if !utf8.ValidString(t.text) || strings.ContainsFunc(t.text, func(c rune) bool {
		return !unicode.IsPrint(c) && c != '\t'
	}) {
		return p.fail(t, "", "the comment holds characters that cannot be shown")
	}
	r.Comment = strings.Join(strings.Fields(t.text), " ")
	return nil
}
