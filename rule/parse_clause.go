package rule

import (
	"strings"

	"github.com/weirnet/weir/rule/op"
)

// clause reads one possibly negated test, or an or-block of them. A clause that is always true
// comes back as nil.
func (p *parser) clause(test func() (Test, error)) (Clause, error) {
	if p.peek().text != "{" && p.peek().text != "(" {
		t, err := p.negatable(test)
		if err != nil {
			return nil, err
		}
		if t.Op == op.CondTrue && !t.Not {
			return nil, nil
		}
		return Clause{t}, nil
	}
	open := p.next()
	shut := map[string]string{"{": "}", "(": ")"}[open.text]
	var c Clause
	for {
		if t := p.peek(); t.text == "{" || t.text == "(" {
			return nil, p.fail(t, "or-blocks have one level",
				"an or-block cannot contain an or-block")
		}
		t, err := p.negatable(test)
		if err != nil {
			return nil, err
		}
		c = append(c, t)
		switch next := p.peek(); {
		case p.accept(shut):
			if len(c) == 1 && t.Op == op.CondTrue && !t.Not {
				return nil, nil
			}
			return c, nil
		case p.accept("or"), p.accept("|"):
		case p.done():
			return nil, p.fail(open, "close it with "+shut, "the or-block is not closed")
		default:
			return nil, p.fail(next, "{ A or B }", "expected \"or\" or %q, found %s", shut,
				quote(next.text))
		}
	}
}

// acceptNot takes "not", or its other spelling: '!' by itself or in front of a word.
func (p *parser) acceptNot() bool {
	if p.accept("not") || p.accept("!") {
		return true
	}
	t := p.peek()
	if !strings.HasPrefix(t.text, "!") {
		return false
	}
	p.words[p.at] = t.sub(1, len(t.text))
	return true
}

// skipNots returns the next word that neither negates nor opens an or-block, without taking
// anything.
func (p *parser) skipNots() string {
	for i := 0; ; i++ {
		switch t := p.ahead(i).text; t {
		case "not", "!", "{", "(":
		default:
			return strings.TrimPrefix(t, "!")
		}
	}
}

// negatable reads [not] TEST.
func (p *parser) negatable(test func() (Test, error)) (Test, error) {
	not := p.acceptNot()
	if t := p.peek(); not && p.acceptNot() {
		return Test{}, p.fail(t, "", "\"not\" twice")
	} else if not && (t.text == "{" || t.text == "(") {
		return Test{},
			p.fail(t, "not A and not B is two options; not in front of each inside is an or of "+
				"both", "\"not\" cannot stand before an or-block")
	}
	t, err := test()
	t.Not = t.Not != not // one that is never true comes negated
	return t, err
}
