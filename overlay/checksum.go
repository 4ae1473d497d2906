package overlay

import (
	"encoding/binary"

	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/packet"
)

// dropMisplaced takes out the frames whose pending checksum is not where it belongs. A pod may send
// with a struct virtio_net_hdr of its own (PACKET_VNET_HDR), and so say which two bytes are written
// behind the filter. Without this, they could be those of a port or of an address.
func (r *tunReader) dropMisplaced(slab []byte) {
	kept := r.frames[:0]
	for _, f := range r.frames {
		if f.head.inPlace(slab[f.at : f.at+f.size]) {
			kept = append(kept, f)
		}
	}
	r.tun.misplaced.Add(uint64(len(r.frames) - len(kept)))
	r.frames = kept
}

// inPlace reports whether what is still to be written into a packet, a checksum or the headers of
// segments, leaves what the filter decides by as it is. A checksum belongs into the packet's own
// transport header, or into a packet that a tunnel carries. From Linux 6.17 on an interface gets
// those of VXLAN with the checksum inside pending. The kernel completes those of SCTP and of
// fragments itself, and cuts what a tunnel carries.
func (v vnet) inPlace(b []byte) bool {
	if v.flags&unix.VIRTIO_NET_HDR_F_NEEDS_CSUM == 0 && !v.gso() {
		return true
	}
	var p packet.Packet
	if p.Decode(b) != packet.ReasonNone || p.Frag&(packet.FragFirst|packet.FragLater) != 0 {
		return false
	}
	start, at, l4 := int(v.csumStart), int(v.csumFrom), int(p.L4)
	if v.gso() {
		datagrams := v.kind&^unix.VIRTIO_NET_HDR_GSO_ECN == unix.VIRTIO_NET_HDR_GSO_UDP_L4
		if datagrams {
			return p.Proto == packet.ProtoUDP && start == l4 && at == udpChecksumAt
		}
		return p.Proto == packet.ProtoTCP && start == l4 && at == tcpChecksumAt
	}
	switch p.Proto {
	case packet.ProtoTCP:
		return start == l4 && at == tcpChecksumAt
	case packet.ProtoUDP:
		return start == l4 && at == udpChecksumAt || start >= l4+8
	case packet.ProtoUDPLite:
		return start == l4 && at == udpChecksumAt
	case packet.ProtoICMP, packet.ProtoICMPv6:
		return start == l4 && at == icmpChecksumAt
	case packet.ProtoSCTP:
		return false // CRC32c
	}
	return start >= l4 // such as GRE, and IP in IP
}

// finishChecksum completes a checksum that the kernel left partial: the field holds the sum of the
// pseudo header.
func finishChecksum(packet []byte, o tun.GSOOptions) bool {
	start, at := int(o.CsumStart), int(o.CsumStart)+int(o.CsumOffset)
	if at+2 > len(packet) {
		return false
	}
	initial := binary.BigEndian.Uint16(packet[at:])
	packet[at], packet[at+1] = 0, 0
	binary.BigEndian.PutUint16(packet[at:], ^tun.Checksum(packet[start:], initial))
	if o.CsumOffset == udpChecksumAt {
		neverZero(packet[at:])
	}
	return true
}

// Offsets of the checksum in the transport header.
const (
	tcpChecksumAt  = 16
	udpChecksumAt  = 6 // of UDP-Lite, too
	icmpChecksumAt = 2 // of ICMPv6, too
)

// neverZero replaces a checksum of UDP that came out as 0 by 0xffff, which stands for the same sum.
// A 0 says that there is none (RFC 768), and over IPv6 receivers drop that (RFC 8200 section 8.1).
func neverZero(checksum []byte) {
	if checksum[0] == 0 && checksum[1] == 0 {
		checksum[0], checksum[1] = 0xff, 0xff
	}
}
