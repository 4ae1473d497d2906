package agent

import (
	"errors"
	"log/slog"
	"net/netip"
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

// tables is an engine's tables, which are only set whole.
type tables map[string][]rule.TableEntry

func (e tables) SetTable(name string, entries []rule.TableEntry) error {
	e[name] = entries
	return nil
}

func (tables) AddTable(string, rule.TableEntry) error { return errors.ErrUnsupported }
func (tables) DeleteTable(string, netip.Prefix) error { return errors.ErrUnsupported }

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
		shared: cluster.NewSharedTables(engine, &problem.List{Log: log})}
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
