package watch

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet/build"
)

// passing is a worker that lets everything pass.
type passing struct{}

func (passing) EvaluateBatch(_ *firewall.Input, packets [][]byte, out []firewall.Verdict) {
	for i := range packets {
		out[i] = firewall.Verdict{Pass: true}
	}
}

// TestCapturesOfCoalesced: of a packet that was coalesced in the tunnel a capture has the headers.
// Behind them are bytes of others.
func TestCapturesOfCoalesced(t *testing.T) {
	mark := []byte("of others")
	pkt, err := build.Packet(build.IPv4{Src: netip.MustParseAddr("10.88.1.2"),
		Dst: netip.MustParseAddr("10.88.2.2")}, build.UDP{SrcPort: 1000, DstPort: 53},
		build.Data(bytes.Repeat(mark, 100)))
	if err != nil {
		t.Fatal(err)
	}
	c := &Captures{capture: func(func(*firewall.Captured)) error { return nil }}
	sub, err := c.open()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close(sub)
	w := c.WrapWorker(passing{})
	for _, one := range []struct {
		dir     firewall.Direction
		segment uint16
		bytes   int
	}{{firewall.In, 0, captureBytes}, {firewall.Out, 450, captureBytes}, {firewall.In, 450, 28}} {
		w.EvaluateBatch(&firewall.Input{Hook: firewall.Hook{Dir: one.dir},
			Segments: []uint16{one.segment}}, [][]byte{pkt}, make([]firewall.Verdict, 1))
		f := <-sub.frames
		if !bytes.Equal(f.Data, pkt[:one.bytes]) || f.Length != uint32(len(pkt)) {
			t.Errorf("direction %d, segments of %d: %d bytes of %d", one.dir, one.segment,
				len(f.Data), f.Length)
		}
	}
}
