package engines

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// TestEnginesRunTheSame: a Program that one engine refuses neither runs, and what the rules before
// had made is still there: states, counters, and the rules.
func TestEnginesRunTheSame(t *testing.T) {
	nstest.RequireRoot(t)
	guard, err := kernel.Open(kernel.Config{Options: firewall.DefaultOptions()})
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	tunnel, err := soft.New(soft.Options{Options: firewall.DefaultOptions()})
	if err != nil {
		t.Fatal(err)
	}
	e := &Pair{kernel: guard}
	e.SetTunnel(tunnel)
	first := enginetest.Compile(t,
		"add 10 allow tcp from any to any keep-state\nadd 20 deny udp from any to any",
		rule.CompileOptions{})
	if err := e.Load(first); err != nil {
		t.Fatal(err)
	}
	state := firewall.State{Proto: 6, From: netip.MustParseAddrPort("192.0.2.1:4000"),
		To:  netip.MustParseAddrPort("192.0.2.2:80"),
		Key: first.Rules[0].Key, Rule: 10, FlowName: first.Flows[first.Rules[0].Flow]}
	if n, err := guard.Adopt([]firewall.State{state}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := tunnel.Adopt([]firewall.State{state}, clock.Now()); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	same := func(what string) {
		t.Helper()
		for name, one := range map[string]firewall.Engine{"kernel": guard, "tunnel": tunnel} {
			rules, err := one.Rules()
			if err != nil || len(rules) != len(first.Rules) || rules[0].Key != first.Rules[0].Key ||
				rules[1].Key != first.Rules[1].Key {
				t.Errorf("%s: the engine of the %s runs %+v; %v", what, name, rules, err)
			}
			states := 0
			for s, err := range one.States() {
				if states++; err != nil || s.To != state.To {
					t.Errorf("%s: the engine of the %s has %+v; %v", what, name, s, err)
				}
			}
			if states != 1 {
				t.Errorf("%s: the engine of the %s has %d states", what, name, states)
			}
		}
	}
	same("at first")

	second := func() *program.Program {
		return enginetest.Compile(t, "add 30 deny ip from 192.0.2.0/24 to any",
			rule.CompileOptions{})
	}
	both := second() // refused by both engines: the last rule is not for everything
	both.Rules[len(both.Rules)-1].Prob = 1
	if err := soft.CheckProgram(both); err == nil {
		t.Fatal("the engine of the tunnel accepts a last rule with prob")
	}
	if err := e.Load(both); err == nil {
		t.Error("what both engines refuse is in force")
	}
	same("refused by both")

	kernels := second() // refused by the kernel engine alone: its records hold no longer name
	kernels.Flows = append(kernels.Flows, strings.Repeat("x", 100))
	if err := soft.CheckProgram(kernels); err != nil {
		t.Fatal(err)
	}
	if err := e.Load(kernels); err == nil {
		t.Error("what the kernel refuses is in force")
	}
	same("refused by the kernel")

	if err := e.Load(second()); err != nil {
		t.Errorf("a good Program after bad ones: %v", err)
	}
}
