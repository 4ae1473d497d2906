package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
)

// TestManyRules compares the engine with the reference model under so many rules that the
// classifier's vectors have summaries. There are rules that decide far apart, rules that only count
// in between, jumps, and blocks of rules that promise a match and have none.
func TestManyRules(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	seed := testrand.Seed(t)
	g := rand.New(rand.NewPCG(seed, 1))
	var text strings.Builder
	const rules = 3000
	for i := range rules {
		action := []string{"deny", "allow", "count", "count", "count"}[g.IntN(5)]
		if g.IntN(100) == 0 {
			action = fmt.Sprintf("skipto %d", i+2+g.IntN(rules-i))
		}
		from, port := fmt.Sprintf("10.0.%d.0/24", g.IntN(40)), fmt.Sprint(1000+g.IntN(40))
		if g.IntN(50) == 0 {
			from = "any"
		}
		fmt.Fprintf(&text, "add %d %s udp from %s to any %s\n", i+1, action, from, port)
	}
	fmt.Fprintf(&text, "add 60000 allow udp from 10.0.0.0/17 to any 1000-1200 keep-state\n")
	set, err := rule.ParseFile("rules", text.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	compiled := rule.CompileOptions{Strict: true}
	p, err := rule.Compile(set, compiled)
	if err != nil {
		t.Fatal(err)
	}
	e := newEngineWith(t, firewall.DefaultOptions())
	if err := e.Load(p); err != nil {
		t.Fatal(err)
	}
	model := enginetest.NewModel(firewall.DefaultOptions())
	model.Load(set, compiled, enginetest.Keys(p))
	late := 0
	for i := range 4000 {
		from := netip.AddrFrom4([4]byte{10, 0, byte(g.IntN(60)), byte(g.IntN(4))})
		b := enginetest.Packet(t, build.IPv4{Src: from, Dst: netip.MustParseAddr("10.9.0.1")},
			build.UDP{SrcPort: uint16(g.IntN(4)), DstPort: uint16(1000 + g.IntN(60))})
		in := firewall.Input{Now: time.Hour + time.Duration(i)*time.Millisecond,
			Hook: firewall.Hook{Recv: 1}}
		got, err := e.Evaluate(&in, b)
		if err != nil {
			t.Fatal(err)
		}
		if want := model.Evaluate(&in, b); got != want {
			t.Fatalf("packet %d from %v: %+v, the model says %+v", i, from, got, want)
		}
		if got.Rule > rules/2 {
			late++
		}
	}
	if late < 100 {
		t.Errorf("only %d packets were decided by the second half of the rules", late)
	}
	counts, err := e.Rules()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range model.Rules() {
		if counts[i].Packets != want.Packets {
			t.Errorf("rule %d counts %d packets, the model %d", want.Number, counts[i].Packets,
				want.Packets)
		}
	}
}
