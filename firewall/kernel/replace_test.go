package kernel

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/rule"
)

// TestRulesAndTablesSwitchAtOnce: see enginetest.RunReplace.
func TestRulesAndTablesSwitchAtOnce(t *testing.T) {
	o, fresh := trial(t)
	s, err := fresh(o)
	if err != nil {
		t.Fatal(err)
	}
	enginetest.RunReplace(t, s, 300)
}

// TestReplaceChangesAllOrNothing: a Replace that fails leaves the rules, the tables, their names
// and their places in the kernel as they were; one that succeeds leaves nothing of the tables
// before.
func TestReplaceChangesAllOrNothing(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	a := newAsker(t, e, "add 10 allow udp from table(t) to any\n")
	a.is(65535)
	one := entries("10.0.0.2/32")
	if err := e.Replace(compile(t, "add 10 allow udp from table(t) to any\n"),
		map[string][]rule.TableEntry{"t": one, "spare": one}); err != nil {
		t.Fatal(err)
	}
	a.is(10)
	held := func() (names, places int) {
		t.Helper()
		left, err := readAll[weirNameIdKey, weirNameId](e.objects.NameIds)
		if err != nil {
			t.Fatal(err)
		}
		return len(left), len(e.nameIDs.used[nameTable])
	}
	names, places := held()
	if places != 2 || len(e.tables) != 2 {
		t.Errorf("two tables have %d places and %d handles", places, len(e.tables))
	}
	next := compile(t,
		"add 10 deny udp from table(t) to any\nadd 20 allow udp from table(new) to any\n")
	config := e.objects.Config
	closed, err := config.Clone()
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	e.objects.Config = closed
	if err := e.Replace(next, map[string][]rule.TableEntry{"t": nil, "spare": nil,
		"more": one}); err == nil {
		t.Fatal("a replacement that cannot switch passes without an error")
	}
	e.objects.Config = config
	a.is(10)
	if n, p := held(); n != names || p != places || len(e.tables) != 2 {
		t.Errorf("%d names, %d places, %d tables are left of %d, %d, 2", n, p, len(e.tables), names,
			places)
	}
	if err := e.Replace(next, map[string][]rule.TableEntry{"t": {{}}}); err == nil {
		t.Error("a member that is not a prefix is taken")
	}
	if err := e.DeleteTable("t", one[0].Prefix); err != nil {
		t.Fatal(err)
	}
	a.is(65535)
	if err := e.AddTable("t", one[0]); err != nil {
		t.Fatal(err)
	}
	a.is(10)
	if err := e.Replace(next, map[string][]rule.TableEntry{"t": nil, "spare": nil,
		"new": one}); err != nil {
		t.Fatal(err)
	}
	a.is(20)
	if _, p := held(); p != 2 || len(e.tables) != 2 || e.tables["spare"] != nil {
		t.Errorf("%d places and tables %v after the next", p, e.tables)
	}
	if err := e.AddTable(
		"t",
		rule.TableEntry{Prefix: netip.MustParsePrefix("10.0.0.0/8")},
	); err != nil {
		t.Fatal(err)
	}
	a.is(10)
}

// TestLoadTakesEveryFlowName: see enginetest.RunFlowNames.
func TestLoadTakesEveryFlowName(t *testing.T) {
	o, newSubject := trial(t)
	s, err := newSubject(o)
	if err != nil {
		t.Fatal(err)
	}
	enginetest.RunFlowNames(t, s)
}

// TestRouterTakesPackets: see enginetest.RunRouter.
func TestRouterTakesPackets(t *testing.T) {
	o, newSubject := trial(t)
	s, err := newSubject(o)
	if err != nil {
		t.Fatal(err)
	}
	enginetest.RunRouter(t, s)
}

// TestLocalRoutesAreMe: see enginetest.RunLocalRoutes.
func TestLocalRoutesAreMe(t *testing.T) {
	o, newSubject := trial(t)
	s, err := newSubject(o)
	if err != nil {
		t.Fatal(err)
	}
	enginetest.RunLocalRoutes(t, s)
}
