package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// WriteStates writes the JSON of States. It holds a few states at a time in memory, and stops at
// the first error of w.
func WriteStates(w io.Writer, table StateTable, all iter.Seq[State]) error {
	out := bufio.NewWriterSize(w, 64<<10)
	fmt.Fprintf(out, `{"version":%d,"states":`, Version)
	if err := writeArray(out, all); err != nil {
		return err
	}
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `,"table":%s}`+"\n", text)
	return out.Flush()
}

// writeArray writes the JSON of an array, an element at a time.
func writeArray[T any](out *bufio.Writer, all iter.Seq[T]) error {
	e, some := json.NewEncoder(out), false
	out.WriteByte('[')
	for one := range all {
		if some {
			out.WriteByte(',')
		}
		some = true
		if err := e.Encode(one); err != nil {
			return err
		}
	}
	return out.WriteByte(']')
}
