package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// optionOrders are TCP options with and without a window scale: usual orders, ones that have to be
// read one by one, and 200 at random.
func optionOrders() [][]byte {
	segment, sack, scale, nop, stamps := []byte{2, 4, 5, 180}, []byte{4, 2}, []byte{3, 3, 7},
		[]byte{1}, []byte{8, 10, 0, 0, 0, 1, 0, 0, 0, 2}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	orders := [][]byte{
		nil, // none
		segment,
		// Linux; without time stamps; without SACK
		join(segment, sack, stamps, nop, scale),
		join(segment, nop, nop, sack, nop, scale),
		join(segment, nop, scale),
		// macOS, Windows
		join(segment, nop, scale, nop, nop, stamps, sack, []byte{0, 0}),
		join(segment, nop, scale, nop, nop, sack),
		join(nop, scale, segment),
		join(segment, sack, stamps, nop, []byte{3, 3, 15}), // more than there is
		join(segment, sack, stamps, nop, []byte{3, 2, 7}),  // a length that is none
		join(segment, sack, stamps, []byte{0}, scale),      // behind the end
		join(segment, nop, nop, sack, nop, []byte{3, 4, 7, 0}, nop, nop, nop),
		join([]byte{2, 3, 5}, nop, nop, scale, nop, nop),
		join(segment, []byte{3, 4, 3, 3}),
	}
	random := rand.New(rand.NewPCG(18, 3))
	pieces := [][]byte{segment, sack, scale, nop, stamps, {0}, {3, 3, 14}, {3, 3, 200}, {3, 1},
		{30, 5, 3, 3, 3}}
	for range 200 {
		var o []byte
		for range random.IntN(6) {
			o = append(o, pieces[random.IntN(len(pieces))]...)
		}
		for len(o)%4 != 0 {
			o = append(o, byte(random.IntN(3)))
		}
		if len(o) <= 40 {
			orders = append(orders, o)
		}
	}
	return orders
}

// handshake has a SYN and a SYN-ACK with the same options pass, and returns what WindowScale reads
// in each: a line of the shift and whether there is one.
func (a *asker) handshake(port uint16, options []byte) (scales string) {
	a.t.Helper()
	there := build.TCP{SrcPort: port, DstPort: 80, Seq: 1000, Window: 60000,
		Flags: packet.FlagSYN, Options: options}
	back := build.TCP{SrcPort: 80, DstPort: port, Seq: 5000, Ack: 1001, Window: 60000,
		Flags: packet.FlagSYN | packet.FlagACK, Options: options}
	var read packet.Packet
	for i, s := range []build.TCP{there, back} {
		ip := a.ip
		if i == 1 {
			ip.Src, ip.Dst = ip.Dst, ip.Src
		}
		b := enginetest.Packet(a.t, ip, s)
		v, err := a.e.Evaluate(&a.Input, b)
		a.must(err)
		if !v.Pass {
			a.t.Fatalf("%v: %+v", options, v)
		}
		read.Decode(b)
		shift, ok := read.WindowScale(b)
		scales += fmt.Sprintln(min(shift, 14), ok)
	}
	return scales
}

// TestScaleInEveryOrder: the state of a connection holds the window scales of its SYN and SYN-ACK
// as packet.WindowScale reads them, whatever the order of the options. The first SYN takes the slow
// path and the others the fast path, where usual orders are compared as words.
func TestScaleInEveryOrder(t *testing.T) {
	e := newEngine(t)
	a := newAsker(t, e, "add 50 check-state\nadd 100 allow tcp from any to any 80 keep-state\n")
	orders := optionOrders()
	want := map[uint16]string{}
	for n, o := range orders {
		port := uint16(2000 + n)
		want[port] = a.handshake(port, o)
	}
	seen := 0
	for x, err := range e.entries() {
		a.must(err)
		s, _ := x.state()
		k := x.key()
		port := max(uint16(k.Ports), uint16(k.Ports>>16))
		got := ""
		for _, d := range s.Sides {
			got += fmt.Sprintln(d.Scale, d.Flags&flow.SideScaled != 0)
		}
		if got != want[port] {
			t.Errorf("options %v: the state has\n%sand the options\n%s", orders[port-2000], got,
				want[port])
		}
		seen++
	}
	if seen != len(orders) {
		t.Errorf("%d states of %d connections", seen, len(orders))
	}
}
