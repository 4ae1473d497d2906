package flow

import "github.com/weirnet/weir/packet"

// FragmentEnd returns where the data of the fragment p ends in its datagram, in bytes. b holds the
// bytes that p was decoded from. In IPv6 the data begins after the fragment header; other headers
// may precede and follow it.
func FragmentEnd(p *packet.Packet, b []byte) uint32 {
	begin := uint32(p.L4)
	if p.Version == 6 {
		begin = 40
		for next := b[6]; next != packet.ProtoFragment; {
			size := (uint32(b[begin+1]) + 1) * 8
			if next == packet.ProtoAH {
				size = (uint32(b[begin+1]) + 2) * 4
			}
			next = b[begin]
			begin += size
		}
		begin += 8
	}
	return uint32(p.FragOff()) + p.Len() - begin
}
