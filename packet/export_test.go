package packet

// Internals for the tests in package packet_test.

// Full is the part of Decode that reads any packet of at least 20 bytes.
func Full(p *Packet, b []byte) Reason { return p.full(b) }

// Reference is the reference decoder.
func Reference(b []byte) Packet { return reference(b) }

// Filled returns a Packet without a zero field.
func Filled() Packet {
	return Packet{SrcIP: [16]byte{1, 15: 2}, DstIP: [16]byte{3, 15: 4}, Seq: 5, Ports: 6, aux: 7,
		TCPFlags: 8, offset: 9, Ack: 10, L4: 11, ExtHdrs: 12, Reason: 13, rest: 14, Version: 15,
		TOS: 16, IPID: 17, Frag: 18, IPOptions: 19, TTL: 20, Proto: 21}
}

// With returns p with the unexported fields set.
func (p Packet) With(aux uint16, offset uint8, rest uint16) Packet {
	p.aux, p.offset, p.rest = aux, offset, rest
	return p
}

// QuoteOf returns what Inner makes of p when it is quoted in an ICMP error.
func QuoteOf(p Packet) Packet {
	p.Ack, p.TCPFlags, p.IPOptions = 0, 0, 0
	if !p.IsICMP() {
		p.aux = 0
	}
	if p.offset > 0 {
		p.offset = 8 / 4 << 4
	}
	return p
}
