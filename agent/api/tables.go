package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"net/url"
	"slices"
)

// TableQuery is what GET /v1/tables is asked for.
type TableQuery struct {
	Name      string     // of the one table, "" for all
	Address   netip.Addr // if valid: of each table only the longest prefix that holds it
	NoMembers bool
}

// ParseTableQuery reads the query of a request.
func ParseTableQuery(v url.Values) (q TableQuery, err error) {
	q.Name, q.NoMembers = v.Get("name"), v.Get("members") == "0"
	if text := v.Get("address"); text != "" {
		if q.Address, err = netip.ParseAddr(text); err != nil {
			return q, fmt.Errorf("%q is not an address", text)
		}
	}
	return q, nil
}

// Picks reports whether the query asks for a table of this name.
func (q TableQuery) Picks(name string) bool { return q.Name == "" || q.Name == name }

// View returns what the query asks of a table whose members are all in Entries.
func (q TableQuery) View(t Table) TableView {
	some := t.Entries
	if q.Address.IsValid() {
		some = nil
		if e, bits := t.Lookup(q.Address); bits >= 0 {
			some = []TableEntry{e}
		}
	}
	if q.NoMembers {
		some = nil
	}
	t.Items, t.Entries = len(t.Entries), nil
	return TableView{Table: t, Members: slices.Values(some)}
}

// Lookup returns the member with the longest prefix that holds an address, and its length; -1 if
// there is none.
func (t *Table) Lookup(a netip.Addr) (longest TableEntry, bits int) {
	bits = -1
	for _, e := range t.Entries {
		p, err := netip.ParsePrefix(e.Prefix)
		if err == nil && p.Contains(a) && p.Bits() > bits {
			longest, bits = e, p.Bits()
		}
	}
	return longest, bits
}

// TableView is a Table whose members are made one by one, while they are written: it can have
// millions. Entries is not used.
type TableView struct {
	Table
	Members iter.Seq[TableEntry]
}

// WriteTables writes the JSON of Tables. It holds a few members at a time in memory, and stops at
// the first error of w.
func WriteTables(w io.Writer, all []TableView) error {
	out := bufio.NewWriterSize(w, 64<<10)
	fmt.Fprintf(out, `{"version":%d,"tables":[`, Version)
	for i, t := range all {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := t.write(out); err != nil {
			return err
		}
	}
	out.WriteString("]}\n")
	return out.Flush()
}

func (t *TableView) write(out *bufio.Writer) error {
	t.Entries = []TableEntry{}
	text, err := json.Marshal(t.Table)
	if err != nil {
		return err
	}
	out.Write(bytes.TrimSuffix(text, []byte("[]}"))) // the members are the last field
	if err := writeArray(out, t.Members); err != nil {
		return err
	}
	return out.WriteByte('}')
}
