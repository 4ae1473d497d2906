package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/doctor"
)

// TestOutputIsEscaped: texts of a node and of the machine move no cursor.
func TestOutputIsEscaped(t *testing.T) {
	const evil = "a\x1b]0;title\a"
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
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.WriteAnswer(w, func() (api.Done, error) {
			return api.Done{Version: api.Version, Message: evil + "\nnext"}, nil
		})
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	var out, messages bytes.Buffer
	if code := run(t.Context(), []string{"--root", root, "peer", "remove", "b"}, nil, &out,
		&messages); code != 0 {
		t.Fatalf("%d: %s", code, &messages)
	}
	if got, want := messages.String(), "weir: a\\x1b]0;title\\x07\nweir: next\n"; got != want {
		t.Errorf("peer remove: %q, want %q", got, want)
	}
	printReport(&call{out: &out}, doctor.Report{Findings: []doctor.Finding{{Name: "x",
		Detail: evil}}})
	if strings.ContainsRune(out.String(), '\x1b') {
		t.Errorf("doctor: %q", &out)
	}
}
