package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestSignalEndsAQuestion: a signal ends a command that waits for an answer, and that is a no.
func TestSignalEndsAQuestion(t *testing.T) {
	_, terminal := nstest.Terminal(t)
	for _, c := range []struct {
		line   string
		status int
	}{{"fw flush", 1}, {"ipfw flush", exUnavailable}, {"join -", 1}} {
		ctx, signal := context.WithCancel(t.Context())
		defer signal()
		asked := &question{cancel: signal}
		words := append([]string{"--root", t.TempDir()}, strings.Fields(c.line)...)
		if status := run(ctx, words, terminal, asked, asked); status != c.status ||
			!asked.is || strings.Contains(asked.text.String(), "no node") {
			t.Errorf("weir %s: status %d, %s", c.line, status, &asked.text)
		}
	}
}

// question calls cancel at the first thing that is printed.
type question struct {
	cancel func()
	is     bool
	text   bytes.Buffer
}

func (q *question) Write(b []byte) (int, error) {
	q.is = true
	q.cancel()
	return q.text.Write(b)
}

// TestJoinReadsItsToken: - is standard input, of which a bounded part is read.
func TestJoinReadsItsToken(t *testing.T) {
	for _, text := range []string{"nonsense\nmore", "", strings.Repeat("x", 1<<20)} {
		var out, messages bytes.Buffer
		in := strings.NewReader(text)
		if status := run(t.Context(), []string{"--root", t.TempDir(), "join", "-"}, in, &out,
			&messages); status != 2 || !strings.Contains(messages.String(), "not TOKEN@HOST") ||
			strings.Contains(messages.String(), "nonsense") {
			t.Errorf("%.9q: status %d, %.200s", text, status, &messages)
		}
		if read := len(text) - in.Len(); read > maxInvitation {
			t.Errorf("%d bytes were read", read)
		}
	}
}
