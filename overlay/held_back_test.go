package overlay

import (
	"bytes"
	"testing"

	"github.com/tailscale/wireguard-go/tun"
)

// layOut puts count packets of size bytes behind at, and numbers them from first on.
func layOut(slab []byte, packets []tun.ReadPacket, at, count, size, first int) int {
	for i := range count {
		for k := range size {
			slab[at+k] = byte(first + i)
		}
		packets[i] = tun.ReadPacket{Offset: at, Size: size}
		at += size + spacing
	}
	return at
}

// TestHeldBack: of GSO packets of 47 segments, 45 fill a GSO packet of datagrams. Every batch is a
// multiple of 45, but those in which too much would be kept back. All packets come in order.
func TestHeldBack(t *testing.T) {
	var s heldBack
	slab, packets := make([]byte, 2*65535), newPackets()
	var got []byte
	sent, batches := 0, []int{}
	for range 20 {
		n, at := s.restore(slab, packets)
		layOut(slab, packets[n:], at, 47, 1420, sent)
		sent += 47
		n += 47
		n -= s.keep(slab, packets[:n], 1420)
		batches = append(batches, n)
		for _, p := range packets[:n] {
			got = append(got, slab[p.Offset])
		}
	}
	n, _ := s.restore(slab, packets) // nothing more came
	for _, p := range packets[:n] {
		got = append(got, slab[p.Offset])
	}
	for i := range got {
		if got[i] != byte(i) {
			t.Fatalf("packet %d is number %d", i, got[i])
		}
	}
	odd := 0
	for _, n := range batches {
		if n%45 != 0 {
			odd++
		}
	}
	if len(got) != sent || odd > len(batches)/5 {
		t.Errorf("%d packets of %d came, in batches of %v", len(got), sent, batches)
	}
}

// TestNothingHeldBack: what ends with a shorter packet, or fits into one GSO packet of datagrams,
// goes at once.
func TestNothingHeldBack(t *testing.T) {
	slab, packets := make([]byte, 2*65535), newPackets()
	for _, c := range []struct{ count, size, last int }{{47, 1420, 800}, {45, 1420, 1420},
		{1, 1420, 1420}, {89, 700, 700}, {127, 100, 100}} {
		at := layOut(slab, packets, spacing, c.count-1, c.size, 0)
		layOut(slab, packets[c.count-1:], at, 1, c.last, 0)
		var s heldBack
		if n := s.keep(slab, packets[:c.count], 1420); n != 0 {
			t.Errorf("%+v: %d were kept back", c, n)
		}
	}
	var s heldBack
	if n := s.keep(slab, nil, 1420); n != 0 {
		t.Errorf("of nothing, %d were kept back", n)
	}
}

// TestHeldBackIsFirst: with a GSO packet behind them, packets that were held back are read first,
// and nothing is overwritten.
func TestHeldBackIsFirst(t *testing.T) {
	var s heldBack
	slab, packets := make([]byte, 2*65535), newPackets()
	layOut(slab, packets, spacing, 47, 1420, 1)
	if n := s.keep(slab, packets[:47], 1420); n != 2 {
		t.Fatalf("%d were kept back", n)
	}
	clear(slab)
	d := &tunReader{tun: &tunDevice{}, slab: slab}
	d.before, d.at = s.restore(slab, packets)
	whole, o := gsoPacket(false, 12, 64296, 1, tcpAck)
	vnet{flags: 1, kind: 1, header: o.HdrLen, segment: 1368, csumStart: 20,
		csumFrom: 16}.put(slab[d.at-vnetSize:])
	copy(slab[d.at:], whole)
	if f := d.add(d.at, vnetSize+len(whole)); !f.fits(len(slab), d.before) {
		t.Fatal("a GSO packet does not fit behind two packets")
	}
	if n := d.cut(slab, packets[d.before:]); n != 47 {
		t.Fatalf("%d segments", n)
	}
	for i, p := range packets[:2] {
		if want := bytes.Repeat([]byte{byte(46 + i)},
			1420); !bytes.Equal(slab[p.Offset:p.Offset+p.Size], want) {
			t.Errorf("packet %d was overwritten", i)
		}
	}
}
