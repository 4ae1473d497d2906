package netfilter

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestLargeSources: the time for a source grows with its length. It grew with the square, and
// this took many minutes.
func TestLargeSources(t *testing.T) {
	const n, head = 60_000, "*filter\n:INPUT ACCEPT [0:0]\n"
	sets := func() string {
		var b strings.Builder
		b.WriteString(head + "-A INPUT -j DROP\nCOMMIT\n")
		for i := range n / 20 { // no name has a character that the name of a table may have
			name := fmt.Sprintf("%05d", i)
			b.WriteString("create " + strings.Map(func(c rune) rune { return c + 0x100 }, name) +
				" hash:ip\n")
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		text         string
		tables, left int
		refused      error
	}{
		"tables of netfilter": {strings.Repeat("*a\n", n) + head + "COMMIT\n", 0, 0, nil},
		"rules left out": {head + strings.Repeat("-A INPUT -m x -j ACCEPT\n", n/4) + "COMMIT\n", 0,
			n / 4, nil},
		"rules in front": {head + strings.Repeat("-I INPUT -j LOG\n", n) + "COMMIT\n", 0, 0,
			errTooMany},
		"sets": {sets(), n / 20, 0, nil},
		"jumps to one chain": {head + ":A - [0:0]\n" +
			strings.Repeat("-A INPUT -s 192.0.2.1 -j A\n", n/4) +
			strings.Repeat("-A A -s 192.0.2.2\n", n/4) + "COMMIT\n", 0, 0, nil},
	} {
		r, err := Import([]Source{{Name: "rules", Text: c.text}}, Options{})
		if !errors.Is(err, c.refused) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		left := 0
		for _, m := range r.Remarks {
			if m.Left {
				left++
			}
		}
		if tables := len(r.Rules.Tables) - 1; tables != c.tables || left != c.left {
			t.Errorf("%s: %d tables, %d rules left out", name, tables, left)
		}
	}
}

// TestManyBaseChains: twice as many base chains take twice the memory. It was four times as much.
func TestManyBaseChains(t *testing.T) {
	allocated := func(chains int) uint64 {
		var b strings.Builder
		b.WriteString(`{"nftables":[{"table":{"family":"ip","name":"t"}}`)
		for i := range chains {
			fmt.Fprintf(&b, `,{"chain":{"family":"ip","table":"t","name":"c%d","type":"filter",`+
				`"hook":"input","prio":0,"policy":"accept"}},{"rule":{"family":"ip","table":"t",`+
				`"chain":"c%[1]d","expr":[{"drop":null}]}}`, i)
		}
		b.WriteString("]}")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Import([]Source{{Name: "rules", Text: b.String()}}, Options{})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errTooMany) {
			t.Fatal(err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := allocated(20_000), allocated(40_000); many > 3*few {
		t.Errorf("20,000 chains take %d bytes, 40,000 take %d", few, many)
	}
}
