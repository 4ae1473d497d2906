package netfilter

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/op"
)

// number reads a number up to most.
func number(text string, most uint64) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n <= most
}

// numberRange reads N, N:M, N: or :M.
func numberRange(text string, most uint64) (rule.Range, bool) {
	lo, hi, ranged := strings.Cut(text, ":")
	if !ranged {
		lo, hi, ranged = strings.Cut(text, "-")
	}
	if !ranged {
		n, ok := number(lo, most)
		return rule.Range{Lo: n, Hi: n}, ok
	}
	r, ok := rule.Range{Hi: uint32(most)}, true
	if lo != "" {
		r.Lo, ok = number(lo, most)
	}
	if hi != "" && ok {
		r.Hi, ok = number(hi, most)
	}
	return r, ok && r.Lo <= r.Hi
}

// portRanges reads a comma list of ports, ranges and services.
func portRanges(list string) (all []rule.Range, ok bool) {
	for item := range strings.SplitSeq(list, ",") {
		r, ok := numberRange(item, 65535)
		if !ok {
			t, err := rule.ParseRule("count tcp from any to any "+item, nil)
			if err != nil || len(t.DstPort) != 1 {
				return nil, false
			}
			r = t.DstPort[0].Ranges[0]
		}
		all = append(all, r)
	}
	return all, true
}

// parsePrefix reads ADDRESS, ADDRESS/LENGTH or ADDRESS/MASK.
func parsePrefix(text string) (netip.Prefix, error) {
	host, length, ranged := strings.Cut(text, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s is not an address", text)
	}
	bits := addr.BitLen()
	if ranged && strings.ContainsAny(length, ".:") {
		mask, err := netip.ParseAddr(length)
		ones := 0
		if err == nil {
			ones, err = maskLength(mask)
		}
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("the mask of %s is not contiguous",
				text)
		}
		bits = ones
	} else if ranged {
		if bits, err = strconv.Atoi(length); err != nil {
			return netip.Prefix{}, fmt.Errorf("%s is not a prefix", text)
		}
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return p, fmt.Errorf("%s is not a prefix", text)
	}
	return p, nil
}

func maskLength(mask netip.Addr) (ones int, err error) {
	ended := false
	for _, b := range mask.AsSlice() {
		for bit := 7; bit >= 0; bit-- {
			switch one := b>>bit&1 == 1; {
			case one && ended:
				return 0, fmt.Errorf("a hole")
			case one:
				ones++
			default:
				ended = true
			}
		}
	}
	return ones, nil
}

// rangePrefixes returns the fewest prefixes of ADDRESS-ADDRESS.
func rangePrefixes(text string) (all []netip.Prefix, err error) {
	lo, hi, ok := strings.Cut(text, "-")
	if !ok {
		hi = lo
	}
	from, err1 := netip.ParseAddr(lo)
	to, err2 := netip.ParseAddr(hi)
	if err1 != nil || err2 != nil || from.BitLen() != to.BitLen() || to.Less(from) {
		return nil, fmt.Errorf("%s is not a range of addresses", text)
	}
	for {
		bits := from.BitLen()
		for bits > 0 {
			p := netip.PrefixFrom(from, bits-1)
			if p.Masked().Addr() != from || to.Less(last(p)) {
				break
			}
			bits--
		}
		p := netip.PrefixFrom(from, bits)
		all = append(all, p)
		end := last(p)
		if end == to {
			return all, nil
		}
		from = end.Next()
	}
}

// last is the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// typeTests are true for addresses that have a type in the routing table.
func (s *ruleset) typeTests(kind string, families int, in, me, table op.Cond) (tests []rule.Test,
	ok bool) {
	groups := rule.Test{Op: in}
	if families&ipv4 != 0 {
		groups.Prefixes = append(groups.Prefixes, netip.MustParsePrefix("224.0.0.0/4"))
	}
	if families&ipv6 != 0 {
		groups.Prefixes = append(groups.Prefixes, netip.MustParsePrefix("ff00::/8"))
	}
	switch kind {
	case "local":
		tests = []rule.Test{{Op: me}}
		if families&ipv4 != 0 { // all of it is, not only the address that the loopback has
			tests = append(tests, rule.Test{Op: in,
				Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		}
		if s.tables[Local] != nil {
			tests = append(tests, rule.Test{Op: table, Name: Local})
		}
		return tests, true
	case "multicast":
		return []rule.Test{groups}, true
	case "broadcast":
		if families&ipv4 == 0 {
			return nil, true
		}
		return []rule.Test{{Op: in, Prefixes: []netip.Prefix{
			netip.MustParsePrefix("255.255.255.255/32")}}, {Op: table, Name: Broadcast}}, true
	}
	return nil, false
}

func dscpTest(n uint) rule.Test {
	mask := uint64(1) << (n & 63)
	return rule.Test{Op: op.CondDSCP, A: uint32(mask), B: uint32(mask >> 32)}
}

// dscpClasses are the names of DSCP values.
var dscpClasses = map[string]uint{"be": 0, "cs0": 0, "df": 0, "cs1": 8, "cs2": 16, "cs3": 24,
	"cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56, "af11": 10, "af12": 12, "af13": 14, "af21": 18,
	"af22": 20, "af23": 22, "af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38,
	"va": 44, "ef": 46}

// icmpNames4 are the names of iptables for types of ICMP, with a code where they mean one.
var icmpNames4 = map[string]string{
	"echo-reply": "0", "pong": "0", "destination-unreachable": "3", "network-unreachable": "3/0",
	"host-unreachable": "3/1", "protocol-unreachable": "3/2", "port-unreachable": "3/3",
	"fragmentation-needed": "3/4", "source-route-failed": "3/5", "network-prohibited": "3/9",
	"host-prohibited": "3/10", "communication-prohibited": "3/13", "source-quench": "4",
	"redirect": "5", "echo-request": "8", "ping": "8", "router-advertisement": "9",
	"router-solicitation": "10", "time-exceeded": "11", "ttl-exceeded": "11",
	"ttl-zero-during-transit": "11/0", "ttl-zero-during-reassembly": "11/1",
	"parameter-problem": "12", "timestamp-request": "13", "timestamp-reply": "14",
	"info-request": "15", "info-reply": "16", "address-mask-request": "17",
	"address-mask-reply": "18",
}

// icmpNames6 are those of ip6tables and nft for ICMPv6.
var icmpNames6 = map[string]string{
	"destination-unreachable": "1", "no-route": "1/0", "communication-prohibited": "1/1",
	"address-unreachable": "1/3", "port-unreachable": "1/4", "packet-too-big": "2",
	"time-exceeded": "3", "ttl-exceeded": "3", "ttl-zero-during-transit": "3/0",
	"ttl-zero-during-reassembly": "3/1", "parameter-problem": "4", "bad-header": "4/0",
	"unknown-header-type": "4/1", "unknown-option": "4/2", "echo-request": "128", "ping": "128",
	"echo-reply": "129", "pong": "129", "mld-listener-query": "130", "mld-listener-report": "131",
	"mld-listener-done": "132", "mld-listener-reduction": "132", "router-solicitation": "133",
	"nd-router-solicit": "133", "router-advertisement": "134", "nd-router-advert": "134",
	"neighbour-solicitation": "135", "neighbor-solicitation": "135", "nd-neighbor-solicit": "135",
	"neighbour-advertisement": "136", "neighbor-advertisement": "136", "nd-neighbor-advert": "136",
	"redirect": "137", "nd-redirect": "137", "router-renumbering": "138",
	"ind-neighbor-solicit": "141", "ind-neighbor-advert": "142", "mld2-listener-report": "143",
}
