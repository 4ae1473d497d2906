package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
)

// serveNode answers requests as a node does. It returns the flags that select it.
func serveNode(t *testing.T, answer http.HandlerFunc) (flags []string) {
	t.Helper()
	root, err := os.MkdirTemp("", "weir") // shorter than t.TempDir: the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	dir := filepath.Join(root, "run", "weir")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "weir.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: answer}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return []string{"--root", root}
}

// nodeOfTables serves tables as a node does. It returns the flags that select it, and the queries
// that it gets.
func nodeOfTables(t *testing.T, all []api.Table) (flags []string, queries chan string) {
	t.Helper()
	queries = make(chan string, 16)
	return serveNode(t, func(w http.ResponseWriter, r *http.Request) {
		queries <- r.URL.Path + "?" + r.URL.RawQuery
		api.WriteAnswer(w, func() (api.Tables, error) {
			return api.Tables{Version: api.Version, Tables: all}, nil
		})
	}), queries
}

// TestTableLookup: the node is asked for one table and one address, and the answer is printed in
// both forms. A node that does not know the query answers with all that it has.
func TestTableLookup(t *testing.T) {
	web := api.Table{Name: "web", Items: 3, Entries: []api.TableEntry{{Prefix: "10.0.0.0/8"},
		{Prefix: "10.1.0.0/16", Value: 7}, {Prefix: "fd00::/8"}}}
	narrow := api.Table{Name: "other", Items: 1,
		Entries: []api.TableEntry{{Prefix: "10.1.2.3/32", Value: 9}}}
	flags, queries := nodeOfTables(t, []api.Table{narrow, web})
	lookup := func(words string) (out, stderr string, code int) {
		var o, e bytes.Buffer
		code = run(t.Context(), append(flags, strings.Fields("fw table "+words)...), nil, &o, &e)
		return o.String(), e.String(), code
	}
	for words, want := range map[string][2]string{
		"web lookup 10.1.2.3": {"10.1.0.0/16 7\n", "/v1/tables?address=10.1.2.3&name=web"},
		"all lookup 10.1.2.3": {"10.1.2.3/32 9\n", "/v1/tables?address=10.1.2.3"},
	} {
		out, stderr, code := lookup(words)
		if query := <-queries; code != 0 || out != want[0] || query != want[1] {
			t.Errorf("%s: status %d, %q %s, asked for %s", words, code, out, stderr, query)
		}
	}
	out, stderr, code := lookup("-j web lookup 10.1.2.3")
	var got api.Tables
	err := json.Unmarshal([]byte(out), &got)
	web.Entries = web.Entries[1:2]
	if want := (api.Tables{Version: api.Version, Tables: []api.Table{web}}); err != nil ||
		code != 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("status %d, %v, %s%s", code, err, out, stderr)
	}
	out, stderr, code = lookup("-j web lookup 192.0.2.1")
	if code != 1 || out != "" || !strings.Contains(stderr, "192.0.2.1 is not in table web") {
		t.Errorf("status %d, %q, %s", code, out, stderr)
	}
}
