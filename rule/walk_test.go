package rule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/program"
)

func compileText(t testing.TB, text string) (*program.Program, error) {
	t.Helper()
	set, err := ParseFile("rules", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Compile(set, CompileOptions{})
}

func lines(from, n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "add %d "+format+"\n", from+i)
	}
	return b.String()
}

// TestLongestWalk: how many steps a packet may take is bounded, and the error names what makes them
// many.
func TestLongestWalk(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       int64 // steps, with the default rule
		says       []string
	}{
		{"one rule", "add 1 count ip from any to any\n", 2, nil},
		{"each rule once", lines(1, 1000, "count ip from any to any"), 1001, nil},
		{"a list", "add 1 count ip from any to any iplen 100,200-300,400\n", 1 + 3 + 1, nil},
		{"skipto skips at best", "add 1 skipto 10 ip from any to any\n" +
			lines(2, 5, "count ip from any to any") + "add 10 allow ip from any to any\n", 8, nil},
		{"a subroutine",
			"add 1 call 100 ip from any to any\nadd 2 call 100 ip from any to any\n" +
				"add 3 deny ip from any to any\n" +
				lines(100, 10, "count ip from any to any") + "add 110 return\n", 0, nil},
		{"a state's rule goes back",
			"add 1 count tcp from any to any keep-state :a\nadd 2 check-state :a\n", 6, nil},
		{"many calls of many rules", lines(1, 120, "call 1000 ip from any to any") +
			"add 500 deny ip from any to any\n" +
			lines(1000, 16200, "count ip from any to any") + "add 60000 return\n", 1_960_443,
			[]string{"120 rules call what begins at rule 1000 (rule 1 is the first), where 16202 " +
				"steps follow", "at most 131072"}},
		{"calls of calls", lines(1, 100, "call 200 ip from any to any") +
			"add 150 deny ip from any to any\n" +
			lines(200, 100, "call 400 ip from any to any") + "add 300 return\n" +
			lines(400, 1000, "count ip from any to any") + "add 2000 return\n",
			0, []string{"steps through these rules", "call what begins at rule"}},
		{"a rule that calls itself", lines(10, 8000, "count ip from any to any") +
			"add 60000 call 10 ip from any to any\n", 0,
			[]string{"1 rules call what begins at rule 10"}},
		{"many lists", "", 0, []string{"rule 1 alone takes", "tables"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "many lists" {
				var list []string
				for i := range 250 {
					list = append(list, fmt.Sprint(10+2*i))
				}
				c.text = lines(1, 1200, "count ip from any to any iplen "+strings.Join(list, ","))
			}
			p, err := compileText(t, c.text)
			if (err != nil) != (len(c.says) > 0) {
				t.Fatalf("error %v", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%v: it does not say %q", err, s)
				}
			}
			if err == nil && c.want > 0 && p.LongestWalk() != c.want {
				t.Errorf("%d steps, not %d", p.LongestWalk(), c.want)
			}
			if err != nil && c.want > 0 && !strings.Contains(err.Error(), fmt.Sprint(c.want)) {
				t.Errorf("%v: not %d steps", err, c.want)
			}
		})
	}
}

// TestTheMostRulesAreNotTooMany: a Program of as many rules as there may be, without lists and
// calls, is well below the bound.
func TestTheMostRulesAreNotTooMany(t *testing.T) {
	text := "add 1 check-state\n" +
		strings.Repeat("add 100 count tcp from any to any iplen 40-100 ipttl 1-9\n",
			program.MaxRules-3)
	if _, err := compileText(t, text); err != nil {
		t.Fatal(err)
	}
}
