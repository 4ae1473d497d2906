// Package packet reads IP packets.
//
// Decode turns the bytes of one IPv4 or IPv6 packet into a Packet: a small struct
// without pointers that the caller owns.
//
//	var p packet.Packet
//	if err := p.Decode(b).Err(); err != nil {
//		return err
//	}
//	fmt.Println(p.Src(), p.Dst(), p.DstPort(), p.TCPFlags&packet.FlagSYN != 0)
//
// It reads IPv4 with options; IPv6 with hop-by-hop, routing, destination, fragment and
// authentication headers; TCP, UDP, UDP-Lite, SCTP, ICMP and ICMPv6. Other
// protocols (IGMP, GRE, ESP, ...) are known by their number, see Proto. DecodeFrame does the
// same for a frame with a link-layer header and up to two VLAN tags, and Inner for the packet
// that an ICMP error quotes.
//
// Every read is bounds-checked. A malformed packet gets a Reason, never a panic,
// and no field of it is taken from beyond the length in the IP header. Nothing
// is allocated. Checksums are not verified, because a packet on its way to a network card
// that computes them has none yet.
//
// The order of checks and the meaning of every field in every case are fixed in
// docs/design/0002-decoder.md. The kernel engine's decoder follows the same page.
//
// String and AppendText write a packet as a line of text. Package packet/build makes packets: from
// layers, from such a line, and as answers.
package packet
