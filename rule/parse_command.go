package rule

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weirnet/weir/internal/program"
)

// commands are the words that a line can begin with.
var commands = map[string]bool{
	"add": true, "delete": true, "flush": true, "set": true, "table": true, "zero": true,
	"resetlog": true, "list": true, "show": true, "print": true, "enable": true, "disable": true,
}

// isAbbreviation reports whether a text is the beginning of a word, as ipfw takes it for the word.
func isAbbreviation(text, word string) bool { return text != "" && strings.HasPrefix(word, text) }

// expand makes the next word the only command of ipfw that begins with it.
func (p *parser) expand() {
	t, found := p.peek(), ""
	for command := range maps.Keys(commands) {
		if isAbbreviation(t.text, command) {
			if found != "" {
				return
			}
			found = command
		}
	}
	for command := range refusedCommands {
		if isAbbreviation(t.text, command) {
			return
		}
	}
	if found != "" {
		p.words[p.at].text = found
	}
}

// command reads a whole line: [ipfw] [-qf] COMMAND ...; a rule may stand without "add".
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
	if t := p.peek().text; !commands[t] && !p.isRule() {
		p.expand()
	}
	switch t := p.peek(); {
	case p.accept("delete"):
		err = p.delete(c)
	case p.accept("flush"):
		c.Kind = CommandFlush
		err = p.end("flush")
	case p.isNumbered("pipe", pipeCommands):
		err = p.pipe(c)
	case p.isNumbered("nat", natCommands):
		err = p.nat(c)
	case p.accept("table"):
		err = p.tableCommand(c)
	case t.text == "set" && !p.isRule():
		p.next()
		err = p.set(c)
	case p.accept("zero"):
		c.Kind = CommandZero
		c.Numbers, err = p.ruleNumbers()
	case p.accept("resetlog"):
		_, err = p.ruleNumbers()
	case p.accept("list"), p.accept("show"), p.accept("print"):
		err = p.shown()
	case p.accept("enable"), p.accept("disable"):
		err = p.turn(t, c)
	case p.accept("add"), p.isRule():
		c.Kind = CommandAdd
		c.Rule, err = p.rule()
	case refusedCommands[t.text] != "":
		err = p.fail(t, refusedCommands[t.text], "%s is not a command of a rule file",
			quote(t.text))
	default:
		err = p.fail(t, suggest(t.text, append(keys(commands), keys(actions)...)...),
			"unknown command %s", quote(t.text))
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// shown reads the numbers and ranges of a line that shows rules.
func (p *parser) shown() error {
	_, err := p.ruleRanges(program.DefaultNumber)
	return err
}

// ruleRanges reads the rest of the line: numbers up to most, and ranges of them.
func (p *parser) ruleRanges(most uint32) (all []Range, err error) {
	for !p.done() {
		r, err := p.numRange(p.decNum, p.next(), "rule number", 1, most)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// turn reads what ipfw's enable and disable switch.
func (p *parser) turn(command token, c *Command) error {
	t, err := p.need("what to "+command.text, "")
	if err != nil {
		return err
	}
	why, known := switches[t.text]
	switch {
	case !known:
		return p.fail(t, suggest(t.text, keys(switches)...), "%s of %s is unknown", command.text,
			quote(t.text))
	case why != "":
		return p.fail(t, why, "%s of %s is not a command of a rule file", command.text,
			quote(t.text))
	}
	if t.text == "one_pass" {
		c.Kind, c.Disable = CommandOnePass, command.text == "disable"
	}
	return p.end(command.text + " " + t.text)
}

// isNumbered reports whether a line is about a pipe or an instance of nat, and not a rule without
// "add". The command stands before or behind the number, as in ipfw.
func (p *parser) isNumbered(word string, commands map[string]bool) bool {
	return p.peek().text == word && (commands[p.ahead(1).text] || commands[p.ahead(2).text] ||
		p.ahead(1).text == "")
}

// numbered reads the number of a pipe or an instance, as what, and the command before or behind it.
// Both may be missing. Words of config never stand for a number.
func (p *parser) numbered(c *Command, what string, commands map[string]bool,
	config ...string) (number, command token, err error) {
	p.next()
	for range 2 {
		switch t := p.peek(); {
		case t.text == "" || number.text != "" && command.text != "":
		case commands[t.text] && command.text == "":
			command = p.next()
		case number.text == "" && !slices.Contains(config, t.text):
			number = p.next()
		}
	}
	if number.text == "" {
		return number, command, nil
	}
	n, err := p.decNum(number, what, 1, math.MaxUint16)
	c.Number = uint16(n)
	return number, command, err
}

// ruleNumbers reads the rest of the line.
func (p *parser) ruleNumbers() (all []Range, err error) {
	for !p.done() {
		n, err := p.needDec("rule number", 1, program.DefaultNumber)
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
		return isNumber && !commands[p.ahead(2).text]
	}
	return refusedActions[t] != "" && refusedCommands[t] == ""
}

// delete reads numbers and ranges of rules, or set N...
func (p *parser) delete(c *Command) (err error) {
	c.Kind = CommandDelete
	if p.done() {
		return p.fail(p.peek(), "delete NUMBER...", "the number of the rule is missing")
	}
	if p.accept("set") {
		return p.sets(&c.Sets, ReservedSet)
	}
	c.Numbers, err = p.ruleRanges(program.DefaultNumber - 1)
	return err
}
