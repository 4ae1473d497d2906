package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/weirnet/weir/internal/tty"
)

// printJSON writes v as indented JSON. Every answer has a field "version"; fields are only ever
// added.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// newTable returns a writer that lines up columns separated by tabs; call Flush at the end.
func newTable(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
}

// show escapes a name from outside for a terminal.
func (c *call) show(s string) string { return tty.Escape(s) }

// plural counts things: "1 rule", "2 rules".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
