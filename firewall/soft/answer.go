package soft

import (
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// Answer builds the packet that a verdict asks for: a TCP reset or an ICMP error, to be sent to the
// source of pkt. src is the address that an error comes from; the zero Addr stands for the
// destination of pkt. ok is false if there is nothing to send. The caller limits the rate (RFC
// 1812 4.3.2.8, RFC 4443 2.4 f). It allocates.
func Answer(v firewall.Verdict, pkt []byte, src netip.Addr) (answer []byte, ok bool) {
	return AnswerQuoting(v, pkt, pkt, src)
}

// AnswerQuoting is Answer for a packet of which an ICMP error may not quote everything: quote has
// the first bytes of pkt, with all headers at least.
func AnswerQuoting(v firewall.Verdict, pkt, quote []byte, src netip.Addr) (answer []byte, ok bool) {
	if v.Answer == firewall.AnswerNone {
		return nil, false
	}
	var p packet.Packet
	if p.Decode(pkt) != packet.ReasonNone {
		return nil, false
	}
	if v.Answer == firewall.AnswerReset {
		return build.Reset(&p)
	}
	return build.Unreachable(&p, quote, v.Code, src)
}
