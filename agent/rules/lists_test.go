package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/rule"
)

// counting is an engine that counts changes of tables.
type counting struct {
	*soft.Engine
	adds, deletes, sets int
	fail                error
}

func (e *counting) AddTable(name string, m rule.TableEntry) error {
	e.adds++
	return errors.Join(e.fail, e.Engine.AddTable(name, m))
}

func (e *counting) DeleteTable(name string, p netip.Prefix) error {
	e.deletes++
	return e.Engine.DeleteTable(name, p)
}

func (e *counting) SetTable(name string, all []rule.TableEntry) error {
	e.sets++
	return e.Engine.SetTable(name, all)
}

// listManager returns a Manager with a table that comes from a file.
func listManager(t *testing.T, text string) (*Manager, *counting, string) {
	t.Helper()
	b, e := newManager(t)
	engine := &counting{Engine: e}
	b.config.Engine = engine
	file := filepath.Join(t.TempDir(), "blocked.txt")
	putList(t, file, text)
	must(t, b, "table blocked create file "+file, "add 10 deny tcp from table(blocked) to any",
		"add 20 allow ip from any to any")
	return b, engine, file
}

func putList(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// follow looks at the files as often as a change needs to be seen.
func follow(b *Manager) {
	for range 2 {
		b.followLists()
	}
}

// TestTableFollowsItsFile: the members are those of the file, also after it changed; only what
// changed is changed, and addresses that both contents have are members all the time.
func TestTableFollowsItsFile(t *testing.T) {
	b, e, file := listManager(t, "192.0.2.1\n10.0.0.0/8\nfd00::/8\n")
	if passes(e.Engine, 80) {
		t.Fatal("the engine does not know the members")
	}
	follow(b)
	putList(t, file, "10.0.0.0/8\nfd00::/8\n192.0.2.0/24\n")
	e.adds, e.deletes, e.sets = 0, 0, 0
	b.followLists()
	if e.adds != 0 {
		t.Error("a file that may still be written is read")
	}
	b.followLists()
	if passes(e.Engine, 80) || e.adds != 1 || e.deletes != 1 || e.sets != 0 {
		t.Errorf("%+v", e)
	}
	putList(t, file, "10.0.0.0/8\n")
	follow(b)
	if !passes(e.Engine, 80) || e.adds != 1 || e.deletes != 3 {
		t.Errorf("%+v", e)
	}
	var many strings.Builder
	for i := range listSingles + 1 {
		fmt.Fprintf(&many, "172.%d.%d.0/24\n", i>>8, i&255)
	}
	putList(t, file, many.String()+"192.0.2.1")
	follow(b)
	if passes(e.Engine, 80) || e.sets != 1 || e.adds != 1 {
		t.Errorf("%+v", e)
	}
	if done, failed := b.Reloads(); done != 3 || failed != 0 {
		t.Errorf("%d reloads, %d failed", done, failed)
	}
	if v, ok := b.LookupTable("blocked", netip.MustParseAddr("172.1.2.3")); v != 0 || !ok {
		t.Error("the rules do not know the members")
	}
}

// TestFileThatIsWrongChangesNothing: what is wrong is a problem that names file and line, once, and
// the members stay until the file is good again.
func TestFileThatIsWrongChangesNothing(t *testing.T) {
	b, e, file := listManager(t, "192.0.2.1\n")
	for _, c := range []struct {
		spoil func()
		want  string
	}{
		{func() { putList(t, file, "10.0.0.1\nevil\n") }, file + ":2: \"evil\" is not an address"},
		{func() { os.Remove(file) }, "no such file"},
		{func() { os.Mkdir(file, 0o700) }, "not a regular file"},
	} {
		c.spoil()
		for range 3 {
			follow(b)
		}
		p := b.config.Problems.All()
		if len(p) != 1 || !strings.Contains(p[0].What, c.want) ||
			!strings.Contains(p[0].What, "the 1 prefixes read before stay in force") {
			t.Errorf("problems %+v", p)
		}
		if passes(e.Engine, 80) {
			t.Error("the members are gone")
		}
	}
	if done, failed := b.Reloads(); done != 0 || failed != 3 {
		t.Errorf("%d reloads, %d failed", done, failed)
	}
	os.Remove(file)
	putList(t, file, "10.0.0.1\n")
	follow(b)
	if p := b.config.Problems.All(); len(p) != 0 || !passes(e.Engine, 80) {
		t.Errorf("problems %+v", p)
	}
}

// TestEngineThatRefusesAList: the members of before are there again.
func TestEngineThatRefusesAList(t *testing.T) {
	b, e, file := listManager(t, "192.0.2.1\n")
	e.fail = errors.New("no memory")
	putList(t, file, "192.0.2.2\n192.0.2.3\n")
	follow(b)
	if p := b.config.Problems.All(); len(p) != 1 || !strings.Contains(p[0].What, "no memory") {
		t.Errorf("problems %+v", p)
	}
	if _, found := b.LookupTable("blocked", netip.MustParseAddr("192.0.2.2")); found ||
		passes(e.Engine, 80) {
		t.Error("the members changed")
	}
	e.fail = nil
	putList(t, file, "192.0.2.2\n192.0.2.3")
	follow(b)
	if !passes(e.Engine, 80) {
		t.Error("the members did not change")
	}
}

// TestRulesWithABadListAreRefused: nothing changes.
func TestRulesWithABadListAreRefused(t *testing.T) {
	b, _ := newManager(t)
	file := filepath.Join(t.TempDir(), "bad")
	putList(t, file, "x")
	line := "table blocked create file " + file
	if _, err := b.do(line, false); err == nil || !strings.Contains(err.Error(), file+":1: ") {
		t.Error(err)
	}
	if _, err := b.doAll("f", line); err == nil {
		t.Error("commands with a bad list are taken")
	}
	if err := b.prepareLists(ruleset(t, line)); err == nil {
		t.Error("a file with a bad list is taken")
	}
	if all := b.Tables(api.TableQuery{}); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// TestBootWithABadList: the content that was in force last is taken, and the file again once it is
// good. Without such a content the start is refused.
func TestBootWithABadList(t *testing.T) {
	b, _, file := listManager(t, "192.0.2.1\n10.0.0.0/8\n")
	b.followLists()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	putList(t, file, "damaged")
	next, e := newManager(t)
	next.store.path = b.store.path
	first, err := next.Initial()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := next.begin(first.Version); err != nil {
		t.Fatal(err)
	}
	if passes(e, 80) || first.Set.Size("blocked") != 2 {
		t.Error("the members are not those of before")
	}
	follow(next)
	if p := next.config.Problems.All(); len(p) != 1 || !strings.Contains(p[0].What, file+":1: ") {
		t.Errorf("problems %+v", p)
	}
	putList(t, file, "10.0.0.0/8\n")
	follow(next)
	if p := next.config.Problems.All(); len(p) != 0 || !passes(e, 80) {
		t.Errorf("problems %+v", p)
	}
	must(t, next, "delete 10", "table blocked destroy")
	next.followLists()
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(b.store.path),
		"table-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}

	putList(t, file, "damaged")
	if err := os.WriteFile(b.store.path, []byte(string(b.store.format(Version{Strict: true,
		Set: ruleset(t, "table blocked create file "+file)}))), 0o600); err != nil {
		t.Fatal(err)
	}
	other, _ := newManager(t)
	other.store.path, other.config.LockDown = b.store.path, func() bool { return false }
	if _, err := other.Initial(); err == nil || !strings.Contains(err.Error(), file+":1: ") {
		t.Errorf("a list that was never read: %v", err)
	}
}

// TestTrialKeepsUpWithTheFile: what a trial returns to has the content of now.
func TestTrialKeepsUpWithTheFile(t *testing.T) {
	b, e, file := listManager(t, "10.0.0.0/8\n")
	next := ruleset(t, "add allow ip from any to any")
	if err := b.load(Version{Set: next, Strict: true, Source: "next"}, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	putList(t, file, "192.0.2.1\n")
	follow(b)
	if _, err := b.goBack(); err != nil {
		t.Fatal(err)
	}
	if passes(e.Engine, 80) {
		t.Error("the content of before the trial is in force")
	}
}
