package agent

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/agent/cluster"
	"github.com/weirnet/weir/agent/host"
	"github.com/weirnet/weir/agent/nat"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	desired "github.com/weirnet/weir/store/cluster"
)

// tables is an engine's tables.
type tables map[string][]rule.TableEntry

func (e tables) SetTable(name string, entries []rule.TableEntry) error {
	e[name] = entries
	return nil
}

func (e tables) AddTable(name string, one rule.TableEntry) error {
	e[name] = append(e[name], one)
	return nil
}

func (e tables) DeleteTable(name string, p netip.Prefix) error {
	e[name] = slices.DeleteFunc(e[name], func(m rule.TableEntry) bool { return m.Prefix == p })
	return nil
}

// TestSharedTableOfTheRules: a feed that writes a shared table of the name of one that the rules in
// force define does not change that one. Its members count when the rules define it no longer.
func TestSharedTableOfTheRules(t *testing.T) {
	own, shared := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32")
	engine := tables{"trusted": {{Prefix: own}}}
	log := slog.New(slog.DiscardHandler)
	list := &problem.List{Log: log}
	s := sharedTables{engine: engine, problems: list, tables: map[string]rule.Table{},
		cleared: map[string]bool{}}
	if err := s.follow(map[string]rule.Table{"trusted": {own: 0}}); err != nil {
		t.Fatal(err)
	}
	one := uint32(1)
	if err := s.set(map[desired.SharedMember]*uint32{{Table: "trusted", Prefix: shared}: &one,
		{Table: "trusted", Prefix: own}:   nil,
		{Table: "banned", Prefix: shared}: &one}); err != nil {
		t.Fatal(err)
	}
	if m := engine["trusted"]; len(m) != 1 || m[0].Prefix != own || len(engine["banned"]) != 1 {
		t.Errorf("the engine has %v", engine)
	}
	if len(list.All()) != 1 || s.all()["trusted"] != nil {
		t.Errorf("problems %v, tables %v", list.All(), s.all())
	}
	if err := s.follow(nil); err != nil {
		t.Fatal(err)
	}
	if m := engine["trusted"]; len(m) != 1 || m[0].Prefix != shared || len(list.All()) != 0 {
		t.Errorf("afterwards %v, %v", engine, list.All())
	}
}

// TestTablesOfLostCopy: a table that an earlier run left in the engine is not emptied while the
// host has neither a copy nor heard the store: who is banned stays out.
func TestTablesOfLostCopy(t *testing.T) {
	engine := tables{"banned": {{Prefix: netip.MustParsePrefix("192.0.2.7/32")}}}
	log := slog.New(slog.DiscardHandler)
	service, err := cluster.Open(cluster.Config{Name: "a", Dir: t.TempDir(), Log: log,
		Problems: &problem.List{Log: log}, Parts: cluster.Parts{
			Labels: func(map[desired.Label]bool) error { return nil },
			Shared: func(map[desired.SharedMember]*uint32) error { return nil }}})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	n := &Node{cluster: service, nat: nat.New(nat.Config{}), routes: host.NewRoutes(nil),
		shared: sharedTables{engine: engine, problems: &problem.List{Log: log},
			tables: map[string]rule.Table{}, cleared: map[string]bool{}}}
	rules := &program.Program{Tables: []string{"banned"}}
	n.loaded(nil, rules, new(rule.Ruleset))
	if len(engine["banned"]) != 1 {
		t.Error("a host that lost its copy lets in who is banned")
	}
	service.Step(store.Batch{Revision: 1})
	n.loaded(nil, rules, new(rule.Ruleset))
	if len(engine["banned"]) != 0 {
		t.Error("what the store does not have stays")
	}
}
