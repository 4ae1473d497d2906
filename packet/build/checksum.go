package build

import "github.com/weirnet/weir/packet"

// sum adds the bytes of b, as big-endian 16-bit words, to the Internet checksum
// accumulator s (RFC 1071). An odd last byte is the high half of a word. b has at most 128 KiB.
func sum(s uint32, b []byte) uint32 {
	for len(b) >= 2 {
		s += uint32(be.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return uint32(fold(s))
}

// fold reduces an accumulator to 16 bits, not complemented.
func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// pseudoSum is the accumulator over the pseudo-header of n bytes of upper-layer data. Without an IP
// header below, the addresses count as zero.
func pseudoSum(c context, proto packet.Proto, n int) uint32 {
	s := uint32(proto) + uint32(n>>16) + uint32(n&0xffff)
	if c.src.IsValid() && c.dst.IsValid() {
		s = sum(s, c.src.AsSlice())
		s = sum(s, c.dst.AsSlice())
	}
	return s
}
