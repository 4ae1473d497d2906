package rule

import (
	"net/netip"
	"strings"

	"github.com/weirnet/weir/internal/program"
)

const hopHint = "fwd 192.0.2.1, fwd 127.0.0.1,3128 or fwd 2001:db8::1"

// hop reads ADDRESS[,PORT]. As in ipfw a colon may separate the port of an IPv4 address, too.
func (p *parser) hop() (to netip.AddrPort, err error) {
	t, err := p.need("next hop", hopHint)
	if err != nil {
		return to, err
	}
	if t.text == "tablearg" {
		return to, p.fail(t, refusedOptions["tablearg"],
			"%q is a word of ipfw that Weir does not have", t.text)
	}
	end := strings.IndexByte(t.text, ',')
	if end < 0 && strings.Count(t.text, ":") == 1 {
		end = strings.IndexByte(t.text, ':')
	}
	host, port := t, uint16(0)
	if end >= 0 {
		host = t.sub(0, end)
		at := t.sub(end+1, len(t.text))
		n, err := p.port(p.num, at)
		if err != nil {
			return to, err
		}
		if n == 0 {
			return to, p.fail(at, hopHint, "ports go from 1 to 65535")
		}
		port = uint16(n)
	}
	addr, err := p.hopAddr(host)
	return netip.AddrPortFrom(addr, port), err
}

// hopAddr reads the address of a next hop.
func (p *parser) hopAddr(t token) (netip.Addr, error) {
	if t.text == "me" || t.text == "me6" || t.text == "any" || strings.HasPrefix(t.text, "table(") {
		return netip.Addr{}, p.fail(t, hopHint, "a next hop is one address")
	}
	if a, err := netip.ParseAddr(t.text); err == nil && a.Is6() && a.IsLinkLocalUnicast() {
		return a, p.fail(t, "write another address of that host",
			"a link-local address is not reachable without an interface")
	}
	a, err := p.addr(t)
	if err == nil && !program.ValidNextHop(a) {
		err = p.fail(t, hopHint, "%s is not the address of one host", quote(t.text))
	}
	return a, err
}

// appendHop prints ADDRESS[,PORT].
func appendHop(b []byte, hop netip.AddrPort) []byte {
	b = hop.Addr().AppendTo(b)
	if hop.Port() == 0 {
		return b
	}
	return appendNumber(append(b, ','), uint32(hop.Port()))
}

// hop returns the index of a next hop in the Program.
func (c *compiler) hop(to netip.AddrPort) uint32 {
	at, known := c.hops[to]
	if !known {
		at = uint32(len(c.NextHops))
		c.hops[to] = at
		c.NextHops = append(c.NextHops, to)
	}
	return at
}
