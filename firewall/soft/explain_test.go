package soft

import (
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
	"github.com/weirnet/weir/rule"
)

// load returns an engine that enforces rules, deny by default.
func load(t testing.TB, o Options, rules string) *Engine {
	t.Helper()
	rs, err := rule.ParseFile("test.rules", rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rule.Compile(rs, rule.CompileOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if o.MaxStates == 0 {
		events, workers := o.OnEvent, o.Workers
		o = Options{Options: firewall.DefaultOptions(), Workers: workers, OnEvent: events}
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Load(p); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestNewEnginePassesEverything(t *testing.T) {
	e, err := New(Options{Options: firewall.DefaultOptions()})
	if err != nil {
		t.Fatal(err)
	}
	syn, _ := hex.DecodeString("4500002800000000400600000102030405060708" +
		"0400005000000001000000005002faf000000000")
	v := e.Worker(0).Evaluate(&firewall.Input{}, syn)
	if !v.Pass || v.Rule != program.DefaultNumber {
		t.Errorf("%+v", v)
	}
}

func TestCheckAndExplain(t *testing.T) {
	e := load(t, Options{},
		"add 1 check-state\nadd 10 allow tcp from any to 10.0.0.1 80 setup keep-state\n"+
			"add 20 allow udp from 10.0.0.0/8 to any 53\n")
	ask := func(proto packet.Proto, from, to string) firewall.Verdict {
		return e.Check(&firewall.Input{}, proto, netip.MustParseAddrPort(from),
			netip.MustParseAddrPort(to)).Verdict
	}
	if v := ask(packet.ProtoTCP, "1.2.3.4:5", "10.0.0.1:80"); !v.Pass || v.Rule != 10 ||
		v.State != firewall.StateNew {
		t.Errorf("tcp 80: %+v", v)
	}
	if v := ask(packet.ProtoTCP, "1.2.3.4:5", "10.0.0.1:81"); v.Pass ||
		v.Rule != program.DefaultNumber {
		t.Errorf("tcp 81: %+v", v)
	}
	ex := e.Check(&firewall.Input{Now: time.Second}, packet.ProtoUDP,
		netip.MustParseAddrPort("1.1.1.1:9"), netip.MustParseAddrPort("2.2.2.2:53"))
	want := []Try{{0, 1, FailedState}, {1, 10, FailedProto}, {2, 20, FailedSrc},
		{3, program.DefaultNumber, Matched}}
	if len(ex.Tries) != len(want) {
		t.Fatalf("%+v", ex)
	}
	for i := range want {
		if ex.Tries[i] != want[i] {
			t.Errorf("try %d: %+v, want %+v", i, ex.Tries[i], want[i])
		}
	}
	for s := range e.States() {
		t.Errorf("a question made the state %+v", s)
	}
}

// TestExplainNamesTheResidue: conditions that the bit vectors do not decide are named, too.
func TestExplainNamesTheResidue(t *testing.T) {
	e := load(t, Options{}, `
add 10 count ip from table(a) to any
add 20 count ip from any to me
add 30 count ip from any to any via eth7
add 40 count ip from any to any { recv wan* or recv eth8 }
add 50 count ip from any to any ipttl 3
add 60 count ip from any to any tagged 5
add 70 count ip from any to any verrevpath
add 80 count ip from any to any not via any
add 90 count ip from not 10.0.0.0/8 to any
`)
	if err := e.SetInterfaces([]firewall.Interface{{Index: 1, Name: "eth0"}}); err != nil {
		t.Fatal(err)
	}
	_, b, err := build.ParseText("tcp 10.0.0.5:4000 -> 10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	want := []Outcome{FailedSrc, FailedDst, FailedIface, FailedIface, FailedHeader, FailedTag,
		FailedRoute, FailedIface, FailedSrc, Matched}
	x := e.Explain(&firewall.Input{Hook: firewall.Hook{Recv: 1}}, b)
	if len(x.Tries) != len(want) {
		t.Fatalf("%+v", x.Tries)
	}
	for i, o := range want {
		if x.Tries[i].Outcome != o {
			t.Errorf("rule %d: %v, want %v", x.Tries[i].Number, x.Tries[i].Outcome, o)
		}
	}
}
