package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet/build"
)

// TestLongestWalk: rules that come close to the bound of the compiler do not take a packet
// longer than the bound is meant to say. (On a machine that does nothing else it takes 6 ms.)
func TestLongestWalk(t *testing.T) {
	text := ""
	for i := range 7 {
		text += fmt.Sprintf("add %d call 1000 ip from any to any\n", 1+i)
	}
	text += "add 500 deny ip from any to any\n" +
		strings.Repeat("add 1000 count ip from any to any\n", 16200) + "add 60000 return\n"
	e := newEngine(t)
	ifs := []firewall.Interface{{Index: 1, Name: "eth0",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}
	if err := errors.Join(e.SetInterfaces(ifs), e.Load(compile(t, text))); err != nil {
		t.Fatal(err)
	}
	b := enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr("10.0.0.2"),
		Dst: netip.MustParseAddr("10.0.0.1")}, build.UDP{SrcPort: 1, DstPort: 9})
	least := time.Hour
	for range 20 {
		_, took, err := e.objects.WeirIn.Benchmark(append(frameFor(b), b...), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		least = min(least, took)
	}
	t.Logf("%v for 113,400 steps of at most %d", least, program.MaxWalk)
	if least > 30*time.Millisecond {
		t.Errorf("a packet took %v", least)
	}
	counted, err := e.Rules()
	if err != nil || len(counted) < 16000 || counted[10].Packets == 0 {
		t.Errorf("%d counters, %v", len(counted), err)
	}
}
