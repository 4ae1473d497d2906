package netfilter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// fieldProtocols are the protocols whose fields need a packet of theirs.
var fieldProtocols = map[string]packet.Proto{"tcp": packet.ProtoTCP, "udp": packet.ProtoUDP,
	"udplite": packet.ProtoUDPLite, "sctp": packet.ProtoSCTP, "icmp": packet.ProtoICMP,
	"icmpv6": packet.ProtoICMPv6}

// extensions are the extension headers of IPv6 that Weir and nft's `meta l4proto` skip.
var extensions = []packet.Proto{0, 43, 44, packet.ProtoAH, 60}

// payload reads a match of a field of a header.
func (p *nftParser) payload(protocol, field, operator string, list []nftValue,
	set *nftSet) (t nftTests, err error) {
	if n, ok := fieldProtocols[protocol]; ok {
		t.needs = append(t.needs, rule.Clause{proto(n)})
	}
	switch protocol {
	case "ip", "ip6":
		family := ipv4
		if protocol == "ip6" {
			family = ipv6
		}
		if p.families != family {
			t.needs = append(t.needs, version(family)...)
		}
		return p.network(t, field, operator, list, set)
	case "tcp", "udp", "udplite", "sctp", "th":
		if field == "flags" {
			return flagTests(t, operator, list)
		}
		o := op.CondSrcPort
		if field == "dport" {
			o = op.CondDstPort
		} else if field != "sport" {
			return t, fmt.Errorf("%s %s is not matched by rules", protocol, field)
		}
		return portTests(t, o, operator, list)
	case "icmp", "icmpv6":
		o, names := op.CondICMPType, icmpNames4
		if protocol == "icmpv6" {
			o, names = op.CondICMP6Type, icmpNames6
		}
		if field != "type" {
			return t, fmt.Errorf("%s %s is not matched, only types are", protocol, field)
		}
		one := rule.Test{Op: o}
		for _, v := range list {
			r, ok := numbers(o, operator, v, 255, names)
			if !ok {
				return t, fmt.Errorf("unknown type %s of %s", v.lo, protocol)
			}
			one.Ranges = append(one.Ranges, r.Ranges...)
		}
		t.tests = []rule.Test{one}
		return t, nil
	}
	return t, fmt.Errorf("%s %s is not matched by rules", protocol, field)
}

// network reads a field of an IP header.
func (p *nftParser) network(t nftTests, field, operator string, list []nftValue,
	set *nftSet) (nftTests, error) {
	numeric := map[string]struct {
		cond op.Cond
		most uint32
	}{"ttl": {op.CondTTL, 255}, "hoplimit": {op.CondTTL, 255}, "length": {op.CondLen, 65535},
		"id": {op.CondID, 65535}}
	switch field {
	case "saddr", "daddr":
		in, table := op.CondSrcIn, op.CondSrcTable
		if field == "daddr" {
			in, table = op.CondDstIn, op.CondDstTable
		}
		if set != nil {
			name, err := p.reader.table(set)
			t.tests = []rule.Test{{Op: table, Name: name}}
			return t, err
		}
		one := rule.Test{Op: in}
		for _, v := range list {
			prefixes, err := v.prefixes()
			if err != nil {
				return t, err
			}
			one.Prefixes = append(one.Prefixes, prefixes...)
		}
		if len(one.Prefixes) > 0 {
			t.tests = []rule.Test{one}
		}
		return t, nil
	case "protocol", "nexthdr":
		for _, v := range list {
			n, ok := protocolNumber(v.lo)
			if !ok {
				return t, fmt.Errorf("unknown protocol %s", v.lo)
			}
			// nft compares the field of the first header, rules what follows the extensions.
			if field == "nexthdr" && (operator == "!=" || slices.Contains(extensions, n)) {
				return t, errors.New("rules match the protocol behind extension headers, not the " +
					"next header: meta l4proto")
			}
			t.tests = append(t.tests, proto(n))
		}
		p.reader.nextHeader = p.reader.nextHeader || field == "nexthdr"
		return t, nil
	case "dscp":
		for _, v := range list {
			n, ok := dscpClasses[v.lo]
			if !ok {
				r, isNumber := v.number(63, nil)
				if !isNumber {
					return t, fmt.Errorf("unknown DSCP %s", v.lo)
				}
				n = uint(r.Lo)
			}
			t.tests = append(t.tests, dscpTest(n))
		}
		return t, nil
	}
	is, ok := numeric[field]
	if !ok {
		return t, fmt.Errorf("the field %s of IP is not matched by rules", field)
	}
	for _, v := range list {
		one, ok := numbers(is.cond, operator, v, is.most, nil)
		if !ok {
			return t, fmt.Errorf("unknown number %s", v.lo)
		}
		if field == "length" && p.rule.Family == "ip6" {
			return t, fmt.Errorf("the length of the payload is not matched, that of the packet is")
		}
		t.tests = append(t.tests, one)
	}
	return t, nil
}

// portTests reads ports.
func portTests(t nftTests, o op.Cond, operator string, list []nftValue) (nftTests, error) {
	one := rule.Test{Op: o}
	for _, v := range list {
		r, ok := v.number(65535, nil)
		if !ok {
			all, known := portRanges(v.lo)
			if !known || v.lo != v.hi {
				return t, fmt.Errorf("unknown port %s", v.lo)
			}
			r = all[0]
		}
		r, possible := compared(operator, r, 65535)
		if possible {
			one.Ranges = append(one.Ranges, r)
		}
	}
	if len(one.Ranges) > 0 {
		t.tests = []rule.Test{one}
	}
	return t, nil
}

// flagTests reads TCP flags without a mask: any of the list. With the operators == and != nft
// compares the whole byte, and so refuses, or lets pass, SYNs that offer ECN (RFC 3168) by other
// rules than those that do not.
func flagTests(t nftTests, operator string, list []nftValue) (nftTests, error) {
	if operator == "==" || operator == "!=" {
		return t, errors.New("this compares the flags of ECN too, which rules do not know: write " +
			"tcp flags & (fin | syn | rst | psh | ack | urg) " + operator + " ...")
	}
	for _, v := range list {
		bits, ok := flagBits(v.lo)
		if !ok {
			return t, fmt.Errorf("unknown TCP flag %s", v.lo)
		}
		t.tests = append(t.tests, rule.Test{Op: op.CondFlags, A: bits, B: bits})
	}
	return t, nil
}
