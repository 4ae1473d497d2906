package rule

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule/op"
)

// protocol reads ip, ip4, ip6, a name or a number.
func (p *parser) protocol() (Test, error) {
	t, err := p.need("protocol", "tcp, udp, icmp, ip, ...")
	if err != nil {
		return Test{}, err
	}
	switch t.text {
	case "ip", "all":
		return Test{Op: op.CondTrue}, nil
	case "ip4", "ipv4":
		return Test{Op: op.CondVersion, A: 4}, nil
	case "ip6", "ipv6":
		return Test{Op: op.CondVersion, A: 6}, nil
	case "from", "to":
		return Test{}, p.fail(t, "tcp, udp, icmp, ip, ...", "protocol is missing before %s",
			quote(t.text))
	}
	if directions[t.text] {
		return Test{}, p.fail(t, "tcp from any to me 22 in: the protocol comes first, the "+
			"direction last", "protocol is missing before %s", quote(t.text))
	}
	if n, ok := p.names.protocol(t.text); ok {
		return Test{Op: op.CondProto, A: uint32(n)}, nil
	}
	if _, ok := decimal(t.text); ok {
		n, err := p.decNum(t, "protocol", 0, 255)
		return Test{Op: op.CondProto, A: n}, err
	}
	if refusedOptions[t.text] != "" || t.text == "set" || t.text == "prob" {
		return Test{}, p.unknownOption(t)
	}
	if strings.Contains(t.text, ",") {
		return Test{}, p.fail(t, "{ tcp or udp }", "protocols are not a comma list")
	}
	names := append(packet.ProtoNames(), "ip", "ip4", "ip6", "all")
	hint := cmp.Or(suggest(t.text, names...), "a name such as tcp, udp, icmp or ip, or a number")
	return Test{}, p.fail(t, hint, "unknown protocol %s", quote(t.text))
}

// protoIPv6 is IPv6 in IPv4 (RFC 4213).
const protoIPv6 = 41

// protocolOption reads what follows proto. As in ipfw, ipv6 is protocol 41 there, not the version
// that it is before "from", and ipv4 is unknown.
func (p *parser) protocolOption() (Test, error) {
	switch t := p.peek(); t.text {
	case "ipv6":
		p.next()
		return Test{Op: op.CondProto, A: protoIPv6}, nil
	case "ipv4":
		return Test{}, p.fail(t, "proto ip4 is the version, proto ipencap IPv4 in IP",
			"unknown protocol %s", quote(t.text))
	}
	return p.protocol()
}

// directions are options that other firewalls have in front of the protocol.
var directions = map[string]bool{"in": true, "out": true, "via": true, "recv": true, "xmit": true}

// ports reads any or a list of ports, ranges and service names.
func (p *parser) ports(what op.Cond) (Test, error) {
	t, err := p.need("port", "80, 1024-65535, ssh or a comma list")
	if err != nil {
		return Test{}, err
	}
	if t.text == "any" {
		return Test{Op: op.CondTrue}, nil
	}
	test := Test{Op: what}
	for _, item := range t.split() {
		r, err := p.portRange(p.num, item)
		if err != nil {
			return Test{}, err
		}
		test.Ranges = append(test.Ranges, r)
	}
	return test, nil
}

func (p *parser) portRange(read numReader, t token) (Range, error) {
	if n, ok := p.names.service(unescape(t.text)); ok {
		return Range{uint32(n), uint32(n)}, nil
	}
	lo, hi, ranged := strings.Cut(t.text, "-")
	if t.text == "" {
		return Range{}, p.fail(t, "", "empty item in a port list")
	}
	first, err := p.port(read, t.sub(0, len(lo)))
	if err != nil || !ranged {
		return Range{first, first}, err
	}
	last, err := p.port(read, t.sub(len(lo)+1, len(lo)+1+len(hi)))
	if err != nil {
		return Range{}, err
	}
	return p.ordered(t, first, last, "port")
}

func (p *parser) port(read numReader, t token) (uint32, error) {
	if n, ok := p.names.service(unescape(t.text)); ok {
		return uint32(n), nil
	}
	if t.text == "" {
		return 0, p.fail(t, "FIRST-LAST", "one end of the port range is missing")
	}
	if t.text[0] < '0' || t.text[0] > '9' {
		return 0, p.fail(t, cmp.Or(suggest(t.text, keys(services)...), noService),
			"unknown service %s", quote(t.text))
	}
	return read(t, "port", 0, 65535)
}

// unescape takes the backslashes away that ipfw wants before the hyphens of a service name.
func unescape(s string) string { return strings.ReplaceAll(s, `\-`, "-") }

// numbers reads a comma list of numbers and ranges.
func (p *parser) numbers(cond op.Cond, what string, lo, hi uint32) (Test, error) {
	t, err := p.need(what, "a number, FIRST-LAST or a comma list")
	if err != nil {
		return Test{}, err
	}
	read := numReader(p.num)
	if cond == op.CondTagged && !strings.ContainsAny(t.text, ",-") {
		read, what = p.decNum, "tag" // by itself, but not in a list
	}
	test := Test{Op: cond}
	for _, item := range t.split() {
		r, err := p.numRange(read, item, what, lo, hi)
		if err != nil {
			return Test{}, err
		}
		test.Ranges = append(test.Ranges, r)
	}
	return test, nil
}

func (p *parser) numRange(read numReader, t token, what string, lo, hi uint32) (Range, error) {
	if t.text == "" {
		return Range{}, p.fail(t, "", "empty item in a list")
	}
	low, high, ranged := strings.Cut(t.text, "-")
	first, err := read(t.sub(0, len(low)), what, lo, hi)
	if err != nil || !ranged {
		return Range{first, first}, err
	}
	last, err := read(t.sub(len(low)+1, len(low)+1+len(high)), what, lo, hi)
	if err != nil {
		return Range{}, err
	}
	return p.ordered(t, first, last, what)
}

func (p *parser) ordered(t token, first, last uint32, what string) (Range, error) {
	if first > last {
		return Range{}, p.fail(t, fmt.Sprintf("%d-%d", last, first),
			"the %s range ends before it begins", what)
	}
	return Range{first, last}, nil
}
