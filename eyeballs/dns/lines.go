package dns

import (
	"io"
	"iter"
	"strings"
)

// linesOf yields the lines of a file, of any length. It reads maxFile bytes at most.
func linesOf(r io.Reader) iter.Seq[string] {
	text, err := io.ReadAll(io.LimitReader(r, maxFile))
	if err != nil && len(text) == 0 {
		return func(func(string) bool) {}
	}
	return strings.Lines(string(text))
}
