package packet

// Essential reports whether the packet is one that IPv6 on the link cannot work
// without, so that it passes before the rules (shown as rule 0):
//
//   - neighbour discovery: types 133 to 136 with code 0 and hop limit 255
//     (RFC 4861), which proves that the sender is on the link;
//   - multicast listener discovery: types 130, 131, 132 and 143 with hop
//     limit 1, the hop-by-hop router alert, and a link-local or unspecified
//     source (RFC 2710, RFC 3810).
//
// A fragment is never essential (RFC 6980). ARP is not IP: the EtherType identifies
// it.
func (p *Packet) Essential() bool {
	if p.Proto != ProtoICMPv6 || p.Version != 6 || p.Reason != ReasonNone ||
		p.Frag&fragState != 0 ||
		p.ExtHdrs&ExtFragment != 0 {
		return false
	}
	switch p.ICMPType() {
	case 133, 134, 135, 136:
		return p.TTL == 255 && p.ICMPCode() == 0
	case 130, 131, 132, 143:
		return p.TTL == 1 && p.IPOptions&OptRouterAlert != 0 &&
			(linkLocal(&p.SrcIP) || p.SrcIP == [16]byte{})
	}
	return false
}

// ICMPQuery reports whether the packet is an ICMP or ICMPv6 request or reply
// that carries an identifier, and whether it is the reply.
func (p *Packet) ICMPQuery() (query, reply bool) {
	if !p.IsICMP() {
		return false, false
	}
	if p.Version == 6 {
		return p.ICMPType() == 128 || p.ICMPType() == 129, p.ICMPType() == 129
	}
	switch p.ICMPType() {
	case 8, 13, 15, 17:
		return true, false
	case 0, 14, 16, 18:
		return true, true
	}
	return false, false
}

// ICMPQueryType returns the type of the query that the packet is, or that it answers, and which of
// the two it is. The queries are echo, timestamp, information and address mask of ICMP, and echo
// and node information (RFC 4620) of ICMPv6. It returns 0 for other packets. Linux conntrack tracks
// the same types. Bytes 4 and 5, ICMPID, are the same in a query and its answer.
func (p *Packet) ICMPQueryType() (query uint8, answer bool) {
	if !p.IsICMP() {
		return 0, false
	}
	t := p.ICMPType()
	if p.Version == 6 {
		switch t {
		case 128, 139:
			return t, false
		case 129, 140:
			return t - 1, true
		}
		return 0, false
	}
	switch t {
	case 0:
		return 8, true
	case 8, 13, 15, 17:
		return t, false
	case 14, 16, 18:
		return t - 1, true
	}
	return 0, false
}

// ICMPError reports whether the packet is an ICMP or ICMPv6 error, which quotes the packet that
// caused it. Errors of ICMP have the types 3 (unreachable), 4 (source quench), 5 (redirect), 11
// (time exceeded) and 12 (parameter problem). Those of ICMPv6 have the types 1 to 4. An ICMPv6
// redirect is neighbour discovery, not an error.
func (p *Packet) ICMPError() bool {
	if !p.IsICMP() {
		return false
	}
	if p.Version == 6 {
		return p.ICMPType() >= 1 && p.ICMPType() <= 4
	}
	switch p.ICMPType() {
	case 3, 4, 5, 11, 12:
		return true
	}
	return false
}
