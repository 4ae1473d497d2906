package rules

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// refusingEngine is an engine that refuses one prefix as a member of tables.
type refusingEngine struct {
	*soft.Engine
	not netip.Prefix
}

func (e *refusingEngine) AddTable(name string, m rule.TableEntry) error {
	if m.Prefix == e.not {
		return errors.New("no memory")
	}
	return e.Engine.AddTable(name, m)
}

// TestRulebookAddsMembersAllOrNone: of the members of one command all are in force, or none, in the
// rules and in the engine.
func TestRulebookAddsMembersAllOrNone(t *testing.T) {
	b, e := newManager(t)
	must(t, b, "add 10 deny tcp from table(bad) to any", "table bad add 192.0.2.9 7")
	b.config.Engine = &refusingEngine{e, netip.MustParsePrefix("10.0.0.9/32")}
	for _, line := range []string{"table bad add 192.0.2.1 192.0.2.9 8 10.0.0.9",
		"table other add 192.0.2.1 10.0.0.9"} {
		if _, err := b.do(line, false); err == nil || !strings.Contains(err.Error(), "no memory") {
			t.Errorf("%s: %v", line, err)
		}
	}
	if !passes(e, 80) {
		t.Error("the engine has a member of a command that failed")
	}
	if _, there := b.rules.Set.Tables["other"]; there || len(b.rules.Set.Tables["bad"]) != 1 ||
		b.rules.Set.Tables["bad"][netip.MustParsePrefix("192.0.2.9/32")] != 7 {
		t.Errorf("the rules have %v", b.rules.Set.Tables)
	}
	must(t, b, "table bad add 192.0.2.1")
	if passes(e, 80) {
		t.Error("a member that was added afterwards is not in force")
	}
}

// newManager returns a Manager over a user-space engine that starts without rules.
func newManager(t *testing.T) (*Manager, *soft.Engine) {
	t.Helper()
	e, err := soft.New(soft.Options{Options: firewall.DefaultOptions()})
	if err != nil {
		t.Fatal(err)
	}
	b := &Manager{store: &savedRules{path: filepath.Join(t.TempDir(), "state", "rules.saved"),
		file: noFile}, config: Config{Engine: e, Unfollowed: func() error { return nil },
		Prepare: func(*program.Program) error { return nil }, Log: slog.New(slog.DiscardHandler),
		Problems: &problem.List{Log: slog.New(slog.DiscardHandler)}}}
	unsaved, err := b.begin(Version{Set: new(rule.Ruleset), Source: "none"})
	if err != nil || unsaved != nil {
		t.Fatal(err, unsaved)
	}
	t.Cleanup(func() {
		if p := b.config.Problems.All(); len(p) > 0 {
			t.Errorf("problems: %+v", p)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, e
}

// passes says what the engine makes of a SYN from 192.0.2.1 to a port.
func passes(e *soft.Engine, port uint16) bool {
	from := netip.MustParseAddrPort("192.0.2.1:4000")
	return e.Check(&firewall.Input{}, packet.ProtoTCP, from,
		netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), port)).Verdict.Pass
}

func must(t *testing.T, b *Manager, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if _, err := b.do(l, false); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
	}
}

