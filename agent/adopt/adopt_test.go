package adopt

import (
	"net/netip"
	"reflect"
	"testing"

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
