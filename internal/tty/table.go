package tty

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table lines up rows of cells in columns. It keeps all rows until Flush, because the widest cell
// of a column decides.
type Table struct {
	w     io.Writer
	color bool
	rows  [][]cell
	right []bool // by column: aligned right, for numbers
}

type cell struct {
	text  string
	style Style
}

// Styled is a cell with a style of its own.
type Styled struct {
	Value any
	Style Style
}

// NewTable starts a table on w with a header row. A header that starts with '>' has its column
// aligned right, as numbers want it; the sign itself is not shown. No headers mean no header row.
func NewTable(w io.Writer, color bool, headers ...string) *Table {
	t := &Table{w: w, color: color, right: make([]bool, len(headers))}
	var row []cell
	for i, h := range headers {
		h, t.right[i] = strings.CutPrefix(h, ">")
		row = append(row, cell{h, Bold})
	}
	if len(row) > 0 {
		t.rows = append(t.rows, row)
	}
	return t
}

// Row adds a row. A cell is a Styled or anything that fmt prints; its text is escaped, and an empty
// one shows as "-".
func (t *Table) Row(cells ...any) {
	row := make([]cell, len(cells))
	for i, c := range cells {
		s, ok := c.(Styled)
		if !ok {
			s = Styled{Value: c}
		}
		text := Escape(fmt.Sprint(s.Value))
		if text == "" {
			text = "-"
		}
		row[i] = cell{text, s.Style}
	}
	t.rows = append(t.rows, row)
}

// Flush writes the table and empties it. Columns are two blanks apart; no line ends in blanks.
func (t *Table) Flush() error {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
			text := c.style.Apply(t.color, c.text)
			switch {
			case i < len(t.right) && t.right[i]:
				b.WriteString(pad + text)
			case i < len(row)-1:
				b.WriteString(text + pad)
			default:
				b.WriteString(text)
			}
			if i < len(row)-1 {
				b.WriteString("  ")
			}
		}
		b.WriteByte('\n')
	}
	t.rows = nil
	_, err := io.WriteString(t.w, b.String())
	return err
}
