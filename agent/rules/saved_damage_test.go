package rules

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/atomicfile/powercut"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// savedSample is a file of saved rules as a running node has it: a whole part, and a change of a
// table behind it.
func savedSample(t *testing.T, of string) (whole, text []byte) {
	t.Helper()
	s := &savedRules{path: filepath.Join(t.TempDir(), "rules.saved"), file: of}
	r := Version{Strict: true, Source: "x",
		Set: ruleset(t,
			"table a add 10.0.0.0/8 7\nadd 10 allow tcp from table(a) to me 22\n"+
				"add 20 deny ip from any to any")}
	if err := s.save(r); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rule.ParseLine("table a add 192.0.2.1 192.0.2.9 8", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.append(c, 0); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	return whole, text
}

// TestDamagedSavedRules: saved rules that are cut anywhere, empty, or changed are reported, never
// overwritten, and never enforced in part. The rule file stands in for them; without one the node
// does not begin with none.
func TestDamagedSavedRules(t *testing.T) {
	const file = "add 5 deny tcp from any to any 81"
	whole, text := savedSample(t, fileVersion([]byte(file)))
	damages := map[string][]byte{"empty": {}, "garbage": []byte("\x00\x01\xffgarbage\n"),
		"zeros": make([]byte, len(text)),
		"newer": bytes.Replace(text, []byte("rules 2:"), []byte("rules 3:"), 1)}
	for i := range 8 {
		damages[fmt.Sprintf("cut after %d/8", i)] = text[:len(text)*i/8]
	}
	for at, b := range whole[:len(whole)-1] {
		if b == '\n' {
			damages[fmt.Sprintf("cut at the line's end %d", at)] = text[:at+1]
		}
	}
	damages["a rule is gone"] = bytes.Replace(text, []byte("add 20 deny ip from any to any\n"),
		nil, 1)
	damages["a port is another"] = bytes.Replace(text, []byte("me 22"), []byte("me 23"), 1)
	damages["a member is another"] = bytes.Replace(text, []byte("192.0.2.9"),
		[]byte("192.0.3.9"), 1)
	damages["a line follows"] = append(bytes.Clone(text),
		"table a add 0.0.0.0/0 0 # 0123456789abcdef\ntable a add 0.0.0.0/0 0\n"...)
	for name, damaged := range damages {
		// only the change behind the end is damaged
		torn := bytes.HasPrefix(damaged, whole) && name != "a line follows"
		dir := t.TempDir()
		s, rules := &savedRules{path: filepath.Join(dir, "rules.saved")},
			filepath.Join(dir, "rules")
		if err := os.WriteFile(s.path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.first(rules, false); !torn &&
			(!errors.As(err, &errUnusable{}) || !strings.Contains(err.Error(), "rules.saved")) {
			t.Errorf("%s, no rule file: %v", name, err)
		}
		if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, damaged) {
			t.Errorf("%s, no rule file: the file is %q, %v", name, now, err)
		}
		if err := os.WriteFile(rules, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := s.first(rules, false)
		if err != nil || got.damage == nil || got.damage.Advice == "" {
			t.Errorf("%s: %+v, %v", name, got.damage, err)
			continue
		}
		if want := map[bool]uint16{false: 5, true: 10}[torn]; got.Set.Rules[0].Number != want ||
			!got.Strict {
			t.Errorf("%s: in force is %v", name, got.Set.Rules[0])
		}
		if err := s.save(got.Version); err != nil {
			t.Fatal(err)
		}
		word := map[bool]string{false: "damaged", true: "newer"}[name == "newer"]
		aside, _ := filepath.Glob(s.path + "." + word + "-*")
		if len(aside) != 1 {
			t.Errorf("%s: set aside %v", name, aside)
		} else if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, damaged) {
			t.Errorf("%s: kept is %q, %v", name, kept, err)
		}
		shown := problem.List{Log: slog.New(slog.DiscardHandler)}
		shown.Put(*got.damage)
		if len(shown.All()) != 1 {
			t.Errorf("%s: shown are %v", name, shown.All())
		}
		if err := os.Remove(aside[0]); err != nil {
			t.Fatal(err)
		}
		if left := shown.All(); len(left) != 0 && !torn {
			t.Errorf("%s: the file that was set aside is gone, and shown is still %v", name, left)
		}
		if again, err := s.first(rules, false); err != nil || again.damage != nil {
			t.Errorf("%s, the next start: %+v, %v", name, again.damage, err)
		}
	}
}

// TestSavedRulesOfTheFirstVersion: what an agent before wrote, without an end line, is read.
func TestSavedRulesOfTheFirstVersion(t *testing.T) {
	s := &savedRules{path: filepath.Join(t.TempDir(), "rules.saved")}
	old := "# weir saved rules: default deny, rule file none, from \"x\"\n" +
		"add 7 allow ip from any to any\n"
	if err := os.WriteFile(s.path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := s.first(filepath.Join(t.TempDir(), "none"), false)
	if err != nil || r.damage != nil || len(r.Set.Rules) != 1 || !r.Strict || r.Source != "x" {
		t.Errorf("%+v, %v", r, err)
	}
}

// loads counts the calls of an engine.
type loads struct {
	firewall.Engine
	n int
}

func (e *loads) Replace(p *program.Program, tables map[string][]rule.TableEntry) error {
	e.n++
	return e.Engine.Replace(p, tables)
}

func (e *loads) SetTable(name string, all []rule.TableEntry) error {
	e.n++
	return e.Engine.SetTable(name, all)
}

func (e *loads) AddTable(name string, m rule.TableEntry) error {
	e.n++
	return e.Engine.AddTable(name, m)
}

// block makes a directory unwritable for root too: a file stands in its place. The function it
// returns undoes that.
func block(t *testing.T, dir string) func() {
	t.Helper()
	if err := errors.Join(os.Rename(dir, dir+".aside"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(os.Remove(dir), os.Rename(dir+".aside", dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChangeThatCannotBeSavedIsNeverInForce: not for a moment, which would cut connections.
func TestChangeThatCannotBeSavedIsNeverInForce(t *testing.T) {
	b, e := newManager(t)
	must(t, b, "add 10 deny tcp from table(bad) to any", "table bad add 192.0.2.7")
	calls := &loads{Engine: e}
	b.config.Engine = calls
	unblock := block(t, filepath.Dir(b.store.path))
	for _, line := range []string{"delete 10", "add 5 allow ip from any to any", "set disable 0",
		"-f flush", "table bad add 192.0.2.1", "table bad flush"} {
		if _, err := b.do(line, false); err == nil ||
			!strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%s: %v", line, err)
		}
	}
	if err := b.loadFile(Version{Set: ruleset(t, "add 5 allow ip from any to any"), Strict: true},
		0, "v"); err == nil || b.store.version() != noFile {
		t.Errorf("load: %v, the rules descend from %s", err, b.store.version())
	}
	if calls.n != 0 {
		t.Errorf("the engine was called %d times", calls.n)
	}
	unblock()
	must(t, b, "table bad add 192.0.2.1")
	if passes(e, 80) {
		t.Error("afterwards nothing can be changed")
	}
	if r, _, err := b.store.read(); err != nil || len(r.Set.Tables["bad"]) != 2 {
		t.Errorf("saved are %v, %v", r.Set, err)
	}
}

// TestTrialThatCannotBeSavedContinues: a confirmation that fails leaves the trial as it is.
func TestTrialThatCannotBeSavedContinues(t *testing.T) {
	b, e := newManager(t)
	must(t, b, "add 10 deny tcp from any to any 81")
	if err := b.load(Version{Set: ruleset(t, "add 5 allow tcp from any to any 81"), Strict: true,
		Source: "new"}, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	unblock := block(t, filepath.Dir(b.store.path))
	err := b.confirm()
	var hint interface{ Hint() string }
	if !errors.As(err, &errTrial{}) || !errors.As(err, &hint) ||
		strings.HasPrefix(hint.Hint(), "keep it: weir fw confirm") {
		t.Errorf("confirm: %v, %v", err, hint)
	}
	if _, _, on := b.TrialLeft(); !on || !passes(e, 81) {
		t.Error("the trial ended")
	}
	unblock()
	if err := b.confirm(); err != nil {
		t.Error(err)
	}
}

// TestAdviceOnRulesThatCannotBeSaved: it is to be followed before the rules are confirmed again.
func TestAdviceOnRulesThatCannotBeSaved(t *testing.T) {
	for cause, want := range map[error]string{unix.ENOSPC: "free space", unix.EDQUOT: "free space",
		unix.EROFS: "make that file system writable", unix.EIO: "remove the cause"} {
		err := fmt.Errorf("%w", errUnsaved{errTrial{}, &os.PathError{Err: cause}})
		var hint interface{ Hint() string }
		if !errors.As(err, &hint) || !strings.HasPrefix(hint.Hint(), want) ||
			!strings.Contains(hint.Hint(), ", then: weir fw confirm") {
			t.Errorf("%v: %v", cause, hint)
		}
	}
}

// TestStartThatCannotSave: the first rules are in force whether or not they can be saved, and are
// saved when they can.
func TestStartThatCannotSave(t *testing.T) {
	b, e := newManager(t)
	must(t, b, "add 10 deny tcp from any to any 81")
	unblock := block(t, filepath.Dir(b.store.path))
	unsaved, err := b.begin(Version{Set: ruleset(t, "add 10 deny tcp from any to any 82"),
		Source: "x"})
	if err != nil || unsaved == nil {
		t.Errorf("%v, unsaved %v", err, unsaved)
	}
	if passes(e, 82) || !passes(e, 81) {
		t.Error("the rules are not in force")
	}
	if b.saveAgain() == nil {
		t.Error("saved where nothing can be")
	}
	unblock()
	if err := b.saveAgain(); err != nil || !strings.Contains(savedText(t, b), "any to any 82") {
		t.Errorf("saved again: %v\n%s", err, savedText(t, b))
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(b.store.path); err != nil {
		t.Fatal(err)
	}
	if err := b.saveAgain(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.store.path); err == nil {
		t.Error("saved after the end")
	}
}

// TestAnsweredChangesSurviveAPowerCut: what was answered is there after a power cut at that moment,
// trials and members of tables too.
func TestAnsweredChangesSurviveAPowerCut(t *testing.T) {
	d := powercut.New(t)
	b, _ := newManager(t)
	b.store.path = filepath.Join(d.Dir, "state", "rules.saved")
	b.store.tail = nil
	check := func(when string) {
		t.Helper()
		s := &savedRules{path: filepath.Join(d.Cut(t), "state", "rules.saved")}
		r, err := s.first(filepath.Join(d.Dir, "none"), false)
		if err != nil || r.damage != nil {
			t.Errorf("%s: %v %v", when, err, r.damage)
			return
		}
		want := string(b.store.format(b.rules))
		s.file = b.store.file
		if got := string(s.format(r.Version)); got != want {
			t.Errorf("%s: after a power cut\n%swant\n%s", when, got, want)
		}
	}
	for _, line := range []string{"add 10 deny tcp from table(bad) to any",
		"table bad add 192.0.2.1 192.0.2.2 7", "table bad add 192.0.2.3",
		"table bad delete 192.0.2.1", "add 20 count ip from any to any", "table bad add 10.0.0.0/8",
		"table new add fd00::/64 3", "set disable 0", "table bad flush"} {
		must(t, b, line)
		check(line)
	}
	if err := b.load(Version{Set: ruleset(t,
		"table new add 10.1.0.0/16\nadd 5 allow tcp from table(new) to any"), Strict: true,
		Source: "new"}, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.confirm(); err != nil {
		t.Fatal(err)
	}
	check("confirm")
	must(t, b, "table new delete 10.1.0.0/16")
	check("a member after the trial")
	if left, _ := filepath.Glob(filepath.Join(d.Dir, "state", ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestManyMembersDoNotRewriteTheFile: the changes stand behind the rules until they are as long
// as these.
func TestManyMembersDoNotRewriteTheFile(t *testing.T) {
	b, _ := newManager(t)
	var members []string
	for i := range 20000 {
		members = append(members, fmt.Sprintf("10.1.%d.%d", i>>8, i&255))
	}
	must(t, b, "table big add "+strings.Join(members, " "))
	b.store.tail = nil
	must(t, b, "add 10 count ip from table(big) to any")
	before, err := os.Stat(b.store.path)
	if err != nil {
		t.Fatal(err)
	}
	rewritten := 0
	for i := range 300 {
		must(t, b, fmt.Sprintf("table big add 10.2.%d.0/24 %s", i%256,
			strings.Join(members[i*10:i*10+10], " ")))
		after, err := os.Stat(b.store.path)
		if err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(before, after) {
			rewritten++
		}
		before = after
	}
	if rewritten > 0 {
		t.Errorf("the file was rewritten %d times for 300 changes", rewritten)
	}
	r, _, err := b.store.read()
	if err != nil || !bytes.Equal(b.store.format(r), b.store.format(b.rules)) {
		t.Errorf("what is read differs: %v", err)
	}
}

// TestCloseWritesTheTailIntoTheWhole: after a clean end the file has no tail. What the file holds
// that is not this Manager's is left alone.
func TestCloseWritesTheTailIntoTheWhole(t *testing.T) {
	b, _ := newManager(t)
	must(t, b, "table x add 10.0.0.1")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if text := savedText(t, b); strings.Contains(text, tailMark+"\n") ||
		!strings.HasSuffix(text, "\n") ||
		strings.Count(text, savedEnd) != 1 ||
		strings.Index(text, savedEnd) < strings.Index(text, "10.0.0.1") {
		t.Errorf("the file is\n%s", text)
	}
	const other = "another program's"
	other2, _ := newManager(t)
	other2.store.tail = nil // as when the file could not be read
	if err := os.WriteFile(other2.store.path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := other2.Close(); err != nil || savedText(t, other2) != other {
		t.Errorf("the file is now %q, %v", savedText(t, other2), err)
	}
}
