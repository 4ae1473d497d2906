package firewall

import (
	"fmt"
	"testing"
)

// TestNames: kinds of events, directions and answers print as words, and what is none of them as a
// number.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		value fmt.Stringer
		want  string
	}{
		{EventStart, "start"}, {EventEnd, "end"}, {EventDrop, "drop"}, {EventLog, "log"},
		{EventRefuse, "refuse"}, {EventKind(0), "kind-0"}, {EventKind(200), "kind-200"},
		{In, "in"}, {Out, "out"}, {Direction(2), "direction-2"},
		{AnswerNone, "none"}, {AnswerReset, "reset"}, {AnswerUnreach, "unreach"},
		{AnswerUnreach6, "unreach6"}, {AnswerCookie, "cookie"}, {Answer(9), "answer-9"},
	} {
		if got := c.value.String(); got != c.want {
			t.Errorf("%T prints as %q, want %q", c.value, got, c.want)
		}
	}
}
