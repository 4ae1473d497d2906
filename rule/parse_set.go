package rule

import "github.com/weirnet/weir/internal/program"

// sets reads one or more set numbers up to the next word.
func (p *parser) sets(into *uint32, most uint32) error {
	for first := true; first || !p.done() && p.peek().text[0] <= '9'; first = false {
		t, err := p.need("set number", "")
		if err != nil {
			return err
		}
		n, err := p.decNum(t, "set number", 0, most)
		if err != nil {
			return err
		}
		*into |= 1 << n
	}
	return nil
}

// set reads disable N... enable N..., move [rule] A to B, swap A B.
func (p *parser) set(c *Command) error {
	c.Kind = CommandSets
	if p.done() {
		return p.fail(p.peek(), "set disable N, set enable N, set move A to B, set swap A B",
			"the command is missing after set")
	}
	if _, isNumber := decimal(p.peek().text); isNumber {
		return p.ofSet(c)
	}
	switch {
	case p.accept("show"):
		c.Kind = CommandNone
		return p.end("set show")
	case p.accept("move"):
		return p.move(c)
	case p.accept("swap"):
		c.Kind = CommandSwap
		from, err := p.needDec("set number", 0, ReservedSet-1)
		if err != nil {
			return err
		}
		to, err := p.needDec("set number", 0, ReservedSet-1)
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
			err = p.sets(&c.Sets, ReservedSet-1)
		case "enable":
			err = p.sets(&c.Enable, ReservedSet-1)
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

// ofSet reads N and a command for the rules of set N: delete NUMBER..., flush, list and show.
func (p *parser) ofSet(c *Command) error {
	set, err := p.needDec("set number", 0, ReservedSet)
	if err != nil {
		return err
	}
	c.Kind, c.Sets = CommandNone, 1<<set
	switch command := p.next(); command.text {
	case "flush":
		c.Kind = CommandDelete
		return p.end("flush")
	case "delete":
		c.Kind = CommandDelete
		if p.done() {
			return p.fail(p.peek(), "set N delete NUMBER..., or set N flush",
				"the number of the rule is missing")
		}
		c.Numbers, err = p.ruleRanges(program.DefaultNumber - 1)
		return err
	case "list", "show", "print":
		return p.shown()
	default:
		return p.fail(command, "set N delete NUMBER..., set N flush, set N show",
			"%s is not a command for the rules of a set", quote(command.text))
	}
}

func (p *parser) move(c *Command) error {
	c.Kind = CommandMove
	what, least, most := "set number", uint32(0), uint32(ReservedSet)
	isRule := p.accept("rule")
	if isRule {
		what, least, most = "rule number", 1, program.DefaultNumber-1
	}
	from, err := p.needDec(what, least, most)
	if err != nil {
		return err
	}
	if t := p.peek(); !p.accept("to") {
		return p.fail(t, "set move [rule] A to B", "expected \"to\", found %s", p.found(t))
	}
	to, err := p.needDec("set number", 0, ReservedSet)
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
