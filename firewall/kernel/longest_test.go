package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet/build"
)

// TestLongestWalk: the kernel evaluates rules that come close to the bound of the compiler to their
// end. (On a machine that does nothing else a packet takes 6 ms.)
func TestLongestWalk(t *testing.T) {
	text := ""
	for i := range 7 {
		text += fmt.Sprintf("add %d call 1000 ip from any to any\n", 1+i)
	}
	text += "add 500 deny ip from any to any\n" +
		strings.Repeat("add 1000 count ip from any to any\n", 16200) + "add 60000 return\n"
	e, p := newEngine(t), compile(t, text)
	ifs := []firewall.Interface{{Index: 1, Name: "eth0",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}}
	if err := errors.Join(e.SetInterfaces(ifs), e.Load(p)); err != nil {
		t.Fatal(err)
	}
	b := enginetest.Packet(t, build.IPv4{Src: netip.MustParseAddr("10.0.0.2"),
		Dst: netip.MustParseAddr("10.0.0.1")}, build.UDP{SrcPort: 1, DstPort: 9})
	_, took, err := e.objects.WeirIn.Benchmark(append(frameFor(b), b...), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("it took %v; %d steps of at most %d are counted", took, p.LongestWalk(),
		program.MaxWalk)
	counted, err := e.Rules()
	if err != nil {
		t.Fatal(err)
	}
	steps := int64(0)
	for _, r := range counted {
		steps += int64(r.Packets)
	}
	// each call, all counts, and the return; at the end the deny
	if want := int64(7*(1+16200+1) + 1); steps != want || steps > p.LongestWalk() {
		t.Errorf("%d steps, not %d, of at most %d", steps, want, p.LongestWalk())
	}
}
