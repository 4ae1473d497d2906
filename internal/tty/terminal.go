package tty

import (
	"io"
	"os"

	"golang.org/x/term"
)

// defaultWidth is used where no terminal says how wide it is.
const defaultWidth = 80

// IsTerminal says whether what is written to w (or read from it) goes to a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width returns the columns of the terminal behind w, or 80 where there is none.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return defaultWidth
}

// WantsColor says whether to write colour to w: only to a terminal, never to TERM=dumb, and not
// when NO_COLOR is set to anything (no-color.org). getenv is os.Getenv.
func WantsColor(w io.Writer, getenv func(string) string) bool {
	return colorWanted(IsTerminal(w), getenv)
}

func colorWanted(terminal bool, getenv func(string) string) bool {
	t := getenv("TERM")
	return terminal && getenv("NO_COLOR") == "" && t != "" && t != "dumb"
}
