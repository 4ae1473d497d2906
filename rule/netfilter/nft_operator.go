package netfilter

import (
	"slices"

	"github.com/weirnet/weir/rule"
)

// inverts reports whether an operator is true where none of the tests is. Of bits, nft shows
// "flags & bits == 0" as "!": none of them is set.
func inverts(operator string) bool { return operator == "!=" || operator == "!" }

// ordered are the fields whose tests take "<" and its like into account.
var ordered = []string{"sport", "dport", "type", "ttl", "hoplimit", "length", "id"}

// understood reports whether tests returns what an operator asks. nft shows "in" where no operator
// was written.
func understood(operator string, left map[string]any) bool {
	name := ""
	for _, kind := range []string{"payload", "meta", "ct"} {
		m, _ := left[kind].(map[string]any)
		for _, key := range []string{"field", "key"} {
			if text, ok := m[key].(string); ok {
				name = text
			}
		}
	}
	switch operator {
	case "==", "!=", "in":
		return true
	case "!":
		return name == "flags" || name == "state"
	case "<", ">", "<=", ">=":
		return slices.Contains(ordered, name)
	}
	return false
}

// compared returns the range of numbers that an operator lets through, for operators that compare.
func compared(op string, r rule.Range, most uint32) (rule.Range, bool) {
	switch {
	case op == "<" && r.Lo > 0:
		return rule.Range{Lo: 0, Hi: r.Lo - 1}, true
	case op == "<=":
		return rule.Range{Lo: 0, Hi: r.Lo}, true
	case op == ">" && r.Lo < most:
		return rule.Range{Lo: r.Lo + 1, Hi: most}, true
	case op == ">=":
		return rule.Range{Lo: r.Lo, Hi: most}, true
	case op == "<" || op == ">":
		return r, false
	}
	return r, true
}
