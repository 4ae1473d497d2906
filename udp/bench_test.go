package udp

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkRoundTrip sends a batch to the socket itself and reads it back.
func BenchmarkRoundTrip(b *testing.B) {
	for _, n := range []int{1, 8, 64, 512} {
		for _, offload := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/offload=%v", n, offload), func(b *testing.B) {
				c := listen(b, "udp4", localhost("udp4"), Config{NoGSO: !offload, GRO: offload})
				c.SetDeadline(time.Time{})
				out, in := make([]Message, n), make([]Message, n)
				for i := range out {
					out[i] = Message{Buffers: [][]byte{make([]byte, 1400)}, Addr: c.LocalAddrPort()}
					in[i].Buffers = [][]byte{make([]byte, 2048)}
				}
				reader := c.NewReader(4)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.WriteBatch(out); err != nil {
						b.Fatal(err)
					}
					for got := 0; got < n; {
						if offload {
							msgs, err := reader.ReadBatch()
							if err != nil {
								b.Fatal(err)
							}
							got += len(msgs)
							continue
						}
						k, err := c.ReadBatch(in[got:])
						if err != nil {
							b.Fatal(err)
						}
						got += k
					}
				}
			})
		}
	}
}
