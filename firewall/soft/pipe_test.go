package soft

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
)

// TestFloodOpensNoPipe: when a flood has filled all buckets, sources that have none share one, and
// a source that has one keeps it.
func TestFloodOpensNoPipe(t *testing.T) {
	e := load(t, Options{}, "pipe 1 config bw 1Kbit/s queue 100B mask src-ip 0xffffffff\n"+
		"add 7 pipe 1 udp from any to any\n")
	e.rates.most = 4
	send := func(from string) firewall.Verdict {
		return e.Worker(0).Evaluate(in(1), udp(t, from+":1", "2.2.2.2:2"))
	}
	n := 100 / len(udp(t, "1.1.1.1:1", "2.2.2.2:2"))
	if v := send("1.1.1.1"); !v.Pass || n < 2 {
		t.Fatalf("the first packet of %d: %+v", n, v)
	}
	passed := 0
	for k := range 200 {
		switch v := send(fmt.Sprintf("3.1.1.%d", k+1)); {
		case v.Pass:
			passed++
		case v.Reason != firewall.ReasonRatesFull || v.Rule != 7:
			t.Fatalf("packet %d of the flood: %+v", k, v)
		}
	}
	if want := 3 + n; passed != want { // the places that were free, and the shared bucket
		t.Errorf("%d packets of the flood passed, not %d", passed, want)
	}
	for k := 2; k <= n+1; k++ {
		want := firewall.ReasonRule
		if k > n {
			want = firewall.ReasonPipe
		}
		if v := send("1.1.1.1"); v.Reason != want {
			t.Errorf("packet %d of the source that was there before: %+v", k, v)
		}
	}
}

// TestLoadKeepsPipes: a pipe that stays keeps its buckets, also when ids run out, one that changes
// begins with full ones.
func TestLoadKeepsPipes(t *testing.T) {
	rules := "pipe 1 config bw 1Kbit/s queue 30B mask src-ip /32\npipe 2 config bw 1Kbit/s queue " +
		"30B\nadd 10 pipe 1 udp from any to any 1\nadd 20 pipe 2 udp from any to any 2\n"
	e := load(t, Options{}, rules)
	check := func(when string, want firewall.Reason) {
		t.Helper()
		for _, to := range []string{"2.2.2.2:1", "2.2.2.2:2"} {
			if v := e.Worker(0).Evaluate(in(1), udp(t, "1.1.1.1:1", to)); v.Reason != want {
				t.Errorf("%s: %s: %v, not %v", when, to, v.Reason, want)
			}
		}
	}
	check("first", firewall.ReasonRule)
	e.nextID = maxIDs + 1
	if err := e.Load(compiled(t, "add 1 count ip from any to any\n"+rules)); err != nil {
		t.Fatal(err)
	}
	check("after a load", firewall.ReasonPipe)
	if err := e.Load(compiled(t, strings.ReplaceAll(rules, "30B", "31B"))); err != nil {
		t.Fatal(err)
	}
	if n := len(e.rates.all) + len(e.rates.whole); n != 0 {
		t.Errorf("%d buckets of pipes that are gone", n)
	}
	check("after a change", firewall.ReasonRule)
}

// TestPipeOfAState: the pipe of the rule that made a state carries every packet of the flow.
func TestPipeOfAState(t *testing.T) {
	e := load(t, Options{}, "pipe 1 config bw 1Kbit/s queue 100B\nadd 1 check-state\n"+
		"add 2 pipe 1 udp from any to any keep-state\n")
	pkt, passed := udp(t, "1.1.1.1:1", "2.2.2.2:2"), 0
	for range 20 {
		if e.Worker(0).Evaluate(in(1), pkt).Pass {
			passed++
		}
	}
	if want := 100 / len(pkt); passed != want {
		t.Errorf("%d packets passed, not %d", passed, want)
	}
}
