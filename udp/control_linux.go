package udp

import (
	"encoding/binary"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control data is a chain of headers with payloads (cmsg(3)). All numbers in it are in host byte
// order.
const (
	wordSize = int(unsafe.Sizeof(uintptr(0)))
	// cmsg_len is a word, level and type are 4 bytes each; a multiple of the word size
	cmsgHeader = wordSize + 8

	// readControl holds everything that a datagram can come with: packet info (v6 40), ECN (24),
	// UDP_GRO (24), drop counter (24), time stamp (32), on 64-bit systems.
	readControl = 160
	// writeControl holds packet info (v6 40), ECN (24) and UDP_SEGMENT (24).
	writeControl = 96
)

// cmsgAlign is CMSG_ALIGN: payloads are padded to whole words.
func cmsgAlign(n int) int { return (n + wordSize - 1) &^ (wordSize - 1) }

// nextControl cuts the first control message from b. ok is false at the end, and where the chain is
// malformed.
func nextControl(b []byte) (level, typ int32, data, rest []byte, ok bool) {
	if len(b) < cmsgHeader {
		return 0, 0, nil, nil, false
	}
	var size uint64
	if wordSize == 8 {
		size = binary.NativeEndian.Uint64(b)
	} else {
		size = uint64(binary.NativeEndian.Uint32(b))
	}
	if size < uint64(cmsgHeader) || size > uint64(len(b)) {
		return 0, 0, nil, nil, false
	}
	n := int(size)
	level = int32(binary.NativeEndian.Uint32(b[wordSize:]))
	typ = int32(binary.NativeEndian.Uint32(b[wordSize+4:]))
	return level, typ, b[cmsgHeader:n], b[min(cmsgAlign(n), len(b)):], true
}

// received is what the control data holds besides the fields of a Message.
type received struct {
	drops    uint32
	hasDrops bool
}

// parseControl walks all control messages and fills m. It skips unknown ones: the kernel adds what
// other parts of the program have requested on the same socket.
func parseControl(b []byte, m *Message) (r received) {
	for {
		level, typ, data, rest, ok := nextControl(b)
		if !ok {
			return r
		}
		b = rest
		switch level {
		case unix.SOL_UDP:
			// The kernel gives an int (udp_cmsg_recv in net/ipv4/udp.c).
			if typ == unix.UDP_GRO && len(data) >= 4 {
				m.Segment = int(binary.NativeEndian.Uint32(data))
			}
		case unix.IPPROTO_IPV6:
			switch {
			case typ == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
				m.Local = netip.AddrFrom16([16]byte(data)).Unmap()
				m.IfIndex = int(binary.NativeEndian.Uint32(data[16:]))
			case typ == unix.IPV6_TCLASS && len(data) >= 4:
				m.ECN = ECN(binary.NativeEndian.Uint32(data) & 3)
			}
		case unix.IPPROTO_IP:
			switch {
			case typ == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
				// struct in_pktinfo: interface index, local address, destination in the header. The
				// last may be a broadcast address, which a reply must not come from.
				m.IfIndex = int(binary.NativeEndian.Uint32(data))
				m.Local = netip.AddrFrom4([4]byte(data[4:]))
			case typ == unix.IP_TOS && len(data) >= 1:
				m.ECN = ECN(data[0] & 3)
			}
		case unix.SOL_SOCKET:
			switch {
			case typ == unix.SO_RXQ_OVFL && len(data) >= 4:
				r.drops, r.hasDrops = binary.NativeEndian.Uint32(data), true
			case typ == unix.SCM_TIMESTAMPNS && len(data) >= 2*wordSize:
				if wordSize == 8 {
					m.Time = time.Unix(int64(binary.NativeEndian.Uint64(data)),
						int64(binary.NativeEndian.Uint64(data[8:])))
				} else {
					m.Time = time.Unix(int64(binary.NativeEndian.Uint32(data)),
						int64(binary.NativeEndian.Uint32(data[4:])))
				}
			}
		}
	}
}

// appendControl appends a control message with n bytes of payload to b and returns the payload, for
// the caller to fill in.
func appendControl(b []byte, level, typ int32, n int) (all, data []byte) {
	at := len(b)
	b = b[:at+cmsgHeader+cmsgAlign(n)]
	clear(b[at:])
	if wordSize == 8 {
		binary.NativeEndian.PutUint64(b[at:], uint64(cmsgHeader+n))
	} else {
		binary.NativeEndian.PutUint32(b[at:], uint32(cmsgHeader+n))
	}
	binary.NativeEndian.PutUint32(b[at+wordSize:], uint32(level))
	binary.NativeEndian.PutUint32(b[at+wordSize+4:], uint32(typ))
	return b, b[at+cmsgHeader:][:n]
}

// buildControl lays out the control data of a datagram. b is empty and has space for writeControl
// bytes. is4 means that the packet is IPv4, whatever the family of the socket: for mapped addresses
// the kernel accepts SOL_IP control data.
func buildControl(b []byte, m *Message, segment int, is4 bool) []byte {
	var data []byte
	if segment > 0 {
		b, data = appendControl(b, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		binary.NativeEndian.PutUint16(data, uint16(segment))
	}
	if m.Local.IsValid() || m.IfIndex != 0 {
		local := m.Local.Unmap()
		if is4 {
			b, data = appendControl(b, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
			binary.NativeEndian.PutUint32(data, uint32(m.IfIndex))
			if local.Is4() {
				a := local.As4()
				copy(data[4:], a[:])
			}
		} else {
			b, data = appendControl(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO,
				unix.SizeofInet6Pktinfo)
			if local.Is6() {
				a := local.As16()
				copy(data, a[:])
			}
			binary.NativeEndian.PutUint32(data[16:], uint32(m.IfIndex))
		}
	}
	if m.ECN != NotECT {
		level, typ := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS)
		if is4 {
			level, typ = unix.IPPROTO_IP, unix.IP_TOS
		}
		b, data = appendControl(b, level, typ, 4)
		binary.NativeEndian.PutUint32(data, uint32(m.ECN))
	}
	return b
}
