package packet

// WindowScale returns the shift of the window scale option (RFC 7323) of the TCP header of p. b
// holds the bytes that p was decoded from. ok is false when there is no such option, when the
// options before it are malformed, or when p is not TCP or is a later fragment. A shift above 14 is
// returned as 14, as the RFC asks. Only a SYN may carry the option; the caller checks the flags.
func (p *Packet) WindowScale(b []byte) (shift uint8, ok bool) {
	o := p.tcpOptions(b)
	for len(o) > 0 && o[0] != 0 {
		if o[0] == 1 {
			o = o[1:]
			continue
		}
		if len(o) < 2 || o[1] < 2 || int(o[1]) > len(o) {
			return 0, false
		}
		if o[0] == 3 && o[1] == 3 {
			return min(o[2], 14), true
		}
		o = o[o[1]:]
	}
	return 0, false
}

// tcpOptions returns the TCP options of p, at most 40 bytes.
func (p *Packet) tcpOptions(b []byte) []byte {
	if p.Proto != ProtoTCP || p.Reason != ReasonNone || p.PayloadOffset() < p.L4+20 ||
		int(p.PayloadOffset()) > len(b) {
		return nil
	}
	return b[p.L4+20 : p.PayloadOffset()]
}
