package rules

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/program"
)

// logLines are the lines of a log, from any goroutine.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// TestRevert: a trial ends at once and once, and the log says who ended it. If the previous rules
// cannot be in force, the trial continues.
func TestRevert(t *testing.T) {
	b, e := newManager(t)
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
		t.Errorf("the previous rules cannot be in force: %v", err)
	}
	b.config.Prepare = works
	done, err := b.Revert(api.WithClientUID(t.Context(), 1000))
	if err != nil || done.Rules != 1 || passes(e, 81) || !passes(e, 80) {
		t.Errorf("the previous rules are not back: %+v, %v", done, err)
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

// TestConfirmedRulesStay: the time of a trial that was confirmed ends nothing, even if it is up at
// that moment.
func TestConfirmedRulesStay(t *testing.T) {
	b, e := newManager(t)
	load := api.Load{Name: "new", Text: "add 5 allow tcp from any to any 81\n", Confirm: "1h"}
	if _, err := b.Load(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	confirmed := b.trial
	if _, err := b.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if confirmed.timer.Stop() {
		t.Error("the time still runs")
	}
	b.timeIsUp(confirmed)
	if !passes(e, 81) || !strings.Contains(savedText(t, b), "allow tcp from any to any 81") {
		t.Errorf("confirmed rules went back; saved is\n%s", savedText(t, b))
	}
}

// TestEndOfTrialIsLogged: the log says that the time of a trial is up, and names what was on trial.
func TestEndOfTrialIsLogged(t *testing.T) {
	b, _ := newManager(t)
	log := make(logLines, 9)
	b.config.Log = slog.New(slog.NewTextHandler(log, nil))
	trial := Version{Set: ruleset(t, "add 5 deny ip from any to any\n"), Source: "new"}
	if err := b.load(trial, time.Millisecond, nil); err != nil {
		t.Fatal(err)
	}
	line := <-log
	if !strings.Contains(line, "not confirmed: the previous rules are in force") ||
		!strings.Contains(line, "level=WARN") || !strings.Contains(line, "file=new\n") {
		t.Errorf("the log says %s", line)
	}
}

// noWayBack has a Manager refuse, while that is wanted, rules that come back.
func noWayBack(b *Manager) (refuse *atomic.Bool) {
	refuse = new(atomic.Bool)
	refuse.Store(true)
	b.config.Prepare = func(p *program.Program) error {
		if p.Returns && refuse.Load() {
			return errors.New("no memory")
		}
		return nil
	}
	return refuse
}

// TestTrialGoesBackWhenItCan: where the previous rules cannot be in force when the time is up, the
// trial continues, the status says why, and they come back once they can. What is saved meanwhile
// are the previous rules.
func TestTrialGoesBackWhenItCan(t *testing.T) {
	b, e := newManager(t)
	must(t, b, "add 10 deny tcp from any to any 81")
	before := savedText(t, b)
	refuse := noWayBack(b)
	ended := make(chan bool, 9)
	if err := b.EnforceClusterRules(version(t, b, "add 5 allow tcp from any to any 81\n"),
		time.Millisecond, func() { ended <- true }); err != nil {
		t.Fatal(err)
	}
	nstest.Eventually(t, "the status says that the trial cannot end", func() bool {
		p := b.config.Problems.All()
		return len(p) == 1 && strings.Contains(p[0].What, "no memory") && p[0].Advice != ""
	})
	if _, left, on := b.TrialLeft(); !on || left > lastPause || !passes(e, 81) {
		t.Errorf("the trial does not continue: %v, %v", left, on)
	}
	if _, err := b.do("add 1 count ip from any to any", false); !errors.As(err, new(errTrial)) {
		t.Errorf("a change: %v", err)
	}
	if err := b.saveAgain(); err != nil || savedText(t, b) != before {
		t.Errorf("%v; saved is\n%s", err, savedText(t, b))
	}
	if len(ended) > 0 {
		t.Error("the trial counts as ended")
	}
	refuse.Store(false)
	<-ended
	if _, _, on := b.TrialLeft(); on || passes(e, 81) {
		t.Error("the previous rules are not back")
	}
	if p := b.config.Problems.All(); len(p) > 0 || len(ended) > 0 {
		t.Errorf("problems %+v; ended again: %d", p, len(ended))
	}
	must(t, b, "add 20 allow tcp from any to any 81")
}

// TestCloseInATrialWithoutAWayBack: the rules on trial are not saved, also when the agent ends.
func TestCloseInATrialWithoutAWayBack(t *testing.T) {
	b, _ := newManager(t)
	must(t, b, "add 10 deny tcp from any to any 81", "table x add 192.0.2.1",
		"table x add 192.0.2.2")
	noWayBack(b)
	trial := Version{Set: ruleset(t, "add 5 allow tcp from any to any 81"), Source: "new"}
	if err := b.load(trial, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "no memory") {
		t.Errorf("close: %v", err)
	}
	if err := b.confirm(); !errors.Is(err, errClosed) {
		t.Errorf("confirmed after that: %v", err)
	}
	r, _, err := b.store.read()
	if err != nil || len(r.Set.Rules) != 1 || r.Set.Rules[0].Number != 10 {
		t.Errorf("saved is\n%s%v", savedText(t, b), err)
	}
}

// TestConfirmationThatFailsWritesNoFile: wherever it fails, the rule file is what it was, and the
// saved rules are based on it.
func TestConfirmationThatFailsWritesNoFile(t *testing.T) {
	const text = "add 5 allow tcp from any to any 81\n"
	for save, old := range map[string]string{api.SaveNew: "", api.SaveReplace: "# the owner's\n"} {
		b, _ := newManager(t)
		before := 0 // files
		file := filepath.Join(t.TempDir(), "rules")
		b.config.Default = file
		if old != "" {
			before = 1
			if err := os.WriteFile(file, []byte(old), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(what, content, base string, files int) {
			t.Helper()
			all, _ := filepath.Glob(file + "*")
			if now, _ := os.ReadFile(file); string(now) != content || len(all) != files {
				t.Errorf("%s, %s: the file is %q, of %v", save, what, now, all)
			}
			if now := b.store.version(); now != base {
				t.Errorf("%s, %s: the rules are based on %s", save, what, now)
			}
		}
		if _, err := b.Load(t.Context(), api.Load{Name: "new", Text: text, Confirm: "1h",
			Save: save}); err != nil {
			t.Fatal(err)
		}
		unblock := block(t, filepath.Dir(b.store.path))
		if _, err := b.Confirm(t.Context()); !errors.As(err, new(errTrial)) {
			t.Errorf("%s: nothing can be saved: %v", save, err)
		}
		expect("nothing can be saved", old, noFile, before)
		unblock()
		// They can be written, but do not take the place of what is there.
		if err := errors.Join(os.Rename(b.store.path, b.store.path+".aside"),
			os.Mkdir(b.store.path, 0o700)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Confirm(t.Context()); !errors.As(err, new(errTrial)) {
			t.Errorf("%s: a directory is in the way: %v", save, err)
		}
		expect("a directory is in the way", old, noFile, before)
		if err := errors.Join(os.Remove(b.store.path),
			os.Rename(b.store.path+".aside", b.store.path)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Confirm(t.Context()); err != nil {
			t.Errorf("%s: %v", save, err)
		}
		version := fileVersion([]byte(text))
		expect("confirmed", text, version, before+1)
		if !strings.Contains(savedText(t, b), version) {
			t.Errorf("%s: saved is\n%s", save, savedText(t, b))
		}
	}
}

// startOnTrial begins the next Manager, which puts the rule file on trial.
func startOnTrial(t *testing.T, b *Manager, h *manualClock) *Manager {
	t.Helper()
	b = nextManager(t, b)
	b.config.Clock, b.store.clock, b.config.Confirm = h.clock(), h.clock(), time.Hour
	first, err := b.Initial()
	if err == nil {
		err = b.Begin(first)
	}
	if _, _, on := b.TrialLeft(); err != nil || !on || first.Set.Rules[0].Number != 5 {
		t.Fatalf("the file is not on trial: %+v, %v", first, err)
	}
	return b
}

// revertFile reverts a trial of the rule file, of which the status shows the problem.
func revertFile(t *testing.T, b *Manager) {
	t.Helper()
	if _, err := b.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectUnconfirmed(t, b)
}

func expectUnconfirmed(t *testing.T, b *Manager) {
	t.Helper()
	if p := b.config.Problems.All(); len(p) != 1 ||
		!strings.Contains(p[0].What, b.config.Default+" was on trial and was not confirmed") ||
		!strings.Contains(p[0].Advice, "weir fw load --confirm 30s "+b.config.Default) {
		t.Errorf("problems %+v", p)
	}
}

// TestBaseOfAStartOnTrial: until the rule file of a start is confirmed, what is saved is based on
// what the rules before it are based on, and names what is not confirmed. That holds also where the
// time of members was noted, or rules were changed, since. A start after a revert may try the file
// again.
func TestBaseOfAStartOnTrial(t *testing.T) {
	b, _, h := newTimedManager(t)
	must(t, b, "table banned add 192.0.2.1 timeout 1h")
	const text = "table banned add 192.0.2.7 timeout 1h\nadd 5 allow ip from any to any\n"
	b.config.Default = filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(b.config.Default, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	version := fileVersion([]byte(text))
	saved := func(when, base string, rules int) {
		t.Helper()
		r, file, err := b.store.read()
		if err != nil || file != base || len(r.Set.Rules) != rules {
			t.Errorf("%s: %v; saved is\n%s", when, err, savedText(t, b))
		}
	}
	b = startOnTrial(t, b, h)
	saved("on trial", noFile+unconfirmed+version, 2)
	h.up += stampEvery
	b.expire()
	saved("the time was noted", noFile+unconfirmed+version, 2)
	revertFile(t, b)
	must(t, b, "add 30 count ip from any to any")
	saved("changed after a revert", noFile+unconfirmed+version, 3)
	b.config.Problems.Solved(aboutFile) // for the end of the test
	b = startOnTrial(t, b, h)
	if _, err := b.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	saved("confirmed", version, 1)
}

// TestUnconfirmedFile: a rule file that was on trial and not confirmed is not in force after a
// start without a trial, until an owner loads it. This holds also if the agent died in the trial.
func TestUnconfirmedFile(t *testing.T) {
	const text = "add 5 deny ip from any to any\n"
	for name, load := range map[string]func(*Manager) error{
		"reload": (*Manager).Reload,
		"load": func(b *Manager) error {
			_, err := b.Load(t.Context(), api.Load{Name: "-", Text: text})
			return err
		},
		"load and confirm": func(b *Manager) error {
			if _, err := b.Load(t.Context(), api.Load{Name: "-", Text: text,
				Confirm: "1h"}); err != nil {
				return err
			}
			_, err := b.Confirm(t.Context())
			return err
		},
	} {
		tried, _ := newManager(t)
		must(t, tried, "add 10 allow ip from any to any")
		h := newManualClock()
		tried.config.Default = filepath.Join(t.TempDir(), "rules")
		if err := os.WriteFile(tried.config.Default, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		tried = startOnTrial(t, tried, h)
		// The agent dies now.
		b, e := newManager(t)
		start := func(number uint16) {
			t.Helper()
			b.store.path, b.config.Default = tried.store.path, tried.config.Default
			first, err := b.Initial()
			if err == nil {
				err = b.Begin(first)
			}
			if err != nil || first.Set.Rules[0].Number != number ||
				passes(e, 80) != (number == 10) {
				t.Fatalf("%s: %+v, %v", name, first, err)
			}
		}
		start(10)
		expectUnconfirmed(t, b)
		if err := load(b); err != nil || passes(e, 80) || len(b.config.Problems.All()) > 0 {
			t.Errorf("%s: %v, problems %+v", name, err, b.config.Problems.All())
		}
		b, e = newManager(t)
		start(5)
		if _, err := tried.Revert(t.Context()); err != nil {
			t.Fatal(err)
		}
		tried.config.Problems.Solved(aboutFile)
	}
}

// expectStart checks which rules the next start after that of a Manager begins with.
func expectStart(t *testing.T, b *Manager, when string, want ...uint16) {
	t.Helper()
	next, _ := newManager(t)
	next.store.path, next.config.Default = b.store.path, b.config.Default
	first, err := next.Initial()
	var got []uint16
	if err == nil {
		for _, r := range first.Set.Rules {
			got = append(got, r.Number)
		}
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s, the next start has rules %v, want %v; %v", when, got, want, err)
	}
	next.config.Problems.Solved(aboutFile)
}

// TestLoadOfTheRuleFile: an edited rule file that `weir fw load` puts on trial is not in force
// after a start unless it was confirmed. Once it is loaded, changes are based on it, and a start
// does not lose them.
func TestLoadOfTheRuleFile(t *testing.T) {
	b, _ := newManager(t)
	must(t, b, "add 10 allow ip from any to any")
	b.config.Default = filepath.Join(t.TempDir(), "rules")
	load := func(text, confirm string) {
		t.Helper()
		err := os.WriteFile(b.config.Default, []byte(text), 0o600)
		if err == nil {
			_, err = b.Load(t.Context(), api.Load{Name: "rules", Text: text, Confirm: confirm})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	load("add 5 deny ip from any to any\n", "1h")
	expectStart(t, b, "the agent dies in the trial", 10)
	revertFile(t, b)
	expectStart(t, b, "the trial was reverted", 10)
	load("add 6 deny ip from any to any\n", "1h")
	if _, err := b.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, b, "add 20 count ip from any to any")
	expectStart(t, b, "changed after the trial", 6, 20)
	load("add 7 deny ip from any to any\n", "")
	must(t, b, "add 30 count ip from any to any")
	expectStart(t, b, "changed after the load", 7, 30)
	load("add 7 deny ip from any to any\n", "1h")
	if _, err := b.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectStart(t, b, "the file that was in force was on trial", 7, 30)
}

// TestTrialThatCannotBeRecorded: a rule file is not on trial while the disk does not say so: a
// start after a crash would take it.
func TestTrialThatCannotBeRecorded(t *testing.T) {
	b, _ := newManager(t)
	b.config.Default = filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(b.config.Default, []byte("add 5 deny ip from any to any\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	b = nextManager(t, b)
	b.config.Confirm = time.Hour
	first, err := b.Initial()
	if err != nil {
		t.Fatal(err)
	}
	before := savedText(t, b)
	unblock := block(t, filepath.Dir(b.store.path))
	if err := b.Begin(first); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("nothing can be saved: %v", err)
	}
	unblock()
	if now := savedText(t, b); now != before {
		t.Errorf("saved is\n%s", now)
	}
	if _, _, on := b.TrialLeft(); on {
		t.Error("there is a trial")
	}
}
