package overlay

import (
	"github.com/tailscale/wireguard-go/tun"
)

// heldBack is the end of a GSO packet of the kernel that did not fit into one GSO packet of
// datagrams. A flow that is sent as fast as possible comes in GSO packets of 64 KiB, and sealing
// adds to them. The last two packets of each would travel alone, through all of the kernel, the
// other node and its kernel, and be acknowledged. They are held back, and are first in the next
// batch, which does not wait for more packets to come.
type heldBack struct {
	bytes []byte
	sizes []int
}

const (
	// gsoBytes is how many bytes of datagrams a GSO packet over IPv4 holds, and gsoSegments how
	// many datagrams.
	gsoBytes    = 65535 - 20 - 8
	gsoSegments = 127
	// heldBackLimit is how many bytes are held back at most.
	heldBackLimit = 16 << 10
	// sealOverhead is what WireGuard adds to a padded packet: its header and the tag.
	sealOverhead = 16 + 16
)

// keep copies the packets at the end that do not fill a GSO packet, and returns how many there are.
// It does not keep the slab.
func (s *heldBack) keep(slab []byte, packets []tun.ReadPacket, mtu int) int {
	if len(packets) == 0 {
		return 0
	}
	size := packets[len(packets)-1].Size
	run := 0
	for run < len(packets) && packets[len(packets)-1-run].Size == size {
		run++
	}
	full := min(gsoBytes/(max(size, min((size+15)&^15, mtu))+sealOverhead), gsoSegments)
	if full == 0 || run < full || run%full*size > heldBackLimit {
		return 0
	}
	for _, p := range packets[len(packets)-run%full:] {
		s.bytes = append(s.bytes, slab[p.Offset:p.Offset+p.Size]...)
		s.sizes = append(s.sizes, p.Size)
	}
	return run % full
}

// restore puts what was held back at the front of the slab. It returns the number of packets and
// the offset at which the next one may begin.
func (s *heldBack) restore(slab []byte, packets []tun.ReadPacket) (n, at int) {
	at = spacing
	b := s.bytes
	for i, size := range s.sizes {
		copy(slab[at:], b[:size])
		b = b[size:]
		packets[i] = tun.ReadPacket{Offset: at, Size: size}
		at += size + spacing
	}
	n = len(s.sizes)
	s.bytes, s.sizes = s.bytes[:0], s.sizes[:0]
	return n, at
}
