package kernel

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// migrateInBatches fills a table with n states and n translations. It returns an engine with tables
// for another number of states that has taken them over, and what the first one had.
func migrateInBatches(t *testing.T, n uint32, states int) (e *Engine, before map[tuple]entry) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := Config{Dir: filepath.Join(nstest.Bpffs(t), "weir"), Options: firewall.DefaultOptions()}
	c.Options.Timeouts.Established, c.Options.Timeouts.UDPReply = time.Hour, time.Hour
	program := compile(t, "add check-state\nadd allow ip from any to any keep-state\n")
	open := func() {
		t.Helper()
		var err error
		e, err = openShared(t, c)
		must(err)
		t.Cleanup(func() { e.Close() })
		must(e.Load(program))
	}
	open()
	var calls []weirCall
	for i := range n {
		calls = append(calls, udpState(i, e.rules[1].Id, e.now())...)
		calls = append(calls, translation(i, 0, e.now())...)
	}
	must(e.call.adopt(calls))
	for i := range calls {
		if calls[i].Result != adoptMade {
			t.Fatalf("%d: result %d", i, calls[i].Result)
		}
	}
	before = map[tuple]entry{}
	for x, err := range e.entries() {
		must(err)
		before[x.tuple()] = *x
	}
	must(e.Close())
	c.Options.MaxStates = states
	open()
	return e, before
}

// TestMigrateInBatches: what is migrated in batches is what was there. The two entries of each
// translation refer to each other, also at the end of a batch and of a run in the kernel.
func TestMigrateInBatches(t *testing.T) {
	t.Parallel()
	const n = 3 * entriesAtOnce
	e, before := migrateInBatches(t, n, firewall.DefaultOptions().MaxStates/2)
	if len(before) != 3*n || e.Migrated() != n {
		t.Errorf("%d entries of %d, %d states were migrated, not %d", len(before), 3*n,
			e.Migrated(), n)
	}
	after := map[uint32]entry{}
	for x, err := range e.entries() {
		if err != nil {
			t.Fatal(err)
		}
		after[x.place] = *x
	}
	if len(after) != len(before) {
		t.Errorf("%d entries, not %d", len(after), len(before))
	}
	rule := e.rules[1].Id
	for _, x := range after {
		was := before[x.tuple()]
		if x.translation() {
			if other := after[x.partner()]; !other.translation() ||
				other.partner() != x.place ||
				(other.sides[0].Flags^x.sides[0].Flags)&metaWire == 0 {
				t.Fatalf("%+v refers to %+v", x, other)
			}
			was.sides[0].Track = x.sides[0].Track
		}
		for i := range was.sides {
			if was.sides[i].Rule != natRule {
				was.sides[i].Rule = rule
			}
		}
		if x.sides != was.sides {
			t.Fatalf("%+v was %+v", x, was)
		}
	}
}

// TestMigrateIntoAFullTable: where a smaller table has no place for the first entry of a
// translation, the other one is not migrated either.
func TestMigrateIntoAFullTable(t *testing.T) {
	t.Parallel()
	const n = entriesAtOnce
	e, _ := migrateInBatches(t, n, n)
	after := map[uint32]entry{}
	for x, err := range e.entries() {
		if err != nil {
			t.Fatal(err)
		}
		after[x.place] = *x
	}
	if len(after) < n || len(after) > n*11/10 {
		t.Errorf("%d entries in a table for %d", len(after), n)
	}
	for _, x := range after {
		if other := after[x.partner()]; x.sides[0].Flags&metaWire != 0 &&
			(!other.translation() || other.partner() != x.place) {
			t.Errorf("%+v refers to %+v", x, other)
		}
	}
}
