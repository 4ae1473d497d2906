package rules

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
)

// TestLogOfChanges: the log says who changed the rules, and does not hold a long command whole.
func TestLogOfChanges(t *testing.T) {
	b, _ := newManager(t)
	var log bytes.Buffer
	b.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	ctx := api.WithClientUID(t.Context(), 1000)
	long := "table x add" + strings.Repeat(" 192.0.2.1", 1000)
	for _, c := range []struct {
		what string
		do   func(context.Context) error
		want string
	}{
		{"a command", func(ctx context.Context) error {
			_, err := b.RunCommand(ctx, api.Command{Line: "add 7 allow tcp from any to any 80"})
			return err
		}, `"rules changed" command="add 7 allow tcp from any to any 80" uid=1000`},
		{"a long one", func(ctx context.Context) error {
			_, err := b.RunCommand(ctx, api.Command{Line: long})
			return err
		}, `"rules changed" command="` + long[:200] + `... (10011 bytes)" uid=1000`},
		{"a file of commands", func(ctx context.Context) error {
			_, err := b.RunCommands(ctx, api.Commands{Name: "f",
				Text: "add 8 allow ip from any to any\n"})
			return err
		}, `"rules changed" file=f uid=1000`},
		{"a rule file", func(ctx context.Context) error {
			_, err := b.Load(ctx, api.Load{Name: "f", Text: "add 9 allow ip from any to any\n"})
			return err
		}, `"rules loaded" file=f rules=1 trial=0s uid=1000`},
		{"a panic", func(ctx context.Context) error { return b.Panic(ctx, nil, 0) },
			"uid=1000"},
		{"its end", b.EndPanic, "uid=1000"},
	} {
		log.Reset()
		if err := c.do(ctx); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if !strings.Contains(strings.ReplaceAll(log.String(), "msg=", ""), c.want+"\n") {
			t.Errorf("%s: the log is %s, want %s", c.what, log.String(), c.want)
		}
	}
	b.config.Log = slog.New(slog.DiscardHandler)
	for _, c := range []struct{ text, want string }{
		{strings.Repeat("x", 200), strings.Repeat("x", 200)},
		{strings.Repeat("x", 199) + "\u00e9", strings.Repeat("x", 199) + "... (201 bytes)"},
	} {
		if got := logged(c.text); got != c.want {
			t.Errorf("%q is logged as %q", c.text, got)
		}
	}
}
