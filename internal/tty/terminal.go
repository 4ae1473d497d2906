package tty

import (
	"io"
	"os"

	"golang.org/x/term"
)

// defaultWidth is the width without a terminal, in columns.
const defaultWidth = 80

// IsTerminal reports whether f, a reader or a writer, is a terminal.
func IsTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Colours reports whether f shows colours: it is a terminal, and neither NO_COLOR
// (https://no-color.org) nor TERM=dumb says otherwise.
func Colours(f any) bool {
	return IsTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Width returns the columns of the terminal behind w, or 80 if w is not a terminal.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return defaultWidth
}
