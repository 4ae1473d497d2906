package rule

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/weirnet/weir/internal/testrand"
)

// TestBatch: the lines of a file give what each of them gives on its own.
func TestBatch(t *testing.T) {
	random := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	for range 200 {
		one, all := new(Ruleset), new(Ruleset)
		b := NewBatch(all)
		for range 90 {
			line := randomSetLine(random)
			c, err := ParseLine(line, nil)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if random.IntN(20) == 0 {
				b.Flush()
			}
			if got, want := b.Apply(c), c.Apply(one); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s: %v, want %v", line, got, want)
			}
			number := uint16(random.IntN(8))
			if want := slices.ContainsFunc(one.Rules, func(r *Rule) bool {
				return r.Number == number
			}); b.Has(number) != want {
				t.Fatalf("%s: has rule %d: %v", line, number, !want)
			}
			if random.IntN(4) == 0 {
				compareUsers(t, line, b, one)
			}
		}
		b.Flush()
		if !reflect.DeepEqual(all, one) {
			t.Errorf("%v, want %v", all, one)
		}
	}
}

// compareUsers compares the rules that ask about tables with what all rules say.
func compareUsers(t *testing.T, line string, b *Batch, s *Ruleset) {
	t.Helper()
	for _, table := range []string{"", "t1", "t2", "t3", "t4"} {
		want := uint16(0)
		for _, r := range s.Rules {
			for name := range r.tables {
				if want == 0 && (table == "" || name == table) {
					want = r.Number
				}
			}
		}
		got := uint16(0)
		r, about := b.TableUser(table)
		if r != nil {
			got = r.Number
		}
		if got != want || table != "" && about != table {
			t.Fatalf("%s: table %q is asked about by rule %d, want %d", line, about, got, want)
		}
	}
}

// randomSetLine returns a line that asks for sets or changes those of rules, or adds or deletes
// rules.
func randomSetLine(random *rand.Rand) string {
	set := func() int {
		if random.IntN(8) == 0 {
			return ReservedSet
		}
		return random.IntN(4)
	}
	number := random.IntN(5) + 1
	switch random.IntN(17) {
	default:
		return fmt.Sprintf("add %d set %d count ip from %s to %s", number, set(), randomEnd(random),
			randomEnd(random))
	case 0, 1:
		return fmt.Sprintf("set swap %d %d", random.IntN(4), random.IntN(4))
	case 2, 3:
		return fmt.Sprintf("set move %d to %d", set(), set())
	case 4:
		return fmt.Sprintf("set move rule %d to %d", number, set())
	case 5:
		return fmt.Sprintf("set disable %d", random.IntN(4))
	case 6:
		return fmt.Sprintf("delete %d %d-%d", number, random.IntN(5)+1, 6)
	case 7:
		return fmt.Sprintf("delete set %d %d", set(), set())
	case 8:
		return fmt.Sprintf("set %d delete %d-%d", set(), number, number+2)
	case 9, 10:
		return fmt.Sprintf("add set %d count ip from any to %s", set(), randomEnd(random))
	case 11:
		return []string{"flush", "table x create missing", "set 2 flush"}[random.IntN(3)]
	}
}

// randomEnd is any address or a table.
func randomEnd(random *rand.Rand) string {
	if n := random.IntN(12); 0 < n && n < 4 {
		return fmt.Sprintf("table(t%d)", n)
	}
	return "any"
}

// TestBatchLinesAreCheap: what a line about sets allocates does not grow with the rules that are
// there, whatever lines come before and behind it.
func TestBatchLinesAreCheap(t *testing.T) {
	const rules, rounds = 5000, 1000
	s := new(Ruleset)
	for i := range rules {
		s.Add(&Rule{Number: uint16(i + 1), Set: uint8(i % 3)})
	}
	lines := []Command{{Kind: CommandSwap, From: 1, To: 2}, {Kind: CommandMove, From: 0, To: 3},
		{Kind: CommandAdd}, {Kind: CommandMove, Number: 7, To: 9},
		{Kind: CommandDelete, Sets: 1 << 9},
		{Kind: CommandDelete, Numbers: []Range{{Lo: 9, Hi: 9}}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b := NewBatch(s)
	for i := range rounds {
		for _, c := range lines {
			if c.Kind == CommandAdd {
				c.Rule = &Rule{Number: uint16(i + 1)}
			}
			if err := b.Apply(&c); err != nil && !IsAbsent(err) {
				t.Fatal(err)
			}
		}
	}
	b.Flush()
	runtime.ReadMemStats(&after)
	// Flush copies rules that have moved
	most := uint64(len(s.Rules))*uint64(unsafe.Sizeof(Rule{}))*2 + rounds*uint64(len(lines))*1000
	if got := after.TotalAlloc - before.TotalAlloc; got > most {
		t.Errorf("%d lines allocate %d bytes, more than %d", rounds*len(lines), got, most)
	}
}
