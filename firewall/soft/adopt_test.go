package soft

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// TestAdopt: a connection that was open before continues in both directions, whichever end made it;
// nothing else does.
func TestAdopt(t *testing.T) {
	e := load(t, Options{Options: firewall.DefaultOptions()},
		"add 10 allow tcp from any to any 80 in setup keep-state\n"+
			"add 20 allow udp from any to any 53 keep-state :dns\n")
	w := e.Worker(0)
	passes := func(hook *firewall.Input, pkt []byte) bool {
		v := w.Evaluate(hook, pkt)
		return v.Pass
	}
	request := tcp(t, "192.0.2.9:4000", "192.0.2.1:80", packet.FlagACK, 1000, 5000)
	reply := tcp(t, "192.0.2.1:80", "192.0.2.9:4000", packet.FlagACK, 5000, 1000)
	if passes(in(1), request) || passes(out(1), reply) {
		t.Fatal("a connection passes in mid-stream")
	}
	key := e.cfg.rules[0].Key
	connection := firewall.State{Proto: packet.ProtoTCP,
		From: netip.MustParseAddrPort("192.0.2.9:4000"),
		To:   netip.MustParseAddrPort("192.0.2.1:80"),
		Key:  key, Rule: 10, FlowName: e.cfg.prog.Flows[e.cfg.rules[0].Flow]}
	for i, want := range []int{1, 0} { // the second time it is there already
		if n, err := e.Adopt([]firewall.State{connection}, 1e9); err != nil || n != want {
			t.Fatalf("Adopt, time %d: %d, %v", i, n, err)
		}
	}
	if !passes(in(2), request) || !passes(out(2), reply) {
		t.Error("the adopted connection does not pass")
	}
	if passes(in(2), tcp(t, "192.0.2.9:4001", "192.0.2.1:80", packet.FlagACK, 1000, 5000)) {
		t.Error("another connection passes, too")
	}
	got := states(t, e)
	if len(got) != 1 || got[0].From != connection.From || got[0].To != connection.To ||
		got[0].Rule != 10 ||
		got[0].Packets != [2]uint64{1, 1} {
		t.Errorf("states: %+v", got)
	}
	if !passes(in(300), request) {
		t.Error("the adopted connection has not the lifetime of an established one")
	}
	if n, err := e.DeleteStates(func(firewall.State) bool {
		return true
	}); n != 1 || err != nil || e.shards[0].live[packet.ProtoTCP] != 0 {
		t.Errorf("DeleteStates: %d, %v, %d live", n, err, e.shards[0].live[packet.ProtoTCP])
	}
	connection.Key++
	if _, err := e.Adopt([]firewall.State{connection}, 1e9); err == nil {
		t.Error("a state of a rule that is not there is adopted")
	}
	connection.Key, connection.FlowName = key, "unused"
	if _, err := e.Adopt([]firewall.State{connection}, 1e9); err == nil {
		t.Error("a state of a flow name that is not there is adopted")
	}
}
