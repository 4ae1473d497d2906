package rule

import (
	"strings"

	"github.com/weirnet/weir/internal/program"
)

// commands are the verbs of a line.
var commands = map[string]bool{
	"add": true, "delete": true, "flush": true, "set": true, "table": true, "zero": true,
	"resetlog": true,
}

// command reads a whole line: [ipfw] [-qf] VERB ...; a rule may stand without "add".
func (p *parser) command() (c *Command, err error) {
	c = &Command{Pos: Pos{File: p.file, Line: p.number, Col: 1, End: len(p.text) + 1}}
	if err := p.prefixWords(); err != nil {
		return nil, err
	}
	if p.done() {
		if p.comment != nil || len(p.words) == 0 {
			return c, nil
		}
		return nil, p.fail(p.peek(), "add, delete, flush, set or table", "the command is missing")
	}
	switch t := p.peek(); {
	case p.accept("delete"):
		err = p.delete(c)
	case p.accept("flush"):
		c.Verb = VerbFlush
		err = p.end("flush")
	case p.accept("table"):
		err = p.tableCommand(c)
	case t.text == "set" && !p.isRule():
		p.next()
		err = p.set(c)
	case p.accept("zero"):
		c.Verb = VerbZero
		c.Numbers, err = p.ruleNumbers()
	case p.accept("resetlog"):
		_, err = p.ruleNumbers()
	case p.accept("add"), p.isRule():
		c.Verb = VerbAdd
		c.Rule, err = p.rule()
	case refusedVerbs[t.text] != "":
		err = p.fail(t, refusedVerbs[t.text], "%s is not a command of a rule file", quote(t.text))
	default:
		err = p.fail(t, suggest(t.text, append(keys(commands), keys(actions)...)...),
			"unknown command %s", quote(t.text))
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ruleNumbers reads the rest of the line.
func (p *parser) ruleNumbers() (all []Range, err error) {
	for !p.done() {
		n, err := p.needNum("rule number", 1, program.DefaultNumber)
		if err != nil {
			return nil, err
		}
		all = append(all, Range{n, n})
	}
	return all, nil
}

// prefixWords skips what a shell script has in front: ipfw -q add ...
func (p *parser) prefixWords() error {
	if w := p.peek().text; w == "ipfw" || strings.HasSuffix(w, "/ipfw") {
		p.next()
	} else if strings.HasPrefix(w, "$") {
		return p.fail(p.peek(), "write ipfw, or leave it out",
			"shell variables are not known in a rule file")
	}
	for strings.HasPrefix(p.peek().text, "-") {
		if t := p.next(); strings.Trim(t.text[1:], "qf") != "" || t.text == "-" {
			return p.fail(t, "-q and -f are accepted and ignored", "unknown flag %s", quote(t.text))
		}
	}
	return nil
}

// isRule reports whether a rule without "add" comes next: a number, or set N or prob P or an
// action.
func (p *parser) isRule() bool {
	t := p.peek().text
	if _, isAction := actions[t]; isAction || t == "prob" {
		return true
	}
	if _, isNumber := decimal(t); isNumber {
		return true
	}
	if t == "set" {
		_, isNumber := decimal(p.ahead(1).text)
		return isNumber
	}
	return refusedActions[t] != "" && refusedVerbs[t] == ""
}

// delete reads numbers and ranges of rules, or set N...
func (p *parser) delete(c *Command) error {
	c.Verb = VerbDelete
	if p.done() {
		return p.fail(p.peek(), "delete NUMBER...", "the number of the rule is missing")
	}
	if p.accept("set") {
		return p.sets(&c.Sets, Reserved)
	}
	for !p.done() {
		r, err := p.numRange(p.next(), "rule number", 1, program.DefaultNumber-1)
		if err != nil {
			return err
		}
		c.Numbers = append(c.Numbers, r)
	}
	return nil
}

// sets reads one or more set numbers up to the next word.
func (p *parser) sets(into *uint32, most uint32) error {
	for first := true; first || !p.done() && p.peek().text[0] <= '9'; first = false {
		t, err := p.need("set number", "")
		if err != nil {
			return err
		}
		n, err := p.num(t, "set number", 0, most)
		if err != nil {
			return err
		}
		*into |= 1 << n
	}
	return nil
}

// set reads disable N... enable N..., move [rule] A to B, swap A B.
func (p *parser) set(c *Command) error {
	c.Verb = VerbSets
	if p.done() {
		return p.fail(p.peek(), "set disable N, set enable N, set move A to B, set swap A B",
			"what to do with a set is missing")
	}
	switch {
	case p.accept("move"):
		return p.move(c)
	case p.accept("swap"):
		c.Verb = VerbSwap
		from, err := p.needNum("set number", 0, Reserved-1)
		if err != nil {
			return err
		}
		to, err := p.needNum("set number", 0, Reserved-1)
		c.From, c.To = uint8(from), uint8(to)
		if err != nil {
			return err
		}
		return p.end("set swap")
	}
	for !p.done() {
		var err error
		switch t := p.next(); t.text {
		case "disable":
			err = p.sets(&c.Sets, Reserved-1)
		case "enable":
			err = p.sets(&c.Enable, Reserved-1)
		case "show":
			err = p.fail(t, refusedVerbs["show"], "%q is not a command of a rule file", "set show")
		default:
			err = p.fail(t, "set disable N, set enable N, set move A to B, set swap A B",
				"unknown word %s after set", quote(t.text))
		}
		if err != nil {
			return err
		}
	}
	if both := c.Sets & c.Enable; both != 0 {
		return p.fail(p.words[0], "", "a set is both disabled and enabled")
	}
	return nil
}

func (p *parser) move(c *Command) error {
	c.Verb = VerbMove
	what, most := "set number", uint32(Reserved)
	isRule := p.accept("rule")
	if isRule {
		what, most = "rule number", program.DefaultNumber-1
	}
	from, err := p.needNum(what, 0, most)
	if err != nil {
		return err
	}
	if t := p.peek(); !p.accept("to") {
		return p.fail(t, "set move [rule] A to B", "expected \"to\", found %s", p.found(t))
	}
	to, err := p.needNum("set number", 0, Reserved)
	if err != nil {
		return err
	}
	if c.To = uint8(to); isRule {
		c.Number = uint16(from)
	} else {
		c.From = uint8(from)
	}
	return p.end("set move")
}

const tableHint = "table NAME create, add PREFIX [VALUE], delete PREFIX, flush or destroy"

// tableCommand reads NAME and what to do with it. ipfw's old order, table N add, is the same.
func (p *parser) tableCommand(c *Command) error {
	t, err := p.need("name of the table", tableHint)
	if err != nil {
		return err
	}
	if err := p.tableName(t); err != nil {
		return err
	}
	if strings.Contains(t.text, "=") {
		return p.fail(t,
			"its members are the pods that have the label: weir pod attach --label; choose "+
				"another name for a table",
			"%s is the table of a label: no command changes it", quote(t.text))
	}
	c.Table = t.text
	p.accept("atomic") // every line is
	verb, err := p.need("what to do with the table", tableHint)
	if err != nil {
		return err
	}
	switch verb.text {
	case "create":
		c.Verb = VerbTableCreate
		return p.createOptions(c)
	case "add":
		c.Verb = VerbTableAdd
		return p.entries(c, true)
	case "delete":
		c.Verb = VerbTableDelete
		return p.entries(c, false)
	case "flush", "destroy":
		c.Verb = VerbTableFlush
		if verb.text == "destroy" {
			c.Verb = VerbTableDrop
		}
		if c.Table == "all" {
			c.Table = ""
		}
		return p.end(verb.text)
	case "list", "info", "detail", "lookup":
		return p.fail(verb, refusedVerbs["show"], "%q is not a command of a rule file", "table "+
			verb.text)
	case "swap", "lock", "unlock", "modify":
		return p.fail(verb, "load the file again: it replaces everything at once",
			"%s of tables is a part of ipfw that Weir does not have", quote(verb.text))
	}
	return p.fail(verb, tableHint, "unknown word %s after table", quote(verb.text))
}

// createOptions reads ipfw's. What concerns only ipfw's data structures is accepted and has no
// effect.
func (p *parser) createOptions(c *Command) error {
	for !p.done() {
		t := p.next()
		var err error
		switch t.text {
		case "missing":
			c.IfNew = true
		case "or-flush":
			c.Empty = true
		case "locked":
			err = p.fail(t, "", "locked tables are a part of ipfw that Weir does not have")
		case "type":
			v := p.next()
			if v.text != "addr" {
				err = p.fail(v, "ports and interfaces are matched by their own options",
					"tables hold addresses: type addr, not %s", p.found(v))
			}
		case "valtype", "algo", "limit":
			_, err = p.need("argument of "+t.text, "")
		default:
			err = p.fail(t, "type addr, missing, or-flush", "unknown table option %s",
				quote(t.text))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entries reads PREFIX [VALUE] PREFIX [VALUE]...
func (p *parser) entries(c *Command, values bool) error {
	if p.done() {
		return p.fail(p.peek(), tableHint, "the prefix is missing")
	}
	for !p.done() {
		prefix, err := p.prefix(p.next())
		if err != nil {
			return err
		}
		e := TableEntry{Prefix: prefix}
		// not the next prefix
		if v := p.peek(); values && !p.done() && !strings.ContainsAny(v.text, ".:/") {
			p.next()
			if e.Value, err = p.num(v, "table value", 0, 1<<32-1); err != nil {
				return err
			}
		}
		c.Entries = append(c.Entries, e)
	}
	return nil
}
