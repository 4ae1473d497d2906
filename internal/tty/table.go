package tty

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table aligns rows of cells in columns. It keeps all rows until Flush, because the widest cell of
// a column decides.
type Table struct {
	w     io.Writer
	rows  [][]string
	right []bool // by column: aligned right, for numbers
}

// NewTable starts a table on w with a header row. A header that starts with '>' aligns its column
// right, for numbers; the sign itself is not shown. Without headers there is no header row.
func NewTable(w io.Writer, headers ...string) *Table {
	t := &Table{w: w, right: make([]bool, len(headers))}
	var row []string
	for i, h := range headers {
		h, t.right[i] = strings.CutPrefix(h, ">")
		row = append(row, h)
	}
	if len(row) > 0 {
		t.rows = append(t.rows, row)
	}
	return t
}

// Row adds a row. A cell is anything that fmt prints. Its text is escaped, and an empty one shows
// as "-".
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if row[i] = Escape(fmt.Sprint(c)); row[i] == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// Flush writes the table and empties it. Two blanks separate the columns; no line ends in blanks.
func (t *Table) Flush() error {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			switch {
			case i < len(t.right) && t.right[i]:
				b.WriteString(pad + c)
			case i < len(row)-1:
				b.WriteString(c + pad)
			default:
				b.WriteString(c)
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
