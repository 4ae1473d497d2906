package overlay

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/tailscale/wireguard-go/conn"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
)

// openBind opens a bind on free ports of the loopback's namespace.
func openBind(t *testing.T, offload bool) (*bind, []conn.ReceiveFunc, uint16) {
	t.Helper()
	ns, err := nl.CurrentNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	b := newBind(slog.New(slog.DiscardHandler), ns, 0, offload)
	fns, port, err := b.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, fns, port
}

// TestBindAllocatesNothing sends batches to itself and receives them.
func TestBindAllocatesNothing(t *testing.T) {
	for _, offload := range []bool{true, false} {
		b, fns, port := openBind(t, offload)
		p := b.addPeer(Key{1})
		p.setCandidates([]netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"),
			port)})
		bufs := make([][]byte, 64)
		for i := range bufs {
			bufs[i] = make([]byte, 16+1400)
			bufs[i][16] = typeData
		}
		slab, packets := make([]byte, 2*65535), make([]conn.ReceivedPacket, batchSize)
		if got := testing.AllocsPerRun(100, func() {
			if err := b.Send(bufs, p, 16); err != nil {
				t.Fatal(err)
			}
			for left := len(bufs); left > 0; {
				n, err := fns[0](slab, packets)
				if err != nil {
					t.Fatal(err)
				}
				for _, q := range packets[:n] {
					if q.Size != 1400 || q.Bytes(slab)[0] != typeData {
						t.Fatalf("got %d bytes at %d", q.Size, q.Offset)
					}
					q.Endpoint.(*remoteEndpoint).FromPeer([32]byte{1})
				}
				left -= n
			}
		}); got != 0 {
			t.Errorf("offload %v: %v allocations for a batch", offload, got)
		}
	}
}

// TestReceiveSingly switches between the two ways to receive, with every datagram in its place.
func TestReceiveSingly(t *testing.T) {
	from, _, _ := openBind(t, false) // sends singly
	b, fns, port := openBind(t, true)
	to := &remoteEndpoint{path: path{addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"),
		port)}}
	slab, packets := make([]byte, 2*65535), make([]conn.ReceivedPacket, batchSize)
	most := 0
	for round := range 50 {
		sender := from
		if round%10 == 9 {
			sender = b // GSO packets in between
		}
		bufs := make([][]byte, 128)
		for i := range bufs {
			bufs[i] = make([]byte, 1000)
			bufs[i][0], bufs[i][1] = byte(round), byte(i)
		}
		if err := sender.Send(bufs, to, 0); err != nil {
			t.Fatal(err)
		}
		for next := 0; next < len(bufs); {
			n, err := fns[0](slab, packets)
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, n)
			for _, q := range packets[:n] {
				if p := q.Bytes(slab); len(p) != 1000 || p[0] != byte(round) || p[1] != byte(next) {
					t.Fatalf("round %d: got datagram %d of round %d with %d bytes, want %d", round,
						p[1], p[0], len(p), next)
				}
				next++
			}
		}
	}
	if most < ringSlots {
		t.Errorf("at most %d datagrams came with one call", most)
	}
}

// TestWritingAllocatesNothing coalesces, filters and writes the segments of three GSO packets, as
// the device gives them.
func TestWritingAllocatesNothing(t *testing.T) {
	null, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var worker portWorker
	begin := time.Now()
	d := &tunDevice{filter: FilterBy(&worker, func() time.Duration {
		return time.Since(begin)
	}, nil)}
	if d.raw, err = null.SyscallConn(); err != nil {
		t.Fatal(err)
	}
	d.writers.newItem = func() *tunWriter { return newTunWriter(d) }
	whole, o := gsoPacket(false, 12, 60000, 1, tcpAck)
	var bufs [][]byte
	for range 3 {
		for _, p := range cutAll(t, bytes.Clone(whole), o) {
			bufs = append(bufs, append(make([]byte, 16), p...))
		}
	}
	if got := testing.AllocsPerRun(100, func() {
		if n, err := d.Write(bufs, 16); n != len(bufs) || err != nil {
			t.Fatal(n, err)
		}
	}); got != 0 {
		t.Errorf("%v allocations for a batch", got)
	}
	if d.dropped[firewall.In].Load() != 0 {
		t.Error("packets were refused")
	}
}

// TestCuttingAllocatesNothing segments a GSO packet as it comes from the kernel.
func TestCuttingAllocatesNothing(t *testing.T) {
	whole, _ := gsoPacket(false, 12, 60000, 1, tcpAck)
	head := vnetBytes(1, unix.VIRTIO_NET_HDR_GSO_TCPV4, 52, 1368, 20, 16)
	slab, packets := make([]byte, 2*65535), newPackets()
	d := &tunReader{tun: &tunDevice{}, frames: make([]frame, 0, readLimit), slab: slab}
	if got := testing.AllocsPerRun(100, func() {
		copy(slab[spacing-vnetSize:], head)
		copy(slab[spacing:], whole)
		d.frames = d.frames[:0]
		d.add(spacing, vnetSize+len(whole))
		if n := d.cut(slab, packets); n != 44 {
			t.Fatal(n)
		}
	}); got != 0 {
		t.Errorf("%v allocations for a GSO packet", got)
	}
}
