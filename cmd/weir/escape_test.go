package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/doctor"
)

// TestOutputIsEscaped: texts of a node and of the machine move no cursor.
func TestOutputIsEscaped(t *testing.T) {
	const evil = "a\x1b]0;title\a"
	flags := serveNode(t, func(w http.ResponseWriter, r *http.Request) {
		api.WriteAnswer(w, func() (api.Done, error) {
			return api.Done{Version: api.Version, Message: evil + "\nnext"}, nil
		})
	})
	var out, messages bytes.Buffer
	if code := run(t.Context(), append(flags, "peer", "remove", "b"), nil, &out,
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
