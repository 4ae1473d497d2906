package soft

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/rule"
)

// TestEmptyTablesAreForgotten: a node that gives its pods ever new labels keeps only the tables
// that have members or that a rule names.
func TestEmptyTablesAreForgotten(t *testing.T) {
	const named = "add 10 allow ip from table(app=web) to any\n"
	e := load(t, Options{}, named)
	one := []rule.TableEntry{{Prefix: netip.MustParsePrefix("10.0.0.1/32")}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		set, added := fmt.Sprint("build=", i), fmt.Sprint("job=", i)
		must(e.SetTable(set, one))
		must(e.SetTable(set, nil))
		must(e.AddTable(added, one[0]))
		must(e.DeleteTable(added, one[0].Prefix))
		if err := e.DeleteTable(added, one[0].Prefix); err == nil {
			t.Fatal("deleted twice")
		}
		must(e.Replace(compiled(t, named), map[string][]rule.TableEntry{set: nil}))
	}
	must(e.SetTable("kept", one))
	want := func(when string, names ...string) {
		t.Helper()
		for _, name := range names {
			if e.tables[name] == nil {
				t.Errorf("%s: %s is forgotten", when, name)
			}
		}
		if len(e.tables) != len(names) {
			t.Errorf("%s: %d tables, not %d", when, len(e.tables), len(names))
		}
	}
	want("with a rule", "app=web", "kept")
	must(e.Load(compiled(t, "add 10 allow ip from any to any\n")))
	want("without it", "kept")
}
