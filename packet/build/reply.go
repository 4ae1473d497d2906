package build

import (
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// Reset returns the TCP segment that refuses the segment p (RFC 9293 section 3.10.7.1, the CLOSED
// state): RST, with the sequence number that the other end expects. ok is false when no answer may
// be sent. That is so if p is not a whole TCP packet, or is itself a RST. It is so too if p comes
// from or goes to an address that is not a single host's.
func Reset(p *packet.Packet) (reply []byte, ok bool) {
	if p.Proto != packet.ProtoTCP || p.Reason != packet.ReasonNone || p.IsFragment() ||
		p.TCPFlags&packet.FlagRST != 0 ||
		!answerable(p.Src()) || !answerable(p.Dst()) {
		return nil, false
	}
	t := TCP{SrcPort: p.DstPort(), DstPort: p.SrcPort(), Flags: packet.FlagRST}
	if p.TCPFlags&packet.FlagACK != 0 {
		t.Seq = p.Ack
	} else {
		t.Flags |= packet.FlagACK
		t.Ack = p.Seq + uint32(p.PayloadLen())
		if p.TCPFlags&packet.FlagSYN != 0 {
			t.Ack++
		}
		if p.TCPFlags&packet.FlagFIN != 0 {
			t.Ack++
		}
	}
	reply, err := Packet(ipTo(p, p.Dst()), t)
	return reply, err == nil
}

// ipTo returns the IP header of an answer from src to the sender of p.
func ipTo(p *packet.Packet, src netip.Addr) Layer {
	if p.Version == 4 {
		return IPv4{Src: src, Dst: p.Src(), Flags: packet.FragDF}
	}
	return IPv6{Src: src, Dst: p.Src()}
}

// The types of "destination unreachable", and the length in bytes of the longest error.
const (
	icmpUnreachable   uint8 = 3
	icmpv6Unreachable uint8 = 1
	longestError4           = 576  // RFC 1812 section 4.3.2.3
	longestError6           = 1280 // RFC 4443 section 2.4 (c)
)

// Unreachable returns the ICMP or ICMPv6 "destination unreachable" error with the given code about
// packet p. The error comes from src, or from the destination of p when src is the zero Addr. b
// holds the bytes that p was decoded from, or only the first of them, with all headers, if no more
// may be quoted. ok is false when RFC 1812 section 4.3.2.7 and RFC 4443 section 2.4 (e) forbid an
// answer. They forbid it if p is malformed, an ICMP error or redirect, an ICMPv6 message of the
// error range, IGMP, or a fragment other than the first. They also forbid it if the source or the
// destination of p is not a single host's address. The caller makes sure that p did not arrive as a
// link-layer broadcast, and limits the rate.
func Unreachable(p *packet.Packet, b []byte, code uint8, src netip.Addr) (reply []byte, ok bool) {
	if p.Reason != packet.ReasonNone || p.Version == 0 || p.Frag&packet.FragLater != 0 ||
		int(p.PayloadOffset()) > len(b) {
		return nil, false
	}
	if p.ICMPError() || p.IsICMP() && p.Version == 6 &&
		(p.ICMPType() < 128 || p.ICMPType() == 137) {
		return nil, false
	}
	if p.Proto == packet.ProtoIGMP || !answerable(p.Src()) || !answerable(p.Dst()) {
		return nil, false
	}
	if !src.IsValid() {
		src = p.Dst()
	}
	b = b[:min(len(b), int(p.Len()))]
	var err error
	if p.Version == 4 {
		quote := b[:min(len(b), longestError4-28)]
		ip := IPv4{Src: src, Dst: p.Src(), TOS: 0xc0} // internetwork control (RFC 1812 4.3.2.5)
		reply, err = Packet(ip, ICMP{Type: icmpUnreachable, Code: code}, Data(quote))
	} else {
		quote := b[:min(len(b), longestError6-48)]
		reply, err = Packet(IPv6{Src: src, Dst: p.Src()},
			ICMPv6{Type: icmpv6Unreachable, Code: code}, Data(quote))
	}
	return reply, err == nil
}

// answerable reports whether a is the address of a single host.
func answerable(a netip.Addr) bool {
	if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
		return false
	}
	return !a.Is4() || a.As4()[0] < 240 && a.As4()[0] != 0
}
