package udp

import (
	"fmt"
	"testing"
)

// TestNoAllocations: a round trip of a batch allocates nothing, with every Config.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop items")
	}
	all := Config{PacketInfo: true, ECN: true, Timestamps: true, Errors: true}
	allGRO := all
	allGRO.GRO = true
	for name, config := range map[string]Config{
		"no gso": {NoGSO: true}, "gso": {}, "gro": {GRO: true}, "all": all, "all+gro": allGRO,
	} {
		for _, network := range []string{"udp4", "udp6"} {
			for _, n := range []int{1, 8, 64, 512} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, network, n), func(t *testing.T) {
					c := listen(t, network, localhost(network), config)
					out := make([]Message, n)
					for i := range out {
						out[i] = Message{Buffers: [][]byte{make([]byte, 100)},
							Addr: c.LocalAddrPort(), ECN: ECT0}
					}
					in := make([]Message, n)
					for i := range in {
						in[i].Buffers = [][]byte{make([]byte, 200)}
					}
					reader := c.NewReader(4)
					if got := testing.AllocsPerRun(50, func() {
						if _, err := c.WriteBatch(out); err != nil {
							t.Fatal(err)
						}
						for left := n; left > 0; {
							if config.GRO {
								msgs, err := reader.ReadBatch()
								if err != nil {
									t.Fatal(err)
								}
								left -= len(msgs)
								continue
							}
							k, err := c.ReadBatch(in)
							if err != nil {
								t.Fatal(err)
							}
							left -= k
						}
					}); got != 0 {
						t.Errorf("%v allocations in a round trip of %d", got, n)
					}
				})
			}
		}
	}
}
