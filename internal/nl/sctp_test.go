package nl

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/packet"
)

// TestParseEndpoints reads lines as the kernel writes them: those of sockets that listen count,
// once for each address.
func TestParseEndpoints(t *testing.T) {
	const text = " ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS\n" +
		"00000000c1f2a3b4 00000000d1e2f3a4 2   10  26   36412     0 71234 0.0.0.0 \n" +
		"00000000c1f2a3b5 00000000d1e2f3a5 0   10  27   5000   1000 71235 192.0.2.1 10.0.0.1 \n" +
		"00000000c1f2a3b6 00000000d1e2f3a6 2   10  28   5001      0 71236 " +
		"0000:0000:0000:0000:0000:0000:0000:0000 \n" +
		"00000000c1f2a3b7 00000000d1e2f3a7 2   7   29   5002      0 71237 0.0.0.0 \n" +
		"not a line\n"
	var want []Listener
	for _, l := range []struct {
		at    string
		inode uint32
	}{{"0.0.0.0:36412", 71234}, {"192.0.2.1:5000", 71235}, {"10.0.0.1:5000", 71235},
		{"[::]:5001", 71236}} {
		want = append(want, Listener{packet.ProtoSCTP, netip.MustParseAddrPort(l.at), l.inode})
	}
	if got := ParseSCTPListeners(text); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
