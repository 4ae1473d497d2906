package rule

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
)

// TestBatch: the lines of a file give what each of them gives on its own.
func TestBatch(t *testing.T) {
	random := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	for range 200 {
		one, all := new(Ruleset), new(Ruleset)
		b := NewBatch(all)
		for range 60 {
			line := randomSetLine(random)
			c, err := ParseLine(line, nil)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if got, want := b.Apply(c), c.Apply(one); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s: %v, want %v", line, got, want)
			}
		}
		b.Flush()
		if !reflect.DeepEqual(all, one) {
			t.Errorf("%v, want %v", all, one)
		}
	}
}

// randomSetLine returns a line that asks for sets or changes those of rules, or deletes rules.
func randomSetLine(random *rand.Rand) string {
	set := func() int { return random.IntN(4) }
	number := random.IntN(5) + 1
	switch random.IntN(12) {
	default:
		return fmt.Sprintf("add %d set %d count ip from any to any", number, set())
	case 0, 1:
		return fmt.Sprintf("set swap %d %d", set(), set())
	case 2, 3:
		return fmt.Sprintf("set move %d to %d", set(), set())
	case 4:
		return fmt.Sprintf("set move rule %d to %d", number, set())
	case 5:
		return fmt.Sprintf("set disable %d", set())
	case 6:
		return fmt.Sprintf("delete %d", number)
	case 7:
		return fmt.Sprintf("delete set %d", set())
	}
}

// TestBatchMovesOnce: however many lines move whole sets, each rule is copied once at most.
func TestBatchMovesOnce(t *testing.T) {
	const rules = 500
	s := new(Ruleset)
	for i := range rules {
		s.Add(&Rule{Number: uint16(i + 1), Set: uint8(i % 3)})
	}
	swap, move := &Command{Kind: CommandSwap, From: 1, To: 2},
		&Command{Kind: CommandMove, From: 0, To: 3}
	copies := testing.AllocsPerRun(1, func() {
		b := NewBatch(s)
		for range 1001 {
			if b.Apply(swap) != nil || b.Apply(move) != nil {
				t.Fatal("refused")
			}
		}
		b.Flush()
	})
	if copies > rules+1 {
		t.Errorf("%v copies of %d rules", copies, rules)
	}
}
