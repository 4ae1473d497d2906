package overlay

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// cutFrame is what the reader makes of a frame of the kernel.
func cutFrame(v vnet, frame []byte) (list [][]byte) {
	r := &tunReader{tun: &tunDevice{}, slab: make([]byte, 2*65535)}
	v.put(r.slab[spacing-vnetSize:])
	copy(r.slab[spacing:], frame)
	r.add(spacing, vnetSize+len(frame))
	r.dropMisplaced(r.slab)
	packets := newPackets()
	for _, p := range packets[:r.cut(r.slab, packets)] {
		list = append(list, bytes.Clone(r.slab[p.Offset:p.Offset+p.Size]))
	}
	return list
}

// TestUDPChecksumIsNeverZero: a datagram whose checksum comes out as 0 leaves with 0xffff.
func TestUDPChecksumIsNeverZero(t *testing.T) {
	for _, c := range []struct {
		what          string
		kind          uint8
		payload, list int
	}{
		{"alone", unix.VIRTIO_NET_HDR_GSO_NONE, 500, 1},
		{"a GSO packet of one", unix.VIRTIO_NET_HDR_GSO_UDP_L4, 500, 1},
		{"a GSO packet of three", unix.VIRTIO_NET_HDR_GSO_UDP_L4, 3000, 3},
	} {
		for _, v6 := range []bool{false, true} {
			whole, o := gsoDatagram(v6, c.payload)
			v := vnet{flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, kind: c.kind, header: o.HdrLen,
				segment: o.GSOSize, csumStart: o.CsumStart, csumFrom: o.CsumOffset}
			s, at := segmentOf(whole), int(o.CsumStart+o.CsumOffset)
			binary.BigEndian.PutUint16(whole[at:], s.pseudo(whole, len(whole)-s.ip))
			// With its own complement in it a sum is 0xffff, and the checksum is 0.
			end := int(o.HdrLen) + min(c.payload, int(o.GSOSize))
			clear(whole[end-2 : end])
			copy(whole[end-2:], cutFrame(v, whole)[0][at:at+2])
			list := cutFrame(v, whole)
			if len(list) != c.list {
				t.Fatalf("%s, v6 %v: %d packets", c.what, v6, len(list))
			}
			first := list[0]
			if got := binary.BigEndian.Uint16(first[at:]); got != 0xffff {
				t.Errorf("%s, v6 %v: the checksum is %#x", c.what, v6, got)
			}
			if s := segmentOf(first); !s.checksumOK(first) {
				t.Errorf("%s, v6 %v: the checksum is wrong", c.what, v6)
			}
		}
	}
}
