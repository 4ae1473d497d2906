package cluster

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store/cluster"
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
	early := netip.MustParsePrefix("192.0.2.8/32")
	engine := tables{"trusted": {{Prefix: own}}}
	log := slog.New(slog.DiscardHandler)
	list := &problem.List{Log: log}
	s := NewSharedTables(engine, list)
	one := uint32(1)
	// It comes when the rules are in force, and before it is known that they define the table.
	if err := s.Set(map[cluster.SharedMember]*uint32{
		{Table: "trusted", Prefix: early}: &one}); err != nil {
		t.Fatal(err)
	}
	rules := &rule.Ruleset{Tables: map[string]rule.Table{"trusted": {own: 0}}}
	if err := s.Follow(rules); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(map[cluster.SharedMember]*uint32{{Table: "trusted", Prefix: shared}: &one,
		{Table: "trusted", Prefix: early}: nil,
		{Table: "trusted", Prefix: own}:   nil,
		{Table: "banned", Prefix: shared}: &one}); err != nil {
		t.Fatal(err)
	}
	if m := engine["trusted"]; len(m) != 1 || m[0].Prefix != own || len(engine["banned"]) != 1 {
		t.Errorf("the engine has %v", engine)
	}
	if _, found := s.Lookup("trusted", shared.Addr()); found {
		t.Error("an address is looked up in a table that the rules define")
	}
	if v, found := s.Lookup("banned", shared.Addr()); v != 1 || !found {
		t.Errorf("a shared member has %d, %v", v, found)
	}
	if len(list.All()) != 1 || s.All()["trusted"] != nil {
		t.Errorf("problems %v, tables %v", list.All(), s.All())
	}
	if err := s.Follow(new(rule.Ruleset)); err != nil {
		t.Fatal(err)
	}
	if m := engine["trusted"]; len(m) != 1 || m[0].Prefix != shared || len(list.All()) != 0 {
		t.Errorf("afterwards %v, %v", engine, list.All())
	}
}
