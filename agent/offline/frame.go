package offline

import (
	"encoding/binary"

	"github.com/weirnet/weir/internal/pcap"
	"github.com/weirnet/weir/packet"
)

// Lengths of the longest IP packet, and of a frame with the longest header that packet.ParseFrame
// reads: Linux cooked v2 with two VLAN tags.
const (
	maxIP    = 1<<16 - 1
	maxFrame = 20 + 2*4 + maxIP
)

// whole returns the frame at its length on the wire, up to maxFrame. Zeros stand for what a short
// snap length has cut off: see cutIn.
func whole(r *pcap.Record) []byte {
	n := min(r.Len, maxFrame)
	if n <= len(r.Data) {
		return r.Data
	}
	return append(r.Data[:len(r.Data):len(r.Data)], make([]byte, n-len(r.Data))...)
}

// withLength returns the frame with a length in its IP header. The length of a packet which the
// network card cuts into segments (TSO, BIG TCP) can be 0 in a capture. Then it is that of the
// frame, up to the longest that the field can say. A jumbo option of BIG TCP, which no segment has,
// is left out. Other frames are returned as they are.
func withLength(link packet.Link, frame []byte) []byte {
	f, reason := packet.ParseFrame(link, frame)
	if reason != packet.ReasonNone || !f.IsIP() {
		return frame
	}
	switch ip := frame[f.L3:]; {
	case len(ip) >= 20 && ip[0]>>4 == 4 && ip[2] == 0 && ip[3] == 0:
		frame = append([]byte(nil), frame...)
		binary.BigEndian.PutUint16(frame[f.L3+2:], uint16(min(len(ip), maxIP)))
	case len(ip) >= 60 && ip[0]>>4 == 6 && ip[4] == 0 && ip[5] == 0:
		rest := ip[40:]
		if ip[6] == byte(packet.ProtoHopByHop) && [4]byte(rest) == jumboTCP {
			rest = rest[8:]
		} else if ip[6] != byte(packet.ProtoTCP) {
			break
		}
		frame = append(append([]byte(nil), frame[:f.L3+40]...), rest...)
		frame[f.L3+6] = byte(packet.ProtoTCP)
		binary.BigEndian.PutUint16(frame[f.L3+4:], uint16(min(len(rest), maxIP)))
	}
	return frame
}

// jumboTCP begins the hop-by-hop header of BIG TCP: TCP follows, the header has 8 bytes, with the
// jumbo option of 4 (RFC 2675) alone.
var jumboTCP = [4]byte{byte(packet.ProtoTCP), 0, 0xc2, 4}

// cutIn names the header in which a frame was cut, of those that rules and states read. These are
// link layer, IP, extension headers, transport, the options of a SYN, and what an ICMP error
// quotes. It is "" when these are all there. p and f are what was decoded of frame, which has zeros
// behind the first captured bytes.
func cutIn(link packet.Link, frame []byte, captured int, p *packet.Packet, f packet.Frame) string {
	if captured >= len(frame) {
		return ""
	}
	start, reason := packet.ParseFrame(link, frame[:captured])
	if reason == packet.ReasonLink {
		return "link-layer header"
	}
	if reason != packet.ReasonNone || !start.IsIP() {
		return ""
	}
	ip, have := frame[f.L3:], captured-int(f.L3)
	if have < 20 || ip[0]>>4 == 6 && have < 40 || ip[0]>>4 == 4 && have < int(ip[0]&15)*4 {
		return "IP header"
	}
	if p.Version == 0 { // refused by the IP header
		return ""
	}
	need, header := transportNeeds(p, ip)
	if have < int(p.L4)+need {
		return header
	}
	if inner, quotes := p.Inner(ip); p.ICMPError() {
		if need := p.PayloadOffset() + inner.L4 + 8; quotes && have >= int(need) {
			return ""
		}
		// Without a flow in it, what is missing may be why.
		if have < int(p.Len()) {
			return "packet that the ICMP error quotes"
		}
	}
	return ""
}

// transportNeeds returns how many bytes from p.L4 on decide what the packet is, and the name of the
// header there. ip may have zeros at its end.
func transportNeeds(p *packet.Packet, ip []byte) (need int, header string) {
	switch p.Proto {
	case packet.ProtoHopByHop, packet.ProtoRouting, packet.ProtoDestination, packet.ProtoFragment,
		packet.ProtoAH:
		need = 8
		if p.Proto == packet.ProtoHopByHop && int(p.L4)+1 < len(ip) {
			need += int(ip[p.L4+1]) * 8
		}
		return need, "extension header"
	}
	header = p.Proto.String() + " header"
	if p.Frag&packet.FragLater != 0 {
		return 0, header
	}
	switch p.Proto {
	case packet.ProtoTCP:
		need = 20
		if p.TCPFlags&packet.FlagSYN != 0 { // the options say how the window is scaled
			need = max(need, int(p.PayloadOffset()-p.L4))
		}
	case packet.ProtoSCTP:
		need = 12 + chunkNeeds(p, ip)
	case packet.ProtoUDP, packet.ProtoUDPLite, packet.ProtoICMP, packet.ProtoICMPv6:
		need = 8
	}
	return need, header
}

// chunkNeeds returns how many bytes of the first chunk of SCTP states read (flow.SegmentOf): its
// type and flags, and of INIT (1) and INIT ACK (2) the tag.
func chunkNeeds(p *packet.Packet, ip []byte) int {
	at := int(p.PayloadOffset())
	there := min(int(p.Len()), len(ip)) - at
	switch {
	case p.Reason != packet.ReasonNone || there < 4:
		return 0
	case there >= 8 && (ip[at] == 1 || ip[at] == 2):
		return 8
	}
	return 4
}
