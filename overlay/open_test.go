package overlay

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// FuzzOpened: whatever a peer seals, its size is that of an IP packet within it, and its addresses
// are those of the header.
func FuzzOpened(f *testing.F) {
	v4 := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2},
		make([]byte, 12)...)
	f.Add(v4)
	f.Add(v4[:19])
	v6 := make([]byte, 48)
	v6[0], v6[5], v6[8], v6[24] = 0x60, 8, 0xfd, 0xfc
	f.Add(v6)
	v6 = append([]byte{}, v6...)
	v6[4], v6[5] = 0xff, 0xff // more than 16 bits with the header
	f.Add(v6)
	f.Fuzz(func(t *testing.T, p []byte) {
		size, version := 0, 0
		var src, dst netip.Addr
		if len(p) >= 20 && p[0]>>4 == 4 {
			version, size = 4, int(binary.BigEndian.Uint16(p[2:4]))
			src, _ = netip.AddrFromSlice(p[12:16])
			dst, _ = netip.AddrFromSlice(p[16:20])
		}
		if len(p) >= 40 && p[0]>>4 == 6 {
			version, size = 6, int(binary.BigEndian.Uint16(p[4:6]))+40
			src, _ = netip.AddrFromSlice(p[8:24])
			dst, _ = netip.AddrFromSlice(p[24:40])
		}
		if size > len(p) || version == 4 && size < 20 {
			size = 0
		}
		if trueSize(p) != size || source(p) != src || destination(p) != dst {
			t.Errorf("%x: %d bytes from %v to %v, want %d, %v, %v", p, trueSize(p), source(p),
				destination(p), size, src, dst)
		}
	})
}
