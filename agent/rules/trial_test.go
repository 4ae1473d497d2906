package rules

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/program"
)

// logLines are the lines of a log, from any goroutine.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// TestRevert: a trial ends at once and once, and the log says who ended it; where the rules before
// cannot be in force, the trial continues.
func TestRevert(t *testing.T) {
	b, e := newBook(t)
	must(t, b, "add 10 deny tcp from any to any 81")
	before := savedText(t, b)
	if _, err := b.Revert(t.Context()); !errors.Is(err, errNoTrialToEnd) {
		t.Errorf("nothing is on trial: %v", err)
	}
	log := make(logLines, 9)
	b.config.Log = slog.New(slog.NewTextHandler(log, nil))
	load := api.Load{Name: "new", Text: "add 5 allow tcp from any to any 81\n", Confirm: "1h"}
	if _, err := b.Load(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	<-log
	works := b.config.Prepare
	b.config.Prepare = func(*program.Program) error { return errors.New("no memory") }
	if _, err := b.Revert(t.Context()); !errors.As(err, new(errTrial)) ||
		!strings.Contains(err.Error(), "no memory") || !passes(e, 81) {
		t.Errorf("the rules before cannot be in force: %v", err)
	}
	b.config.Prepare = works
	done, err := b.Revert(api.WithCaller(t.Context(), 1000))
	if err != nil || done.Rules != 1 || passes(e, 81) || !passes(e, 80) {
		t.Errorf("the rules before are not back: %+v, %v", done, err)
	}
	if line := <-log; !strings.Contains(line, "reverted") ||
		!strings.Contains(line, "file=new uid=1000\n") {
		t.Errorf("the log says %s", line)
	}
	if _, err := b.Revert(t.Context()); !errors.Is(err, errNoTrialToEnd) {
		t.Errorf("reverted twice: %v", err)
	}
	if _, err := b.Confirm(t.Context()); !errors.Is(err, errNoTrial) {
		t.Errorf("confirmed after that: %v", err)
	}
	if now := savedText(t, b); now != before {
		t.Errorf("saved is\n%s", now)
	}
	must(t, b, "add 20 allow tcp from any to any 81")
}

// TestEndOfTrialIsLogged: the log says that the time of a trial is up, and names what was on trial.
func TestEndOfTrialIsLogged(t *testing.T) {
	b, _ := newBook(t)
	log := make(logLines, 9)
	b.config.Log = slog.New(slog.NewTextHandler(log, nil))
	trial := Version{Set: ruleset(t, "add 5 deny ip from any to any\n"), Source: "new"}
	if err := b.load(trial, time.Millisecond, nil); err != nil {
		t.Fatal(err)
	}
	line := <-log
	if !strings.Contains(line, "not confirmed: the rules before are in force") ||
		!strings.Contains(line, "level=WARN") || !strings.Contains(line, "file=new\n") {
		t.Errorf("the log says %s", line)
	}
}
