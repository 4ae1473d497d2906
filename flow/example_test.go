package flow_test

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet/build"
)

// A tracker needs a map of states. first is the end that sent the first packet of a flow.
func Example() {
	type tracked struct {
		flow.State
		first flow.End
	}
	table := map[flow.Key]*tracked{}
	for i, text := range []string{
		"udp 192.0.2.1:4000 -> 192.0.2.2:53 len 40",
		"udp 192.0.2.2:53 -> 192.0.2.1:4000 len 90",
		"udp 192.0.2.1:4000 -> 192.0.2.2:53 len 40",
	} {
		p, b, err := build.ParseText(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		key, from, ok := flow.KeyOf(&p, b, 0)
		if !ok {
			continue // the packet has no flow
		}
		now := time.Duration(i) * time.Millisecond
		seg := flow.SegmentOf(&p, b)
		if s := table[key]; s == nil {
			state, _ := flow.New(p.Proto, &seg, now)
			table[key] = &tracked{state, from}
		} else if r := s.Step(&seg, from.Dir(s.first), now, flow.ModeStrict); r.Drops() {
			fmt.Println("dropped:", r)
		}
		fmt.Println(table[key].Phase())
	}
	// Output:
	// opening
	// answered
	// established
}
