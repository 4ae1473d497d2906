package enginetest

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// version is a rule set and the tables that came with it.
type version struct {
	program *program.Program
	tables  map[string][]rule.TableEntry
}

// RunReplace alternates between two versions of rules and tables while packets are evaluated as
// fast as can be. Both versions refuse one packet and pass another; rules of the one with a table
// of the other do the opposite. That tables and rules set one after the other are noticed shows
// that the packets come fast enough.
func RunReplace(t *testing.T, e Subject, times int) {
	t.Helper()
	one := []rule.TableEntry{{Prefix: netip.MustParsePrefix("10.0.0.2/32")}}
	a := version{replaceProgram(t, `add 10 allow udp from table(t) to any 9
add 20 allow udp from table(u) to any 10
`), map[string][]rule.TableEntry{"t": nil, "u": one}}
	b := version{replaceProgram(t, `add 10 deny udp from table(t) to any 9
add 20 deny udp from table(u) to any 10
add 30 allow udp from any to any 9,10
`), map[string][]rule.TableEntry{"t": one, "u": nil}}
	if err := e.Replace(a.program, a.tables); err != nil {
		t.Fatal(err)
	}
	var evaluated, passed, refused atomic.Int64
	var end atomic.Bool
	var all sync.WaitGroup
	defer all.Wait()
	defer end.Store(true)
	probe := func(port uint16, pass bool, wrong *atomic.Int64) {
		p, err := build.Packet(build.IPv4{Src: netip.MustParseAddr("10.0.0.2"),
			Dst: netip.MustParseAddr("10.0.0.1")},
			build.UDP{SrcPort: 4000, DstPort: port})
		if err != nil {
			t.Error(err)
		}
		for !end.Load() {
			v, err := e.Evaluate(&firewall.Input{Now: time.Second, Hook: firewall.Hook{Recv: 1}}, p)
			if err != nil {
				t.Error(err)
				return
			}
			evaluated.Add(1)
			if v.Pass != pass {
				wrong.Add(1)
			}
		}
	}
	all.Go(func() { probe(9, false, &passed) })
	all.Go(func() { probe(10, true, &refused) })
	from := evaluated.Load()
	for i := range times {
		v := [2]version{b, a}[i%2]
		if err := e.Replace(v.program, v.tables); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d packets were evaluated while %d versions replaced each other", evaluated.Load()-from,
		times)
	if passed.Load() > 0 || refused.Load() > 0 {
		t.Errorf("%d packets passed that both versions refuse, %d were refused that both pass",
			passed.Load(), refused.Load())
	}
	for i := 0; passed.Load() == 0 || refused.Load() == 0; i++ {
		if i == 10000 {
			t.Fatal("tables that are set before the rules are not noticed: the packets come too " +
				"slowly")
		}
		v := [2]version{b, a}[(times+i)%2]
		err := errors.Join(e.SetTable("t", v.tables["t"]), e.SetTable("u", v.tables["u"]),
			e.Load(v.program))
		if err != nil {
			t.Fatal(err)
		}
	}
}

func replaceProgram(t *testing.T, text string) *program.Program {
	t.Helper()
	set, err := rule.ParseFile("rules", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rule.Compile(set, rule.CompileOptions{Strict: true, Default: op.ActionDeny})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
