package adopt

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
)

func TestOpenings(t *testing.T) {
	ap := netip.MustParseAddrPort
	got := Openings([]nl.TCPSocket{
		{Local: ap("[::]:22"), State: nl.TCPListen},
		{Local: ap("10.0.0.1:80"), State: nl.TCPListen},
		{Local: ap("127.0.0.1:81"), State: nl.TCPListen},
		{Local: ap("10.0.0.1:22"), Remote: ap("10.0.0.9:4000"), State: nl.TCPEstablished},
		{Local: ap("[fd00::1]:22"), Remote: ap("[fd00::9]:4001"), State: nl.TCPCloseWait},
		{Local: ap("[fd00::1]:80"), Remote: ap("[fd00::9]:4002"), State: nl.TCPEstablished},
		{Local: ap("10.0.0.1:5000"), Remote: ap("10.0.0.9:443"), State: nl.TCPFinWait2},
		{Local: ap("10.0.0.1:5001"), Remote: ap("10.0.0.9:443"), State: nl.TCPTimeWait},
		{Local: ap("10.0.0.1:5002"), Remote: ap("10.0.0.9:443"), State: nl.TCPSynSent},
		{Local: ap("127.0.0.1:81"), Remote: ap("127.0.0.1:5003"), State: nl.TCPEstablished},
	})
	want := [][]Opening{
		{{true, ap("10.0.0.9:4000"), ap("10.0.0.1:22"), 0}},
		{{true, ap("[fd00::9]:4001"), ap("[fd00::1]:22"), 0}},
		{{false, ap("[fd00::1]:80"), ap("[fd00::9]:4002"), 0},
			{true, ap("[fd00::9]:4002"), ap("[fd00::1]:80"), 0}},
		{{false, ap("10.0.0.1:5000"), ap("10.0.0.9:443"), 0},
			{true, ap("10.0.0.9:443"), ap("10.0.0.1:5000"), 0}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestHookOf: a connection whose route is not known for another reason than that there is none is
// an error, since its state is not made.
func TestHookOf(t *testing.T) {
	remote := netip.MustParseAddrPort("[2001:db8::9]:4000")
	local := netip.MustParseAddrPort("[2001:db8::1]:22")
	answer := func(err error) func(netip.Addr) (nl.Route, error) {
		return func(a netip.Addr) (nl.Route, error) {
			if a != remote.Addr() {
				t.Errorf("the route to %s is asked for", a)
			}
			return nl.Route{Link: 7}, err
		}
	}
	for _, c := range []struct {
		opening Opening
		err     error
		hook    firewall.Hook
		ok, bad bool
	}{
		{opening: Opening{In: true, From: remote, To: local},
			hook: firewall.Hook{Dir: firewall.In, Recv: 7}, ok: true},
		{opening: Opening{From: local, To: remote},
			hook: firewall.Hook{Dir: firewall.Out, Xmit: 7}, ok: true},
		{opening: Opening{From: local, To: remote, Link: 9}, err: unix.EAGAIN,
			hook: firewall.Hook{Dir: firewall.Out, Xmit: 9}, ok: true},
		{opening: Opening{From: local, To: remote}, err: fmt.Errorf("x: %w", unix.ENETUNREACH)},
		{opening: Opening{From: local, To: remote}, err: unix.EAGAIN, bad: true},
		{opening: Opening{From: local, To: remote}, err: unix.ENOBUFS, bad: true},
	} {
		hook, ok, err := hookOf(answer(c.err), c.opening)
		if hook != c.hook || ok != c.ok || (err != nil) != c.bad {
			t.Errorf("%+v, %v: %+v, %v, %v", c.opening, c.err, hook, ok, err)
		}
	}
}
