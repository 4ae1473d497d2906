package rule

import (
	"errors"
	"strings"
)

// ParseFile reads a rule file: lines as ipfw takes them from a file (docs/rules.md). The file
// begins with no rule, all sets enabled and no table; the Ruleset is the result of its lines, one
// after the other. An error is of type Errors, and there is no Ruleset then.
func ParseFile(name, text string, names *Names) (*Ruleset, error) {
	s := new(Ruleset)
	b := NewBatch(s)
	if err := eachLine(name, text, names, b.obey); err != nil {
		return nil, err
	}
	b.Flush()
	return s, nil
}

// ParseCommands reads the lines of a rule file without executing them, so that they can be applied
// to an existing Ruleset. An error is of type Errors.
func ParseCommands(name, text string, names *Names) (all []*Command, err error) {
	err = eachLine(name, text, names, func(p *parser) error {
		c, err := p.command()
		if err == nil && c.Kind != CommandNone {
			all = append(all, c)
		}
		return err
	})
	return all, err
}

// eachLine calls read with a parser for each line, and returns the mistakes.
func eachLine(name, text string, names *Names, read func(*parser) error) error {
	var errs Errors
	number := 0
	words := make([]token, 0, 32) // space for every line's words, one after the other
	for l := range strings.SplitSeq(text, "\n") {
		number++
		if number == 1 {
			l = strings.TrimPrefix(l, "\ufeff")
		}
		p := &parser{line: scan(name, number, strings.TrimSuffix(l, "\r"), words), names: names}
		words = p.words
		err := read(p)
		if e := (*Error)(nil); errors.As(err, &e) {
			if errs = append(errs, e); len(errs) == MaxErrors {
				break
			}
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// obey carries out one line of a file.
func (b *Batch) obey(p *parser) error {
	c, err := p.command()
	if err != nil {
		return err
	}
	err = b.Apply(c)
	// Files remove what an earlier load may have left; here every load begins with nothing.
	if err != nil && !IsAbsent(err) {
		last := p.words[len(p.words)-1]
		return p.fail(token{col: p.words[0].col, end: last.end}, "", "%s", err)
	}
	return nil
}

// ParseLine reads one line of a rule file. An error is of type *Error.
func ParseLine(text string, names *Names) (*Command, error) {
	p := &parser{line: scan("", 1, text, nil), names: names}
	if strings.ContainsAny(text, "\n") {
		return nil, p.fail(token{col: 1, end: len(text) + 1}, "", "a command is one line")
	}
	return p.command()
}

// ParseRule reads one rule, with or without "add".
func ParseRule(text string, names *Names) (*Rule, error) {
	c, err := ParseLine(text, names)
	if err != nil {
		return nil, err
	}
	if c.Kind != CommandAdd {
		return nil, &Error{Pos: c.Pos, Text: text, Msg: "not a rule",
			Hint: "ACTION PROTO from SRC to DST"}
	}
	return c.Rule, nil
}
