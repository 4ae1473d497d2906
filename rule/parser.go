package rule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/internal/similar"
)

// parser reads the words of one line.
type parser struct {
	line
	names *Names
	at    int // index of the next word
	// index of the word behind an address without ports; 0 for none
	portPlace int
}

// fail makes an error at t.
func (p *parser) fail(t token, hint, format string, args ...any) error {
	return &Error{
		Pos:  Pos{File: p.file, Line: p.number, Col: t.col, End: t.end},
		Text: p.text, Msg: fmt.Sprintf(format, args...), Hint: hint,
	}
}

// peek returns the next word; at the end an empty token that stands there.
func (p *parser) peek() token { return p.ahead(0) }

// ahead returns the word n places further on.
func (p *parser) ahead(n int) token {
	if p.at+n < len(p.words) {
		return p.words[p.at+n]
	}
	end := 1
	if n := len(p.words); n > 0 {
		end = p.words[n-1].end
	}
	return token{col: end, end: end}
}

// next takes the next word.
func (p *parser) next() token {
	t := p.peek()
	if p.at < len(p.words) {
		p.at++
	}
	return t
}

func (p *parser) done() bool { return p.at >= len(p.words) }

// accept takes the next word if it is text.
func (p *parser) accept(text string) bool {
	if p.peek().text != text || p.done() {
		return false
	}
	p.at++
	return true
}

// need takes the next word, which says what; it is an error if there is none.
func (p *parser) need(what, hint string) (token, error) {
	if p.done() {
		return token{}, p.fail(p.peek(), hint, "%s is missing", what)
	}
	return p.next(), nil
}

// end refuses words that are left.
func (p *parser) end(after string) error {
	if p.done() {
		return nil
	}
	return p.fail(p.peek(), "", "unexpected %s after %s", quote(p.peek().text), after)
}

// numReader reads all of a word as a number. There are num and decNum.
type numReader func(t token, what string, lo, hi uint32) (uint32, error)

// num reads a number that ipfw has strtoul read with base 0: decimal, hexadecimal behind 0x, or
// octal behind 0.
func (p *parser) num(t token, what string, lo, hi uint32) (uint32, error) {
	if n, ok := hexadecimal(t.text); ok {
		return p.within(t, n, what, lo, hi)
	}
	digits := strings.TrimLeft(t.text, "0")
	if _, isDecimal := decimal(t.text); !isDecimal || t.text[0] != '0' || digits == "" {
		return p.decNum(t, what, lo, hi)
	}
	n, err := strconv.ParseUint(digits, 8, 32)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0, p.fail(t, "write "+digits, "%s: behind a 0 a number is octal, as in ipfw", what)
	}
	if err != nil {
		n = 1 << 32
	}
	return p.within(t, n, what, lo, hi)
}

// decNum reads a number that ipfw has strtoul read with base 10, or atoi: it reads 0x64 as 0.
func (p *parser) decNum(t token, what string, lo, hi uint32) (uint32, error) {
	n, ok := decimal(t.text)
	if hex, is := hexadecimal(t.text); is {
		return 0, p.fail(t, fmt.Sprintf("write %d", hex), "a %s is decimal", what)
	}
	if !ok {
		return 0, p.fail(t, "", "%s must be a number from %d to %d, not %s", what, lo, hi,
			quote(t.text))
	}
	return p.within(t, n, what, lo, hi)
}

func (p *parser) within(t token, n uint64, what string, lo, hi uint32) (uint32, error) {
	if n < uint64(lo) || n > uint64(hi) {
		return 0, p.fail(t, "", "%s must be from %d to %d", what, lo, hi)
	}
	return uint32(n), nil
}

// needNum reads the next word by num.
func (p *parser) needNum(what string, lo, hi uint32) (uint32, error) {
	return p.needBy(p.num, what, lo, hi)
}

// needDec reads the next word by decNum.
func (p *parser) needDec(what string, lo, hi uint32) (uint32, error) {
	return p.needBy(p.decNum, what, lo, hi)
}

func (p *parser) needBy(read numReader, what string, lo, hi uint32) (uint32, error) {
	t, err := p.need(what, "")
	if err != nil {
		return 0, err
	}
	return read(t, what, lo, hi)
}

// decimal reads digits; numbers beyond 32 bits come back as one above all of them.
func decimal(s string) (uint64, bool) {
	if s == "" {
		return 0, false
	}
	n := uint64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+uint64(s[i]-'0'), 1<<32)
	}
	return n, true
}

// hexadecimal reads digits behind 0x, with the same bound.
func hexadecimal(s string) (uint64, bool) {
	digits, ok := strings.CutPrefix(strings.ToLower(s), "0x")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 16, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 1 << 32, true
	}
	return min(n, 1<<32), err == nil
}

// quote puts a word from outside into a message, cut to a length that fits one.
func quote(s string) string {
	const most = 40
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return `"` + s + `"`
}

// suggest names the word that t was meant to be, if one is close.
func suggest(t string, words ...string) string {
	best := similar.Word(t, words...)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// keys returns the keys of a word table in order.
func keys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
