package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"testing"
)

// someTables are tables with every field of an answer.
func someTables() []Table {
	left := 2.5
	return []Table{
		{Name: "none", Entries: []TableEntry{}},
		{Name: `a "name"`, File: "/etc/x", Items: 3, Entries: []TableEntry{{Prefix: "10.0.0.0/8"},
			{Prefix: "10.1.0.0/16", Value: 7, LeftSeconds: &left}, {Prefix: "fd00::/8"}}},
		{Name: "app=web", Label: true, Items: 1, Entries: []TableEntry{{Prefix: "10.1.0.9/32"}}},
	}
}

// TestWriteTables: what is written piece by piece is the JSON of Tables.
func TestWriteTables(t *testing.T) {
	for n := range len(someTables()) + 1 {
		want := Tables{Version: Version, Tables: someTables()[:n]}
		var views []TableView
		for _, one := range want.Tables {
			views = append(views, TableQuery{}.View(one))
		}
		var text bytes.Buffer
		if err := WriteTables(&text, views); err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, text.Bytes()); err != nil {
			t.Fatalf("%v: %s", err, &text)
		}
		if whole, _ := json.Marshal(want); !bytes.Equal(compact.Bytes(), whole) {
			t.Errorf("got\n%s\nwant\n%s", &compact, whole)
		}
	}
}

// TestWriteStates: what is written piece by piece is the JSON of States.
func TestWriteStates(t *testing.T) {
	states := []State{{Proto: "tcp", From: "192.0.2.1:1", To: "192.0.2.2:80", Rule: 100},
		{Proto: "udp", From: "192.0.2.1:2", To: "192.0.2.2:53", Flow: `a "name"`, Engine: "tunnel"},
		{Proto: "icmp", ICMPType: 8, Interface: "eth0", AgeSeconds: 1.5}}
	table := StateTable{States: 3, StatesMax: 9, Refused: map[string]uint64{"limit": 1}}
	for n := range len(states) + 1 {
		want := States{Version: Version, States: states[:n], Table: table}
		var text, compact bytes.Buffer
		if err := WriteStates(&text, table, slices.Values(states[:n])); err != nil {
			t.Fatal(err)
		}
		if err := json.Compact(&compact, text.Bytes()); err != nil {
			t.Fatalf("%v: %s", err, &text)
		}
		if whole, _ := json.Marshal(want); !bytes.Equal(compact.Bytes(), whole) {
			t.Errorf("got\n%s\nwant\n%s", &compact, whole)
		}
	}
}

// closed is a connection whose reader has gone.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, errors.New("closed") }

// TestWriteTablesStops: members that no client reads are not made.
func TestWriteTablesStops(t *testing.T) {
	endless := func(yield func(TableEntry) bool) {
		for yield(TableEntry{Prefix: "10.0.0.0/8"}) {
		}
	}
	if err := WriteTables(closed{}, []TableView{{Members: endless}}); err == nil {
		t.Error("no error")
	}
}

// TestTableQuery: a query picks one table, the longest prefix of an address, or no members. The
// answer says how many there are each time.
func TestTableQuery(t *testing.T) {
	table := someTables()[1]
	for query, want := range map[string][]string{
		"":                                 {"10.0.0.0/8", "10.1.0.0/16", "fd00::/8"},
		"address=10.1.2.3":                 {"10.1.0.0/16"},
		"address=10.2.2.3&members=1":       {"10.0.0.0/8"},
		"address=192.0.2.1":                nil,
		"members=0":                        nil,
		"members=0&address=10.1.2.3&name=": nil,
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		q, err := ParseTableQuery(values)
		if err != nil {
			t.Fatal(err)
		}
		v := q.View(table)
		var got []string
		for e := range v.Members {
			got = append(got, e.Prefix)
		}
		if !slices.Equal(got, want) || v.Items != 3 || v.File != table.File {
			t.Errorf("%s: %q of %+v, want %q", query, got, v.Table, want)
		}
	}
	if _, err := ParseTableQuery(url.Values{"address": {"10.0.0.0/8"}}); err == nil {
		t.Error("a prefix is taken for an address")
	}
	q, err := ParseTableQuery(url.Values{"name": {"web"}, "address": {"::1"}})
	if want := (TableQuery{Name: "web", Address: netip.IPv6Loopback()}); err != nil ||
		!reflect.DeepEqual(q, want) || !q.Picks("web") || q.Picks("app=web") {
		t.Errorf("%+v, %v", q, err)
	}
}
