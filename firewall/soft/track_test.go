package soft

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
)

// prove makes a state of a UDP flow that is established: each side has sent after the other.
func prove(t *testing.T, w *Worker, now float64, from, to string) firewall.Verdict {
	t.Helper()
	v := w.Evaluate(in(now), udp(t, from, to))
	w.Evaluate(in(now), udp(t, to, from))
	w.Evaluate(in(now), udp(t, from, to))
	return v
}

// TestTracksOfRulesThatAreGone: established states of a rule that is gone keep no track from the
// rules in force, although the sweep has not ended them yet.
func TestTracksOfRulesThatAreGone(t *testing.T) {
	o := firewall.DefaultOptions()
	o.MaxTracks = 8
	e := load(t, Options{Options: o},
		"add 1 check-state\nadd 2 allow udp from any to any limit src-addr 1\n")
	w := e.Worker(0)
	for k := range 8 {
		if v := prove(t, w, 1, fmt.Sprintf("1.1.1.%d:1", k+1),
			"2.2.2.2:2"); v.State != firewall.StateNew {
			t.Fatalf("flow %d: %+v", k, v)
		}
	}
	if v := w.Evaluate(in(1), udp(t, "1.1.1.9:1",
		"2.2.2.2:2")); v.Reason != firewall.ReasonTracksFull {
		t.Fatalf("a ninth flow: %+v", v)
	}
	if err := e.Load(compiled(t,
		"add 1 check-state\nadd 3 allow udp from any to any limit src-addr 1\n")); err != nil {
		t.Fatal(err)
	}
	for k := range 8 {
		if v := prove(t, w, 1, fmt.Sprintf("3.1.1.%d:1", k+1),
			"2.2.2.2:2"); v.State != firewall.StateNew {
			t.Errorf("flow %d of the new rule: %+v", k, v)
		}
	}
	if v := w.Evaluate(in(1), udp(t, "3.1.1.9:1",
		"2.2.2.2:2")); v.Reason != firewall.ReasonTracksFull {
		t.Errorf("a ninth flow of the new rule: %+v", v)
	}
}

// TestLimitsWhenNumbersRunOut: what a limit counts stays counted when rules get new numbers.
func TestLimitsWhenNumbersRunOut(t *testing.T) {
	const limit = "add 20 allow udp from any to any limit src-addr 1\n"
	e := load(t, Options{},
		"add 1 check-state\nadd 2 count ip from any to any\nadd 3 count tcp from any to any\n"+
			limit)
	w := e.Worker(0)
	prove(t, w, 1, "1.1.1.1:1", "2.2.2.2:2")
	if err := e.Load(compiled(t, "add 1 check-state\n"+limit)); err != nil {
		t.Fatal(err)
	}
	e.nextID = maxIDs + 1
	if err := e.Load(compiled(t, "add 1 check-state\n"+limit+
		"add 30 count ip from any to any\n")); err != nil {
		t.Fatal(err)
	}
	if v := w.Evaluate(in(1), udp(t, "1.1.1.1:9", "2.2.2.2:2")); v.Reason != firewall.ReasonLimit {
		t.Errorf("a second flow of one source: %+v", v)
	}
}

// TestNumbersRunOutAgain: a track whose rule was gone when the numbers ran out is still there when
// they run out again.
func TestNumbersRunOutAgain(t *testing.T) {
	const limit = "add 20 allow udp from any to any limit src-addr 1\n"
	e := load(t, Options{},
		"add 1 check-state\nadd 20 allow udp from any to any limit src-addr 2\n")
	prove(t, e.Worker(0), 1, "1.1.1.1:1", "2.2.2.2:2")
	for k := range 4 { // first the rule above is in force, then it is gone, then forgotten
		e.nextID = maxIDs + 1
		rules := fmt.Sprintf("add 1 check-state\nadd %d count ip from any to any\n", 10+k)
		if err := e.Load(compiled(t, rules+limit)); err != nil {
			t.Fatal(err)
		}
	}
	w := e.Worker(0)
	if v := prove(t, w, 2, "1.1.1.1:1", "2.2.2.2:2"); v.State != firewall.StateNew {
		t.Errorf("a flow of the source: %+v", v)
	}
	v := w.Evaluate(in(2), udp(t, "1.1.1.1:9", "2.2.2.2:2"))
	if v.Reason != firewall.ReasonLimit {
		t.Errorf("a second one: %+v", v)
	}
}

// TestLimitCountsPrefixes: all addresses of a /64 have as many states as one IPv4 address.
// Destinations count by address.
func TestLimitCountsPrefixes(t *testing.T) {
	e := load(t, Options{}, "add 1 check-state\nadd 2 allow udp from any to any 53 limit src-addr 3\n"+
		"add 3 allow udp from any to any 54 limit dst-addr 3\n")
	w := e.Worker(0)
	for _, c := range []struct {
		from, to string // N: 20 different numbers
		states   int
	}{
		{"[fd01::N]:9", "[fd00::1]:53", 3},
		{"[fd01:0:0:1::N]:9", "[fd00::1]:53", 3},
		{"[::N:0:1]:9", "[fd00::1]:53", 3},
		{"10.1.0.N:9", "10.0.0.1:53", 20},
		{"[fd00::1]:9", "[fd01::N]:54", 20},
	} {
		made := 0
		for n := range 20 {
			number := fmt.Sprint(n + 1)
			v := w.Evaluate(in(1), udp(t, strings.ReplaceAll(c.from, "N", number),
				strings.ReplaceAll(c.to, "N", number)))
			switch {
			case v.State == firewall.StateNew:
				made++
			case v.Reason != firewall.ReasonLimit:
				t.Errorf("%+v, number %d: %+v", c, n+1, v)
			}
		}
		if made != c.states {
			t.Errorf("%+v: %d states", c, made)
		}
	}
}
