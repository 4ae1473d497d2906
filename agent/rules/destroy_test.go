package rules

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/weirnet/weir/rule"
)

// TestDestroyingIsCheap: what a line allocates that destroys a table does not grow with the rules
// that are there, also if rules go and come in between. A table that a rule asks about stays.
func TestDestroyingIsCheap(t *testing.T) {
	const rules = 4000
	var there, lines strings.Builder
	for i := range rules {
		fmt.Fprintf(&there, "table t%d create\nadd %d allow ip from table(t%d) to table(of)\n", i,
			i+1, i)
		fmt.Fprintf(&lines, "delete %d\ntable t%d destroy\nadd %d allow ip from table(of) to any\n",
			i+1, i, i+1)
	}
	there.WriteString("table of create\n")
	set, err := rule.ParseFile("rules", there.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	commands, err := rule.ParseCommands("lines", lines.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	v := &Version{Set: set}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = v.apply("lines", commands)
	runtime.ReadMemStats(&after)
	if err != nil || len(v.Set.Tables) != 1 || len(v.Set.Rules) != rules {
		t.Fatalf("%v; %d tables, %d rules are left", err, len(v.Set.Tables), len(v.Set.Rules))
	}
	if each := (after.TotalAlloc - before.TotalAlloc) / rules; each > 10<<10 {
		t.Errorf("three lines allocate %d bytes", each)
	}
	for _, name := range []string{"of", ""} {
		c := &rule.Command{Kind: rule.CommandTableDrop, Table: name}
		if _, err := v.apply("x", []*rule.Command{c}); err == nil ||
			!strings.Contains(err.Error(), "table of is in use by rule 1") {
			t.Errorf("table %q is destroyed: %v", name, err)
		}
	}
}