func savedText(t *testing.T, b *Manager) string {
	t.Helper()
	text, err := os.ReadFile(b.store.path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRulebookReturnsTheAddedRule(t *testing.T) {
	b, _ := newManager(t)
	for _, c := range []struct{ line, message string }{
		{"add allow tcp from any to any 80", "00100 allow tcp from any to any 80"},
		{"add 50 deny tcp from any to any 81", "00050 deny tcp from any to any 81"},
		{"add 50 count ip from any to any", "00050 count ip from any to any"},
		{"add count tcp from any to any", "00200 count tcp from any to any"},
		{"add 65534 count tcp from any to any", "65534 count tcp from any to any"},
		{"add count udp from any to any", "65534 count udp from any to any"},
		{"delete 50", ""},
		{"add 60 allow tcp from any to me keep-state",
			"00060 allow tcp from any to me keep-state :default"},
		{"table x add 10.0.0.1", "added: 10.0.0.1/32 0"},
		{"table x add 10.0.0.1 7 10.1.0.0/16",
			"updated: 10.0.0.1/32 7\nadded: 10.1.0.0/16 0"},
		{"table x delete 10.0.0.1", "deleted: 10.0.0.1/32 7"},
		{"zero", "Accounting cleared."},
		{"zero 100", "Entry 100 cleared."},
		{"ipfw -q zero 100 65535", "Entry 100 cleared.\nEntry 65535 cleared."},
		{"flush", "Flushed all rules."},
	} {
		message, err := b.do(c.line, false)
		if err != nil || message != c.message {
			t.Errorf("%s: %q, %v", c.line, message, err)
		}
	}
}

// TestRulebookRunsAFile: the commands of a file change the rules in force, all or none, and a file
// that flushes them and adds others is a whole rule set.
func TestRulebookRunsAFile(t *testing.T) {
	b, e := newManager(t)
	must(t, b, "add 10 deny tcp from any to any 81", "add 31 set 31 count ip from any to any",
		"table kept add 192.0.2.1")
	message, err := b.doAll("/f", "table kept flush\ntable gone flush\ndelete 7\n"+
		"add 20 deny tcp from any to any 80\nzero 20\nlist\n"+
		"add 21 count ip from any to any\nzero 21\ndelete 21\n")
	if err != nil || message != "00020 deny tcp from any to any 80\n"+
		"00021 count ip from any to any\nEntry 20 cleared.\nEntry 21 cleared." {
		t.Errorf("%q, %v", message, err)
	}
	if passes(e, 80) || passes(e, 81) || !passes(e, 82) || len(b.rules.Set.Tables["kept"]) != 0 {
		t.Error("the rules are not those before and that of the file")
	}
	for _, text := range []string{"flush\nadd allow tpc from any to any",
		"flush\ntable kept create\n", "delete 10\nzero 10\n"} {
		if _, err := b.doAll("/f", text); err == nil || !strings.Contains(err.Error(), "/f:2:") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if passes(e, 81) {
		t.Error("a file with a mistake has changed the rules")
	}
	if _, err := b.doAll("/f", "-f flush\n"); err != nil || !passes(e, 81) {
		t.Errorf("a file that only flushes: %v", err)
	}
	_, err = b.doAll("/f", "-f flush\nadd 5 allow tcp from any to any 82\n")
	if err != nil || passes(e, 81) || !passes(e, 82) || len(b.rules.Set.Rules) != 2 {
		t.Errorf("a whole rule set: %v, %v", err, b.rules.Set.Rules)
	}
}

// TestLinesSeeThoseBefore: a rule that a line has removed with its set is gone for the lines behind
// it. It is gone for a table that it asked about, a counter, and the next number.
func TestLinesSeeThoseBefore(t *testing.T) {
	b, _ := newManager(t)
	must(t, b, "table x add 192.0.2.1", "add 40 set 5 count ip from table(x) to any")
	if _, err := b.doAll("/f", "table x destroy\n"); err == nil {
		t.Error("a table in use was destroyed")
	}
	if _, err := b.doAll("/f", "set 5 flush\nzero 40\n"); err == nil ||
		!strings.Contains(err.Error(), "/f:2:") {
		t.Errorf("the counter of no rule: %v", err)
	}
	message, err := b.doAll("/f", "add 7 count ip from any to any\nset swap 5 6\n"+
		"delete set 6\ntable x destroy\nadd count udp from any to any\n")
	if want := "00007 count ip from any to any\n00107 count udp from any to any"; err != nil ||
		message != want {
		t.Errorf("%q, %v", message, err)
	}
}

// TestRulebookIsLenient: if that is wanted, what is to be removed and is not there is no error.
func TestRulebookIsLenient(t *testing.T) {
	b, _ := newManager(t)
	must(t, b, "table a add 10.0.0.1")
	for _, line := range []string{"table a delete 10.0.0.2 10.0.0.1", "table none flush",
		"table none delete 10.0.0.1"} {
		if _, err := b.do(line, false); err == nil {
			t.Errorf("%s: no error", line)
		}
		if _, err := b.do(line, true); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if n := len(b.rules.Set.Tables["a"]); n != 0 {
		t.Errorf("the table has %d members", n)
	}
}

// TestRulebookChangesNothingOnError: whatever fails, engine, rules and file stay as they were.
func TestRulebookChangesNothingOnError(t *testing.T) {
	b, e := newManager(t)
	must(t, b, "add 10 deny tcp from table(bad) to any", "table bad add 192.0.2.1")
	before := savedText(t, b)
	unchanged := func(what string) {
		t.Helper()
		if passes(e, 80) {
			t.Errorf("%s: the engine has other verdicts", what)
		}
		want := string(b.store.format(Version{Set: b.rules.Set, Source: "none"}))
		now := string(b.store.format(b.rules))
		if now != want || !strings.Contains(now, "table(bad)") {
			t.Errorf("%s: the rules are\n%s", what, now)
		}
		if now := savedText(t, b); now != before {
			t.Errorf("%s: the file is\n%s", what, now)
		}
	}
	must(t, b, "table bad flush", "table bad add 192.0.2.1")
	before = savedText(t, b)
	for _, line := range []string{"add 20 allwo ip from any to any", "delete 77",
		"table bad destroy", "table bad delete 10.0.0.9",
		"table bad delete 192.0.2.1 10.0.0.9", "zero 77", "", "show"} {
		if _, err := b.do(line, false); err == nil {
			t.Errorf("%q is not an error", line)
		}
		unchanged(line)
	}
	// The file cannot be written: the change is taken back. A file where the directory should be,
	// since root may write anywhere.
	dir := filepath.Dir(b.store.path)
	if err := os.Rename(dir, dir+".aside"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.do("delete 10", false); err == nil ||
		!strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a change that cannot be saved: %v", err)
	}
	if err := b.load(Version{Set: ruleset(t,
		"table bad add 10.0.0.1\nadd 5 allow ip from any to any"), Strict: true, Source: "x"},
		0, nil); err == nil {
		t.Error("a load that cannot be saved is not an error")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".aside", dir); err != nil {
		t.Fatal(err)
	}
	unchanged("a file that cannot be written")
	// The preparation of the engine fails.
	b.config.Prepare = func(*program.Program) error { return errors.New("no routes") }
	if _, err := b.do("delete 10", false); err == nil {
		t.Error("a change whose preparation fails is not an error")
	}
	b.config.Prepare = func(*program.Program) error { return nil }
	unchanged("a preparation that fails")
}

// TestRulesReturn: what comes back after a trial, a panic or an error says so.
func TestRulesReturn(t *testing.T) {
	b, _ := newManager(t)
	var got []bool
	b.config.Prepare = func(p *program.Program) error { got = append(got, p.Returns); return nil }
	trial := Version{Set: ruleset(t, "add 5 allow ip from any to any\n"), Source: "new"}
	if err := b.load(trial, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.goBack(); err != nil {
		t.Fatal(err)
	}
	if err := b.Panic(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := b.EndPanic(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []bool{false, true, false, true}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	b.program = nil // as at a start
	if err := b.enforceLocked(trial); err != nil || !got[4] {
		t.Errorf("the first: %v, %v", got, err)
	}
}

func TestRulebookTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e := newManager(t)
		must(t, b, "add 10 deny tcp from any to any 81", "table x add 192.0.2.0/24")
		before := savedText(t, b)
		trial := Version{Set: ruleset(t,
			"table x add 10.0.0.1\nadd 5 allow tcp from any to any 81\n"), Strict: true,
			Source: "new"}
		if err := b.load(trial, 3*time.Second, nil); err != nil {
			t.Fatal(err)
		}
		if !passes(e, 81) || passes(e, 80) {
			t.Error("the rules on trial are not in force")
		}
		var busy errTrial
		for _, err := range []error{second(b.do("add 1 count ip from any to any", false)),
			second(b.do("table x add 10.0.0.2", false)), b.load(trial, 0, nil)} {
			if !errors.As(err, &busy) || busy.Hint() == "" {
				t.Errorf("a change during the trial: %v", err)
			}
		}
		if name, left, on := b.TrialLeft(); name != "new" || left <= 0 || !on {
			t.Errorf("trial %q, %v, %v", name, left, on)
		}
		if now := savedText(t, b); now != before {
			t.Errorf("rules on trial were saved:\n%s", now)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if passes(e, 81) || !passes(e, 80) {
			t.Error("the previous rules did not come back")
		}
		if err := b.confirm(); !errors.Is(err, errNoTrial) {
			t.Errorf("confirm afterwards: %v", err)
		}
		if members := b.rules.Set.Tables["x"]; len(members) != 1 {
			t.Errorf("the table before did not come back: %v", members)
		}

		if err := b.load(trial, time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		if err := b.confirm(); err != nil {
			t.Fatal(err)
		}
		if !passes(e, 81) || !strings.Contains(savedText(t, b), "add 5 ") {
			t.Error("confirmed rules are not in force and saved")
		}

		// The agent stops in the middle of a trial.
		if err := b.load(Version{Set: ruleset(t, "add 6 deny ip from any to any"), Strict: true},
			time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if !passes(e, 81) {
			t.Error("stopping did not bring the previous rules back")
		}
	})
}

func second(_ string, err error) error { return err }

// TestRulebookSerializesChanges: many at once are all made, one after the other, and the file has
// all of them.
func TestRulebookSerializesChanges(t *testing.T) {
	b, _ := newManager(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				if _, err := b.do("add count ip from any to any", false); err != nil {
					t.Error(err)
				}
				if _, err := b.do("table x add 10.0.0.1", false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := len(b.rules.Set.Rules); n != 80 {
		t.Errorf("%d rules", n)
	}
	if n := strings.Count(savedText(t, b), "\nadd "); n != 80 {
		t.Errorf("%d rules saved", n)
	}
}

// late is an engine that fails when the rules are in force.
type late struct {
	*soft.Engine
	fails int
}

func (e *late) Replace(p *program.Program, tables map[string][]rule.TableEntry) error {
	err := e.Engine.Replace(p, tables)
	if e.fails--; err == nil && e.fails == 0 {
		return errors.New("states of old rules may be there")
	}
	return err
}

// TestRulebookTakesRulesAndTablesBack: when an engine fails although the rules are in force, rules
// and tables before are back, in the engine and in the book.
func TestRulebookTakesRulesAndTablesBack(t *testing.T) {
	b, e := newManager(t)
	must(t, b, "add 10 deny tcp from table(bad) to any 80", "table bad add 192.0.2.1")
	b.config.Engine = &late{e, 1}
	if _, err := b.do("table bad flush", false); err == nil || passes(e, 80) {
		t.Errorf("%v; passes: %v", err, passes(e, 80))
	}
	if n := len(b.rules.Set.Tables["bad"]); n != 1 {
		t.Errorf("the book has %d members", n)
	}
	if _, err := b.do("table bad flush", false); err != nil || !passes(e, 80) {
		t.Errorf("%v; passes: %v", err, passes(e, 80))
	}
}
