package main

import (
	"encoding/json"
	"io"
	"text/tabwriter"
)

// printJSON writes v as indented JSON. Every answer has a field "version"; fields are only ever added.
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
