package tty

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes a string from outside safe and unambiguous to show. Everything that could move the
// cursor, change colours, hide text or reverse its direction becomes a visible \n, \xNN, \uNNNN or
// \UNNNNNNNN, and a backslash is doubled. Printable text of any script stays as it is.
func Escape(s string) string {
	if harmless(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case shown(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += size
	}
	return b.String()
}

// harmless reports whether s is printable ASCII without a backslash, as nearly every name is.
func harmless(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' || s[i] == '\\' {
			return false
		}
	}
	return true
}

// shown reports whether a terminal shows r as itself. Format characters (bidirectional overrides,
// zero-width joiners) are not: they change how their neighbours look.
func shown(r rune) bool { return unicode.IsGraphic(r) && (r == ' ' || !unicode.IsSpace(r)) }
