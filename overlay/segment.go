package overlay

import (
	"encoding/binary"

	"github.com/tailscale/wireguard-go/tun"
)

const (
	protocolTCP = 6
	protocolUDP = 17

	tcpPush = 0x08
	tcpAck  = 0x10
)

// segment is what matters of a packet that may be coalesced with others of its flow: a TCP segment
// or a UDP datagram, without IP options, extension headers or fragments. A segment has payload; a
// datagram without stays alone. Of the flags, TCP may have ACK and PSH only.
type segment struct {
	protocol   uint8 // 0: may not be coalesced
	push       bool
	ip, header int // length of the IP header, and of IP and transport header
	payload    int
	seq        uint32 // TCP only
}

// segmentOf reads a packet.
func segmentOf(p []byte) (s segment) {
	var protocol uint8
	switch {
	case len(p) >= 28 && p[0] == 0x45 && p[6]&0x3f == 0 && p[7] == 0 &&
		int(binary.BigEndian.Uint16(p[2:])) == len(p):
		s.ip, protocol = 20, p[9]
	case len(p) >= 48 && p[0]>>4 == 6 && int(binary.BigEndian.Uint16(p[4:])) == len(p)-40:
		s.ip, protocol = 40, p[6]
	default:
		return s
	}
	next := p[s.ip:]
	switch {
	case protocol == protocolTCP && len(next) >= 20:
		s.header = s.ip + int(next[12]>>4)*4
		s.seq = binary.BigEndian.Uint32(next[4:])
		s.push = next[13]&tcpPush != 0
		if s.header < s.ip+20 || next[13]&^tcpPush != tcpAck {
			return s
		}
	case protocol == protocolUDP && int(binary.BigEndian.Uint16(next[4:])) == len(next):
		s.header = s.ip + 8
	default:
		return s
	}
	s.payload = len(p) - s.header
	if s.payload > 0 || s.payload == 0 && protocol == protocolUDP {
		s.protocol = protocol
	}
	return s
}

// fragmentAddrs returns the addresses of a fragment as flow has them, or nil if p is none.
func fragmentAddrs(p []byte) []byte {
	switch {
	case len(p) >= 20 && p[0]>>4 == 4 && (p[6]&0x3f != 0 || p[7] != 0):
		return p[12:20]
	case len(p) >= 40 && p[0]>>4 == 6 && p[6] == 44:
		return p[8:40]
	}
	return nil
}

// flow is the part of the packet that names its flow: both addresses and both ports.
func (s segment) flow(p []byte) []byte {
	if s.ip == 20 {
		return p[12:24]
	}
	return p[8:44]
}

// sameHeaders reports whether packet q, which is t and of the same flow, has the headers of p,
// which is s. What segmentation changes may differ: lengths, the IP id, checksums, the sequence
// number and PSH.
func (s segment) sameHeaders(p []byte, t segment, q []byte) bool {
	if s.header != t.header {
		return false
	}
	if s.ip == 20 {
		if p[1] != q[1] || p[6] != q[6] || p[8] != q[8] {
			return false
		}
	} else if string(p[:4]) != string(q[:4]) || p[7] != q[7] {
		return false
	}
	if s.protocol == protocolUDP {
		return true
	}
	a, b := p[s.ip:s.header], q[s.ip:s.header]
	return string(a[8:13]) == string(b[8:13]) && string(a[14:16]) == string(b[14:16]) &&
		string(a[18:]) == string(b[18:])
}

// checksumAt is the offset of the checksum in the transport header.
func (s segment) checksumAt() int {
	if s.protocol == protocolTCP {
		return tcpChecksumAt
	}
	return udpChecksumAt
}

// pseudo is the sum of the pseudo header for n bytes behind the IP header.
func (s segment) pseudo(p []byte, n int) uint16 {
	if s.ip == 20 {
		return tun.PseudoHeaderChecksum(s.protocol, p[12:16], p[16:20], uint16(n))
	}
	return tun.PseudoHeaderChecksum(s.protocol, p[8:24], p[24:40], uint16(n))
}

// checksumOK reports whether the checksum of packet p is right. UDP over IPv4 may have none.
func (s segment) checksumOK(p []byte) bool {
	next := p[s.ip:]
	if s.protocol == protocolUDP && s.ip == 20 && next[6] == 0 && next[7] == 0 {
		return true
	}
	return tun.Checksum(next, s.pseudo(p, len(next))) == 0xffff
}
