package netfilter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// errTooMany is the error of a rule set that has no place below rule 65535.
var errTooMany = errors.New("too many rules: a rule file has 65,534 numbers, of which at most " +
	"16,383 rules are in force; put addresses into sets, which become tables")

// maxRules is how many rules the engines take.
const maxRules = 16383

// number gives the rules their numbers, and jumps the numbers that they lead to.
func (w *writer) number() error {
	if len(w.here) > 0 { // something jumps behind the last rule
		w.do(op.ActionDeny)
	}
	rules := 0
	for _, l := range w.lines {
		if l.rule != nil {
			rules++
		}
	}
	if rules > maxRules {
		return errTooMany
	}
	for _, scale := range [][2]int{{100, 1000}, {10, 1000}, {10, 100}, {10, 10}, {3, 3}} {
		if w.scaled(scale[0], scale[1]) {
			return nil
		}
	}
	return errTooMany
}

// scaled numbers with a distance between rules and between blocks. It reports false when the
// numbers do not suffice.
func (w *writer) scaled(step, block int) bool {
	places := map[label]int{}
	n := 0
	for _, l := range w.lines {
		if l.rule == nil {
			continue
		}
		n += step
		if l.block {
			n = (n + block - 1) / block * block
		}
		if n > 65000 {
			return false
		}
		l.rule.Number = uint16(n)
		for _, at := range l.at {
			places[at] = n
		}
	}
	for _, l := range w.lines {
		if l.to != 0 {
			l.rule.Action.Arg = uint32(places[l.to])
		}
	}
	return true
}

// maxComment is the longest comment of a rule.
const maxComment = 255

// text returns the rule file.
func (w *writer) text(remarks []Remark) string {
	var b strings.Builder
	comment := func(text string) {
		for l := range strings.SplitSeq(text, "\n") {
			b.WriteString(strings.TrimRight("# "+clean(l), " ") + "\n")
		}
	}
	comment("Imported by `weir import` from " + w.set.form +
		". A line of the source stands above\n" +
		"the rules that do the same. Try them with\n" +
		"  weir fw load --confirm 30s FILE")
	for _, r := range remarks {
		comment("* " + wrapped(r.Line()))
		if r.Text != "" {
			comment("    " + r.Text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.set.tables)) {
		if about := aboutTables[name]; about != "" {
			comment(about)
		}
		fmt.Fprintf(&b, "table %s create type addr\n", name)
		ends := w.set.ends[name]
		members := slices.DeleteFunc(w.set.tables[name].Entries(), func(m rule.TableEntry) bool {
			return ends[m.Prefix] > 0
		})
		for chunk := range slices.Chunk(members, 8) {
			fmt.Fprintf(&b, "table %s add", name)
			for _, m := range chunk {
				b.WriteString(" " + prefixText(m))
			}
			b.WriteString("\n")
		}
		for _, m := range w.set.tables[name].Entries() {
			if left := ends[m.Prefix]; left > 0 {
				fmt.Fprintf(&b, "table %s add %s timeout %d\n", name, prefixText(m), left)
			}
		}
	}
	for _, l := range w.lines {
		switch {
		case l.rule == nil && l.comment == "":
			b.WriteString("\n")
		case l.rule == nil:
			comment(l.comment)
		default:
			l.rule.Comment = shortened(clean(l.rule.Comment))
			b.WriteString("add " + l.rule.String() + "\n")
		}
	}
	return b.String()
}

// wrapped breaks text into lines that fit into a comment.
func wrapped(text string) string {
	const most = 96
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case column > 0 && column+1+len(word) > most:
			b.WriteString("\n  ")
			column = 2
		case column > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

func prefixText(e rule.TableEntry) string {
	if e.Prefix.IsSingleIP() {
		return e.Prefix.Addr().String()
	}
	return e.Prefix.String()
}

func shortened(text string) string {
	if len(text) > maxComment {
		return text[:maxComment]
	}
	return text
}

// clean keeps what stands in the source from ending a comment or a line.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || r > 0x7e:
			return '?'
		}
		return r
	}, text)
}
