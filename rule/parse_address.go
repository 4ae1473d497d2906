package rule

import (
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirnet/weir/rule/op"
)

// Each place of an address has its three conditions.
var (
	meOf    = map[op.Cond]op.Cond{op.CondSrcIn: op.CondSrcMe, op.CondDstIn: op.CondDstMe}
	tableOf = map[op.Cond]op.Cond{op.CondSrcIn: op.CondSrcTable, op.CondDstIn: op.CondDstTable}
)

const addressHint = "any, me, me6, table(NAME), 10.0.0.0/8, 2001:db8::/32 or a comma list of " +
	"prefixes"

// address reads any, me, me6, table(...) or a list of prefixes.
func (p *parser) address(what op.Cond) (Test, error) {
	t, err := p.need("address", addressHint)
	if err != nil {
		return Test{}, err
	}
	switch {
	case t.text == "any":
		return Test{Op: op.CondTrue}, nil
	case t.text == "me":
		return Test{Op: meOf[what]}, nil
	case t.text == "me6":
		return Test{Op: meOf[what], A: 6}, nil
	case t.text == "to" || t.text == "from" || t.text == "}":
		return Test{}, p.fail(t, addressHint, "address is missing before %s", quote(t.text))
	case strings.HasPrefix(t.text, "table("):
		return p.table(t, tableOf[what])
	}
	test := Test{Op: what}
	for _, item := range p.items(t) {
		if isMapped(item.text) {
			continue
		}
		prefixes, err := p.prefixes(item)
		if err != nil {
			return Test{}, err
		}
		test.Prefixes = append(test.Prefixes, prefixes...)
	}
	if test.Prefixes == nil {
		return Test{Op: op.CondTrue, Not: true}, nil
	}
	return test, nil
}

// isMapped reports whether an item is a prefix of IPv4-mapped addresses, ::ffff:0:0/96 or inside of
// it. No packet has one: malformed packets are dropped before the rules.
func isMapped(item string) bool {
	text, length, ranged := strings.Cut(item, "/")
	addr, err := netip.ParseAddr(text)
	bits, ok := decimal(length)
	return ranged && ok && err == nil && addr.Is4In6() && bits >= 96 && bits <= 128
}

// items cuts a comma list, leaving the commas inside braces alone.
func (p *parser) items(t token) []token {
	var items []token
	depth, from := 0, 0
	for i := 0; i <= len(t.text); i++ {
		if i == len(t.text) || t.text[i] == ',' && depth == 0 {
			items = append(items, t.sub(from, i))
			from = i + 1
			continue
		}
		switch t.text[i] {
		case '{', '(':
			depth++
		case '}', ')':
			depth--
		}
	}
	return items
}

// prefixes reads one item of an address list: ADDR, ADDR/LEN, a.b.c.d:MASK or a.b.c.d[/LEN]{LIST}.
func (p *parser) prefixes(t token) ([]netip.Prefix, error) {
	if t.text == "" {
		return nil, p.fail(t, "", "empty item in an address list")
	}
	switch t.text {
	case "any", "me", "me6":
		return nil, p.fail(t, "{ "+t.text+" or ... }", "%q cannot stand in a comma list", t.text)
	}
	if strings.HasPrefix(t.text, "table(") {
		return nil, p.fail(t, "{ table(A) or ... }", "a table cannot stand in a comma list")
	}
	if at := strings.IndexByte(t.text, '{'); at > 0 {
		return p.addrSet(t, at)
	}
	if at := strings.IndexByte(t.text, ':'); at > 0 && strings.Count(t.text, ":") == 1 &&
		strings.Contains(t.text[:at], ".") {
		return p.masked(t, at)
	}
	prefix, err := p.prefix(t)
	return []netip.Prefix{prefix}, err
}

// prefix reads ADDR or ADDR/LEN; host bits are cleared.
func (p *parser) prefix(t token) (netip.Prefix, error) {
	text, length, ranged := strings.Cut(t.text, "/")
	addr, err := p.addr(t.sub(0, len(text)))
	if err != nil {
		return netip.Prefix{}, err
	}
	bits := uint32(addr.BitLen())
	if ranged {
		lt := t.sub(len(text)+1, len(t.text))
		if strings.Contains(length, ".") {
			return netip.Prefix{}, p.fail(lt, text+":"+length, "a mask follows a colon")
		}
		if bits, err = p.decNum(lt, "prefix length", 0, bits); err != nil {
			return netip.Prefix{}, err
		}
	}
	return netip.PrefixFrom(addr, int(bits)).Masked(), nil
}

func (p *parser) addr(t token) (netip.Addr, error) {
	addr, err := netip.ParseAddr(t.text)
	switch {
	case err == nil && addr.Zone() != "":
		return addr, p.fail(t, "name the interface with via", "an address in a rule has no zone")
	case err == nil && addr.Is4In6():
		return addr, p.fail(t, addr.Unmap().String(),
			"IPv4-mapped addresses never appear in packets")
	case err == nil:
		return addr, nil
	case strings.ContainsAny(t.text, ":"):
		return addr, p.fail(t, "2001:db8::1 or 2001:db8::/32", "%s is not an IPv6 address",
			quote(t.text))
	case t.text != "" && strings.Trim(t.text, "0123456789.") == "" &&
		strings.Count(t.text, ".") < 3:
		return addr, p.fail(t, "four numbers: 10.0.0.0/8; a port stands behind an address: any 80",
			"%s is a short form of an IPv4 address", quote(t.text))
	case t.text != "" && strings.Trim(t.text, "0123456789.") == "":
		return addr, p.fail(t, "four numbers from 0 to 255: 192.0.2.1", "%s is not an IPv4 address",
			quote(t.text))
	}
	hint := suggest(t.text, "any", "me", "me6")
	if hint == "" {
		hint = "host names are not looked up; write the address"
	}
	return addr, p.fail(t, hint, "%s is not an address", quote(t.text))
}

