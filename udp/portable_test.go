package udp

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// TestPortableReads reads what the rings sent with the portable implementation: whole, cut in
// several buffers, and too long.
func TestPortableReads(t *testing.T) {
	for _, network := range []string{"udp4", "udp6"} {
		t.Run(network, func(t *testing.T) {
			pc, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(localhost(network)))
			if err != nil {
				t.Skipf("no %s here: %v", network, err)
			}
			defer pc.Close()
			pc.SetReadDeadline(time.Now().Add(5 * time.Minute))
			one := portable{pc: pc, stats: &counters{}}
			from := listen(t, network, localhost(network), Config{})
			payload := []byte("0123456789")
			for _, sizes := range [][]int{{64}, {10}, {4, 6}, {4, 2, 64}, {4}, {2, 3}} {
				out := []Message{{Buffers: [][]byte{payload}, Addr: addrPortOf(pc.LocalAddr())}}
				if n, err := from.WriteBatch(out); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				in := []Message{{}}
				space := 0
				for _, size := range sizes {
					in[0].Buffers = append(in[0].Buffers, make([]byte, size))
					space += size
				}
				if n, err := one.read(in); n != 1 || err != nil {
					t.Fatalf("%v: read %d, %v", sizes, n, err)
				}
				want := payload[:min(space, len(payload))]
				got := bytes.Join(in[0].Buffers, nil)
				if in[0].N != len(want) || !bytes.Equal(got[:len(want)], want) {
					t.Errorf("%v: got %d bytes %q, want %q", sizes, in[0].N, got, want)
				}
				if truncated := space < len(payload); in[0].Truncated != truncated {
					t.Errorf("%v: truncated %v, want %v", sizes, in[0].Truncated, truncated)
				}
				if in[0].Addr != from.LocalAddrPort() {
					t.Errorf("came from %s, want %s", in[0].Addr, from.LocalAddrPort())
				}
			}
			if p, c := one.stats.readPackets.Load(), one.stats.truncated.Load(); p != 6 ||
				c != 2 {
				t.Errorf("counted %d packets and %d truncated, want 6 and 2", p, c)
			}
		})
	}
}
