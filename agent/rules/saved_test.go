package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

func ruleset(t *testing.T, text string) *rule.Ruleset {
	t.Helper()
	set, err := rule.ParseFile("test", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestSavedRulesComeBack(t *testing.T) {
	s := &savedRules{path: filepath.Join(t.TempDir(), "deep", "rules.saved"), file: "0123"}
	r := Version{Strict: true, Source: "/etc/\"odd\"\nname", Set: ruleset(t, `
table web add 10.0.0.0/8 7 fd00::/64
table empty create
add 100 set 3 allow tcp from table(web,7) to me 80 setup keep-state :web // the "site"
add 100 deny udp from any to any
pipe 7 config bw 1Mbit/s queue 20KBytes burst 5 mask src-ip 0xff proto 6
pipe 9 config
add 200 pipe 7 udp from any to any
nat 3 config if em0 deny_in redirect_port tcp 10.0.0.5:80-81 80-81
add 300 nat 3 ip from any to any via em0
set disable 3
`)}
	if err := s.save(r); err != nil {
		t.Fatal(err)
	}
	got, file, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	if file != "0123" || got.Strict != r.Strict || got.Source != r.Source {
		t.Errorf("got file %q strict %v source %q", file, got.Strict, got.Source)
	}
	if len(got.Set.Pipes) != 2 || *got.Set.Pipes[7] != *r.Set.Pipes[7] {
		t.Errorf("pipes %v", got.Set.Pipes)
	}
	if len(got.Set.NATs) != 1 || !reflect.DeepEqual(got.Set.NATs[3], r.Set.NATs[3]) {
		t.Errorf("nat %v", got.Set.NATs)
	}
	if a, b := string(s.format(got)), string(s.format(r)); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
	r.Strict, r.Set.ManyPass = false, true
	if err := s.save(r); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.read(); err != nil || got.Strict || !got.Set.ManyPass {
		t.Errorf("strict %v, set %+v, %v", got.Strict, got.Set, err)
	}
	left, err := os.ReadDir(filepath.Dir(s.path))
	if err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

func TestSavedRulesThatAreNone(t *testing.T) {
	s := &savedRules{path: filepath.Join(t.TempDir(), "rules.saved")}
	for _, text := range []string{"", "add allow ip from any to any\n", savedIntro +
		"default deny\n", savedIntro + "default deny, rule file x, from here\n"} {
		if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.read(); err == nil || !strings.Contains(err.Error(), "first line") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Rule files, each with one rule.
const (
	ownerRules  = "add 1 allow ip from any to any"
	editedRules = "add 2 allow ip from any to any"
	brokenRules = "add 3 allwo ip from any to any"
)

// triedRules is the base of saved rules after a trial of editedRules.
var triedRules = fileVersion([]byte(ownerRules)) + unconfirmed + fileVersion([]byte(editedRules))

// firstRules is the table of docs/up.md.
var firstRules = []struct {
	name string
	file string // content of the rule file, "" for none
	// version of the rule file that the saved rules descend from, "" for no saved rules
	saved        string
	number       uint16 // of the only rule that is in force then, 0 for none
	strict       bool
	aside        bool
	problem, err bool
	unconfirmed  bool
}{
	{name: "nothing"},
	{name: "file alone", file: ownerRules, number: 1, strict: true},
	{name: "saved alone", saved: noFile, number: 9},
	{name: "unchanged file", file: ownerRules, saved: fileVersion([]byte(ownerRules)),
		number: 9},
	{name: "edited file", file: editedRules, saved: fileVersion([]byte(ownerRules)), number: 2,
		strict: true, aside: true},
	{name: "file is new", file: ownerRules, saved: noFile, number: 1, strict: true, aside: true},
	{name: "file removed", saved: fileVersion([]byte(ownerRules)), number: 9},
	{name: "broken file, saved", file: brokenRules, saved: fileVersion([]byte(ownerRules)),
		number: 9, problem: true},
	{name: "broken file alone", file: brokenRules, err: true},
	{name: "unconfirmed file", file: editedRules, saved: triedRules, number: 9, unconfirmed: true},
	{name: "unconfirmed and edited", file: editedRules + " ", saved: triedRules, number: 2,
		strict: true, aside: true},
	{name: "unconfirmed and undone", file: ownerRules, saved: triedRules, number: 9},
	{name: "unconfirmed and removed", saved: triedRules, number: 9},
}

// TestFirstRules: a start begins with the rules that docs/up.md says.
func TestFirstRules(t *testing.T) {
	const changed = "add 9 count ip from any to any"
	for _, c := range firstRules {
		dir := t.TempDir()
		rules := filepath.Join(dir, "rules")
		s := &savedRules{path: filepath.Join(dir, "rules.saved")}
		if c.file != "" {
			if err := os.WriteFile(rules, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if c.saved != "" {
			s.file = c.saved
			if err := s.save(Version{Set: ruleset(t, changed), Source: "saved"}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.first(rules, false)
		if (err != nil) != c.err {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if c.err {
			continue
		}
		var number uint16
		if len(got.Set.Rules) > 0 {
			number = got.Set.Rules[0].Number
		}
		if number != c.number || got.Strict != c.strict || got.aside != c.aside ||
			(got.problem != nil) != c.problem || got.unconfirmed != c.unconfirmed {
			t.Errorf("%s: rule %d, strict %v, aside %v, problem %v", c.name, number, got.Strict,
				got.aside, got.problem)
		}
		if _, err := os.Stat(s.path + ".old"); (err == nil) != c.aside {
			t.Errorf("%s: set aside: %v", c.name, err)
		}
		if c.saved == "" || !got.aside {
			continue
		}
		// What is saved from now on descends from the file as it is.
		if err := s.save(got.Version); err != nil {
			t.Fatal(err)
		}
		if again, err := s.first(rules, false); err != nil || again.aside || again.problem != nil {
			t.Errorf("%s, again: %+v, %v", c.name, again, err)
		}
	}
}

func TestFirstRulesThatMustExist(t *testing.T) {
	dir := t.TempDir()
	s := &savedRules{path: filepath.Join(dir, "rules.saved")}
	if _, err := s.first(filepath.Join(dir, "missing"), true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestUnreadableRuleFile: a rule file that is there and cannot be read keeps no node from starting.
// It starts with the rules of the last change, which are saved and based on the file as before.
func TestUnreadableRuleFile(t *testing.T) {
	for _, needed := range []bool{false, true} {
		dir := t.TempDir()
		rules := filepath.Join(dir, "rules")
		if err := os.Mkdir(rules, 0o700); err != nil { // reading it fails, for root, too
			t.Fatal(err)
		}
		s := &savedRules{path: filepath.Join(dir, "rules.saved")}
		if _, err := s.first(rules, needed); err == nil {
			t.Fatal("there are no rules, and no error")
		}
		const text = "add 1 allow ip from any to any"
		s.file = fileVersion([]byte(text))
		if err := s.save(Version{Set: ruleset(t, "add 9 count ip from any to any"), Strict: true,
			Source: "saved"}); err != nil {
			t.Fatal(err)
		}
		got, err := s.first(rules, needed)
		if err != nil || len(got.Set.Rules) != 1 || got.Set.Rules[0].Number != 9 || !got.Denied ||
			!errors.Is(got.problem, unix.EISDIR) || got.aside || got.before != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		// Once it can be read again, unchanged, the changes since are in force.
		if err := errors.Join(os.Remove(rules), os.WriteFile(rules, []byte(text), 0o600),
			s.save(got.Version)); err != nil {
			t.Fatal(err)
		}
		if got, err = s.first(rules, needed); err != nil || got.problem != nil || got.aside ||
			got.Set.Rules[0].Number != 9 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

// TestRulesThatDoNotCompileAreNotSaved: they are written beside the file while they are compiled,
// and nothing of them is left.
func TestRulesThatDoNotCompileAreNotSaved(t *testing.T) {
	b, _ := newManager(t)
	must(t, b, "add 10 deny tcp from any to any 81")
	before := savedText(t, b)
	var text strings.Builder
	for i := range program.MaxFlows + 1 {
		fmt.Fprintf(&text, "add %d allow ip from any to any keep-state :f%d\n", 20+i, i)
	}
	if _, err := b.doAll("/f", text.String()); err == nil ||
		!strings.Contains(err.Error(), "flow names") {
		t.Errorf("%v", err)
	}
	if now := savedText(t, b); now != before {
		t.Errorf("the file is\n%s", now)
	}
	all, err := os.ReadDir(filepath.Dir(b.store.path))
	if err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestHadRules: what a start without rules saves does not count as rules; all others do, also those
// that cannot be read or were set aside.
func TestHadRules(t *testing.T) {
	b, _ := newManager(t)
	expect := func(when string, want bool) {
		t.Helper()
		if got := HadRules(b.store.path); got != want {
			t.Errorf("%s: %t, want %t", when, got, want)
		}
	}
	expect("a start without rules", false)
	must(t, b, "add 5 count ip from any to any")
	expect("a rule", true)
	for _, c := range []struct{ name, file string }{{"damaged", b.store.path},
		{"set aside", b.store.path + ".old"}} {
		if err := os.Remove(b.store.path); err != nil {
			t.Fatal(err)
		}
		expect(c.name+", before", false)
		if err := os.WriteFile(c.file, []byte("?"), 0o600); err != nil {
			t.Fatal(err)
		}
		expect(c.name, true)
	}
}

// TestBaseFollowsTheChange: a new version of the rule file that waits for another change is not yet
// the base of what that saves.
func TestBaseFollowsTheChange(t *testing.T) {
	b, _ := newManager(t)
	done := make(chan error, 1)
	b.mu.Lock()
	go func() {
		done <- b.loadFile(Version{Set: ruleset(t, "add 5 deny ip from any to any\n")}, 0, "next")
	}()
	time.Sleep(100 * time.Millisecond)
	if base := b.store.version(); base != noFile {
		t.Errorf("the base is %s while another change is made", base)
	}
	b.mu.Unlock()
	if err := <-done; err != nil || b.store.version() != "next" {
		t.Errorf("%v; the base is %s", err, b.store.version())
	}
}
