package overlay

import (
	"bytes"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// segmentsTold is a filter that passes everything and keeps what it gets of the last packet.
type segmentsTold struct {
	packet  packet.Packet
	segment uint16
}

func (f *segmentsTold) filter(_ firewall.Hook, packets [][]byte, segments []uint16, pass []bool) {
	for i, b := range packets {
		f.packet.Decode(b)
		f.segment, pass[i] = segments[i], true
	}
}

// cut returns how many packets are made of the last one, and how many bytes they have.
func (f *segmentsTold) cut() (count, size int) {
	header, segment := int(f.packet.PayloadOffset()), int(f.segment)
	if segment == 0 {
		return 1, int(f.packet.Len())
	}
	for left := f.packet.PayloadLen(); left > 0; left -= segment {
		count++
		size += header + min(left, segment)
	}
	return count, size
}

// TestFilterKnowsSegments: by what a filter gets it can count the packets that the kernel's GSO
// packet is cut into, and those that one packet from a peer was made of.
func TestFilterKnowsSegments(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, options := range []int{0, 12, 40, -1} {
			for _, payload := range []int{1, 1000, 1001, 2000, 64000} {
				whole, o := gsoPacket(v6, max(options, 0), payload, 1, tcpAck)
				kind := byte(1)
				switch {
				case options < 0:
					whole, o = gsoDatagram(v6, payload)
					kind = 5
				case v6:
					kind = 4
				}
				list, size := cutAll(t, bytes.Clone(whole), o), 0
				for _, p := range list {
					size += len(p)
				}
				var told segmentsTold
				d := &tunDevice{filter: told.filter}
				r := &tunReader{tun: d, slab: make([]byte, 2*65535)}
				vnet{flags: 1, kind: kind, header: o.HdrLen, segment: o.GSOSize,
					csumStart: o.CsumStart,
					csumFrom:  o.CsumOffset}.put(r.slab[spacing-vnetSize:])
				copy(r.slab[spacing:], whole)
				r.add(spacing, vnetSize+len(whole))
				r.filter(r.slab)
				if n, bytes := told.cut(); n != len(list) || bytes != size {
					t.Errorf("v6 %v, options %d, %d bytes: out %d of %d bytes, not %d of %d", v6,
						options, payload, n, bytes, len(list), size)
				}
				told = segmentsTold{}
				w := newTunWriter(d)
				for _, p := range list {
					w.add(p, segmentOf(p))
				}
				w.decideUnits()
				if n, bytes := told.cut(); n != len(list) || bytes != size {
					t.Errorf("v6 %v, options %d, %d bytes: in %d of %d bytes, not %d of %d", v6,
						options, payload, n, bytes, len(list), size)
				}
			}
		}
	}
}
