package rules

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
)

// behind is a tunnel to some ranges.
type behind []netip.Prefix

func (b behind) Ranges() []netip.Prefix { return b }
func (behind) Port() uint16             { return 51820 }

// TestPanicRequest: a session that the rules of a panic would not keep is refused, and the answer
// to another one lists what stays open.
func TestPanicRequest(t *testing.T) {
	b, e, _ := panicManager(t)
	x := Panics{Explainer: &Explainer{Manager: b, Options: firewall.DefaultOptions(),
		Interfaces: func() []firewall.Interface {
			return []firewall.Interface{{Index: 1, Name: "eth0"}, {Index: 2, Name: "lan0"}}
		}},
		Tunnel:  behind{netip.MustParsePrefix("192.0.2.1/32")},
		IsMe:    func(a netip.Addr) bool { return a == ssh.To.Addr() },
		Guarded: func() []api.Interface { return []api.Interface{{Index: 1, Name: "eth0"}} }}
	for _, s := range []*api.Session{nil, {}, {From: ssh.To, To: ssh.From}} {
		if _, err := x.Begin(t.Context(), api.Panic{Session: s}); !errors.As(err,
			new(errNoSession)) || !flows(e, 4001, 22) {
			t.Errorf("%v: %v", s, err)
		}
	}
	done, err := x.Begin(t.Context(), api.Panic{Session: ssh})
	if err != nil || flows(e, 4001, 22) {
		t.Fatalf("%+v, %v", done, err)
	}
	want := "everything is denied but:\n" +
		"tcp 192.0.2.1:4000 to 192.0.2.2:22: this session; if the host boots, new ones from " +
		"192.0.2.1 to port 22\n" +
		"udp port 51820: the tunnel that it comes through\n" +
		"ARP, neighbour discovery and MLD\nthis host's own DHCP clients\n" +
		"interfaces that are not guarded: lan0"
	if done.Message != want {
		t.Errorf("got\n%s\nwant\n%s", done.Message, want)
	}
	x.Tunnel, x.Explainer.Options.NoEssential = behind{}, true
	if done, err = x.Begin(t.Context(), api.Panic{Force: true}); err != nil ||
		!strings.HasPrefix(done.Message, "everything is denied but:\nARP\nthis host's") {
		t.Errorf("forced: %q, %v", done.Message, err)
	}
	if done, err = x.End(t.Context()); err != nil || done.Rules != 1 || !flows(e, 4001, 22) {
		t.Errorf("the end: %+v, %v", done, err)
	}
}