// masked reads a.b.c.d:MASK, whose colon is at index at.
func (p *parser) masked(t token, at int) ([]netip.Prefix, error) {
	addr, err := p.addr(t.sub(0, at))
	if err != nil {
		return nil, err
	}
	mt := t.sub(at+1, len(t.text))
	mask, err := netip.ParseAddr(mt.text)
	if n, ok := hexadecimal(mt.text); ok && n < 1<<32 {
		mask = netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
		err = nil
	}
	if err != nil || !mask.Is4() {
		return nil, p.fail(mt, "a.b.c.d:255.255.255.0", "%s is not a mask", quote(mt.text))
	}
	m := mask.As4()
	bits := uint32(m[0])<<24 | uint32(m[1])<<16 | uint32(m[2])<<8 | uint32(m[3])
	length := 0
	for ; length < 32 && bits>>(31-length)&1 == 1; length++ {
	}
	if uint64(bits)<<length&0xffffffff != 0 {
		return nil, p.fail(mt, "write the prefixes that it stands for",
			"the mask is not contiguous: its ones must all be on the left")
	}
	return []netip.Prefix{netip.PrefixFrom(addr, length).Masked()}, nil
}

// addrSet reads a.b.c.d/LEN{LIST}, whose brace is at index at: the addresses of the /LEN whose last
// number is in the list. Without LEN it is 24, as in ipfw. They come back as the fewest prefixes.
func (p *parser) addrSet(t token, at int) ([]netip.Prefix, error) {
	base, err := p.prefix(t.sub(0, at))
	if err != nil {
		return nil, err
	}
	if base.Addr().Is4() && !strings.Contains(t.text[:at], "/") {
		base = netip.PrefixFrom(base.Addr(), 24).Masked()
	}
	if !base.Addr().Is4() || base.Bits() < 24 {
		return nil, p.fail(t.sub(0, at), "a.b.c.0/24{1,5-9}",
			"a list of last numbers needs an IPv4 prefix of 24 to 32 bits")
	}
	if t.text[len(t.text)-1] != '}' {
		return nil, p.fail(t, "close it with }", "the list of last numbers is not closed")
	}
	a := base.Addr().As4()
	last := a[3] | uint8(1<<(32-base.Bits())-1)
	var in [256]bool
	for _, item := range t.sub(at+1, len(t.text)-1).split() {
		r, err := p.numRange(p.num, item, "last number", uint32(a[3]), uint32(last))
		if err != nil {
			return nil, err
		}
		for n := r.Lo; n <= r.Hi; n++ {
			in[n] = true
		}
	}
	var prefixes []netip.Prefix
	for n := 0; n < 256; {
		if !in[n] {
			n++
			continue
		}
		size := 1
		for n%(size*2) == 0 && n+size*2 <= 256 && !slices.Contains(in[n:n+size*2], false) {
			size *= 2
		}
		bits := 32
		for s := size; s > 1; s /= 2 {
			bits--
		}
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], a[2],
			byte(n)}), bits))
		n += size
	}
	return prefixes, nil
}

// table reads table(NAME[,VALUE]).
func (p *parser) table(t token, what op.Cond) (Test, error) {
	if t.text[len(t.text)-1] != ')' {
		return Test{}, p.fail(t, "table(NAME) or table(NAME,VALUE)",
			"the parenthesis is not closed")
	}
	parts := t.sub(len("table("), len(t.text)-1).split()
	test := Test{Op: what, Name: parts[0].text}
	if err := p.tableName(parts[0]); err != nil {
		return Test{}, err
	}
	if len(parts) > 2 {
		return Test{}, p.fail(parts[2], "table(NAME) or table(NAME,VALUE)",
			"a table takes a name and one value")
	}
	if len(parts) == 2 {
		v, err := p.num(parts[1], "table value", 0, 1<<32-1)
		if err != nil {
			return Test{}, err
		}
		test.HasValue, test.Value = true, v
	}
	return test, nil
}

// maxName is the longest name of a table or flow, in bytes.
const maxName = 63

func (p *parser) tableName(t token) error {
	if t.text == "" {
		return p.fail(t, "table(NAME)", "the name of the table is missing")
	}
	return p.name(t, "table name", "=/@:")
}

// name checks a name: letters, digits, '_', '-', '.' and the bytes of more.
func (p *parser) name(t token, what, more string) error {
	for i := range len(t.text) {
		c := t.text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("_-.", c) >= 0 || strings.IndexByte(more, c) >= 0 {
			continue
		}
		_, size := utf8.DecodeRuneInString(t.text[i:])
		return p.fail(t.sub(i, i+size), strings.TrimSpace("letters, digits and _ - . "+
			strings.Join(strings.Split(more, ""), " ")),
			"%s cannot contain %s", what, quote(t.text[i:i+size]))
	}
	if len(t.text) > maxName {
		return p.fail(t, "", "%s is longer than %d bytes", what, maxName)
	}
	return nil
}
