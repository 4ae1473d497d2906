package nat

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet"
)

// TestRulesChecked: what an instance of nat redirects is not the host's, no pod's, and not the only
// address of an interface. The host becomes a router for IPv4 as soon as there is an instance.
func TestRulesChecked(t *testing.T) {
	router := 0
	s := New(Config{
		SetForwarding: func(four, six bool) error {
			if four && !six {
				router++
			}
			return nil
		},
		IsMe: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.1") },
		IsOnly: func(a netip.Addr, _ []netip.Addr) bool {
			return a == netip.MustParseAddr("203.0.113.1")
		}})
	port := func(to string) program.NAT {
		return program.NAT{Number: 7, Ports: []program.NATPort{{Proto: uint8(packet.ProtoTCP),
			Port: 80, Count: 1, To: netip.MustParseAddrPort(to)}}}
	}
	addr := func(local, public string) program.NAT {
		return program.NAT{Number: 7, Addrs: []program.NATAddr{{Local: netip.MustParseAddr(local),
			Public: netip.MustParseAddr(public)}}}
	}
	for _, c := range []struct {
		nat  program.NAT
		want string
	}{
		{port("10.0.0.5:80"), ""},
		{port("10.0.0.1:80"), "nat 7: redirect_port: 10.0.0.1 is an address of this host"},
		{port("10.88.0.5:80"), "nat 7: redirect_port: 10.88.0.5 is in pods.ranges"},
		{addr("10.0.0.5", "203.0.113.9"), ""},
		{addr("10.0.0.1", "203.0.113.9"), "nat 7: redirect_addr: 10.0.0.1 is an address"},
		{addr("10.0.0.5", "203.0.113.1"), "nat 7: redirect_addr: 203.0.113.1 is the only address"},
	} {
		pods := []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}
		err := s.CheckRules(&program.Program{NATs: []program.NAT{c.nat}}, pods)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, not %q", c.nat, err, c.want)
		}
		// what was in force before is refused for pods alone: addresses change
		err = s.CheckRules(&program.Program{NATs: []program.NAT{c.nat}, Returns: true}, pods)
		if (err != nil) != strings.Contains(c.want, "pods") {
			t.Errorf("%+v returns: %v", c.nat, err)
		}
	}
	if err := s.SetRules(nil); err != nil || router != 0 {
		t.Errorf("without nat: %v, a router %d times", err, router)
	}
	if err := s.SetRules([]program.NAT{port("10.0.0.5:80")}); err != nil || router != 1 {
		t.Errorf("with nat: %v, a router %d times", err, router)
	}
}

// TestRulesInForceStay: other rules can change while an instance in force has a target that is an
// address of the host by now.
func TestRulesInForceStay(t *testing.T) {
	own := false
	s := New(Config{SetForwarding: func(_, _ bool) error { return nil },
		IsMe: func(netip.Addr) bool { return own }})
	to := func(number uint16, target string) *program.Program {
		return &program.Program{NATs: []program.NAT{{Number: number, Ports: []program.NATPort{{
			Proto: uint8(packet.ProtoTCP), Port: 80, Count: 1,
			To: netip.MustParseAddrPort(target)}}}}}
	}
	if err := s.SetRules(to(7, "10.0.0.5:80").NATs); err != nil {
		t.Fatal(err)
	}
	own = true
	if err := s.CheckRules(to(7, "10.0.0.5:80"), nil); err != nil {
		t.Errorf("as before: %v", err)
	}
	for _, p := range []*program.Program{to(7, "10.0.0.5:81"), to(8, "10.0.0.5:80")} {
		if err := s.CheckRules(p, nil); err == nil {
			t.Errorf("%+v is taken", p.NATs)
		}
	}
}

// TestRulesGiveAllAddressesAway: what all instances give away is looked at together.
func TestRulesGiveAllAddressesAway(t *testing.T) {
	first, second := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
	s := New(Config{
		IsMe: func(netip.Addr) bool { return false },
		IsOnly: func(a netip.Addr, away []netip.Addr) bool {
			return slices.Contains(away, first) && slices.Contains(away, second)
		}})
	gives := func(number uint16, public netip.Addr) program.NAT {
		return program.NAT{Number: number, Addrs: []program.NATAddr{
			{Local: netip.MustParseAddr("10.0.0.5"), Public: public}}}
	}
	p := &program.Program{NATs: []program.NAT{gives(1, first)}}
	if err := s.CheckRules(p, nil); err != nil {
		t.Error(err)
	}
	p.NATs = append(p.NATs, gives(2, second))
	if err := s.CheckRules(p, nil); err == nil {
		t.Error("nothing reaches the host any more")
	}
}
