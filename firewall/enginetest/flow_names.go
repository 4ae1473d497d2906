package enginetest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/packet/build"
)

// RunFlowNames loads a rule file with as many flow names as a Program can have. Each name is that
// of a rule for one UDP port; a packet to each port must make a state under the rule's flow name.
func RunFlowNames(t *testing.T, e Subject) {
	t.Helper()
	var text strings.Builder
	for i := range program.MaxFlows {
		fmt.Fprintf(&text, "add %d allow udp from any to any %d keep-state :f%d\n", i+1, 1000+i, i)
	}
	p := replaceProgram(t, text.String())
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	if err := e.Load(p); err != nil {
		t.Fatal(err)
	}
	src, dst := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")
	in := &firewall.Input{Now: time.Second, Hook: firewall.Hook{Recv: 1}}
	for i := range program.MaxFlows {
		b, err := build.Packet(build.IPv4{Src: src, Dst: dst},
			build.UDP{SrcPort: 4000, DstPort: uint16(1000 + i)})
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Evaluate(in, b)
		if err != nil || !v.Pass || int(v.Rule) != i+1 || v.State != firewall.StateNew {
			t.Fatalf("port %d: %+v, %v", 1000+i, v, err)
		}
	}
	states := 0
	for s, err := range e.States() {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("f%d", int(s.To.Port())-1000); s.FlowName != want {
			t.Errorf("the state of port %d has the flow name %q, want %q", s.To.Port(), s.FlowName,
				want)
		}
		states++
	}
	if states != program.MaxFlows {
		t.Errorf("%d states, want %d", states, program.MaxFlows)
	}
}
