package rule

import (
	"fmt"
	"strings"
	"unicode"
)

// MaxErrors is how many mistakes of one file are reported.
const MaxErrors = 20

// Error is one mistake in rule text.
type Error struct {
	Pos  Pos
	Text string // the line, as read
	Msg  string
	Hint string // "" if there is none
}

// Error returns the place and the message in one line.
func (e *Error) Error() string {
	if e.Pos.File == "" {
		return fmt.Sprintf("column %d: %s", e.Pos.Col, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Pos.File, e.Pos.Line, e.Pos.Col, e.Msg)
}

// Report returns the error with the line, carets under the place, and the hint, ending in a
// newline. Control characters are shown as '?'.
func (e *Error) Report() string {
	var b strings.Builder
	b.WriteString(printable(e.Error()))
	b.WriteByte('\n')
	line, col, width := excerpt(e.Text, e.Pos.Col, e.Pos.End)
	b.WriteString("    " + line + "\n")
	b.WriteString("    " + strings.Repeat(" ", col) + strings.Repeat("^", width) + "\n")
	if e.Hint != "" {
		b.WriteString("    hint: " + printable(e.Hint) + "\n")
	}
	return b.String()
}

// Errors are the mistakes of a file in order, at most MaxErrors of them.
type Errors []*Error

// Error returns the first mistake and how many more there are.
func (l Errors) Error() string {
	switch len(l) {
	case 0:
		return "no error"
	case 1:
		return l[0].Error()
	case 2:
		return l[0].Error() + " (and 1 more error)"
	case MaxErrors:
		return fmt.Sprintf("%s (and at least %d more errors)", l[0].Error(), len(l)-1)
	}
	return fmt.Sprintf("%s (and %d more errors)", l[0].Error(), len(l)-1)
}

// Report returns the reports of all mistakes.
func (l Errors) Report() string {
	var b strings.Builder
	for _, e := range l {
		b.WriteString(e.Report())
	}
	return b.String()
}

// Unwrap lets errors.As find an *Error.
func (l Errors) Unwrap() []error {
	all := make([]error, len(l))
	for i, e := range l {
		all[i] = e
	}
	return all
}

// maxExcerpt is the longest piece of a line that a report shows, in characters.
const maxExcerpt = 100

// excerpt returns the line as it can be shown, and where in it the bytes from column col to end
// (both from 1) stand.
func excerpt(line string, col, end int) (shown string, at, width int) {
	from := min(max(col-1, 0), len(line))
	to := min(max(end-1, from), len(line))
	before := []rune(printable(line[:from]))
	marked := []rune(printable(line[from:to]))
	after := []rune(printable(line[to:]))
	if len(before)+len(marked)+len(after) > maxExcerpt {
		if len(before) > maxExcerpt/2 {
			before = append([]rune("..."), before[len(before)-maxExcerpt/2+3:]...)
		}
		if len(marked) > maxExcerpt/2 {
			marked, after = marked[:maxExcerpt/2], []rune("...")
		}
		if space := maxExcerpt - len(before) - len(marked); len(after) > space {
			after = append(after[:max(space-3, 0):max(space-3, 0)], []rune("...")...)
		}
	}
	return string(before) + string(marked) + string(after), len(before), max(len(marked), 1)
}

// printable replaces what a terminal would not show as one character.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsPrint(r) || r == unicode.ReplacementChar:
			return '?'
		}
		return r
	}, s)
}
