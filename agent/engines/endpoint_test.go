package engines

import (
	"net/netip"
	"testing"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/rule"
)

// TestStatesGoWithTheirPod: with a pod its states end in both engines: none lets packets of the
// next pod with its address pass.
func TestStatesGoWithTheirPod(t *testing.T) {
	nstest.RequireRoot(t)
	node := nstest.New(t).Node("host")
	node.IP("link add pod type veth")
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
	p := enginetest.Compile(t, "add allow udp from any to any keep-state", rule.CompileOptions{})
	if err := e.Load(p); err != nil {
		t.Fatal(err)
	}
	pod := forward.Endpoint{Index: uint32(node.Link("pod").Index), Name: "pod:a", MTU: 1500,
		Addrs: []netip.Addr{netip.MustParseAddr("10.88.0.2"), netip.MustParseAddr("fd88::2")}}
	if err := node.Do(func() error { return e.SetEndpoint(pod) }); err != nil {
		t.Fatal(err)
	}
	state := func(from, to string) firewall.State {
		return firewall.State{Proto: 17, From: netip.MustParseAddrPort(from),
			To: netip.MustParseAddrPort(to), Key: p.Rules[0].Key, Rule: p.Rules[0].Number,
			FlowName: p.Flows[p.Rules[0].Flow]}
	}
	all := []firewall.State{state("10.88.0.2:4000", "192.0.2.2:53"),
		state("192.0.2.2:4000", "10.88.0.2:53"), state("[fd88::2]:4000", "[2001:db8::2]:53"),
		state("10.88.0.3:4000", "192.0.2.2:53")} // the last one is another pod's
	if n, err := guard.Adopt(all); n != len(all) || err != nil {
		t.Fatal(n, err)
	}
	if n, err := tunnel.Adopt(all, clock.Now()); n != len(all) || err != nil {
		t.Fatal(n, err)
	}
	if err := node.Do(func() error { return e.DeleteEndpoint(pod.Index) }); err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]firewall.Engine{"kernel": guard, "tunnel": tunnel} {
		var left []netip.AddrPort
		for s, err := range one.States() {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, s.From)
		}
		if len(left) != 1 || left[0] != all[3].From {
			t.Errorf("%s: states from %v are left", name, left)
		}
	}
}
