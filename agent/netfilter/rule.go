package netfilter

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// outcome is what a rule does with a packet that it matches.
type outcome struct {
	translates, masquerades bool
	jump                    string // to a chain of the same table
	anywhere                bool   // to a chain that a map names
	verdict                 verdict
}

// verdict is how a rule or a chain decides a packet.
type verdict int

const (
	undecided verdict = iota
	accepts
	drops
	returns // to the chain that jumped here
)

// field is what a register of nftables holds.
type field int

const (
	fieldOther field = iota
	fieldSource
	fieldDestination
	fieldIn
	fieldOut
	fieldAddressType
	fieldFamily
)

// content is what is known of a register.
type content struct {
	field field
	bytes int // of an address
	mask  []byte
}

// readRule reads a rule. What it does not understand it leaves out of the conditions.
func readRule(rule []nl.NFTExpr) (c conditions, o outcome) {
	registers := map[uint32]content{}
	for _, e := range rule {
		a := e.Attrs
		switch e.Name {
		case "payload":
			if _, loads := a[unix.NFTA_PAYLOAD_DREG]; loads {
				registers[a.Number(unix.NFTA_PAYLOAD_DREG)] = loaded(a)
			}
		case "meta":
			if _, loads := a[unix.NFTA_META_DREG]; loads {
				registers[a.Number(unix.NFTA_META_DREG)] = content{field: metaField(a)}
			}
		case "fib":
			at := content{}
			if a.Number(unix.NFTA_FIB_RESULT) == unix.NFT_FIB_RESULT_ADDRTYPE &&
				a.Number(unix.NFTA_FIB_FLAGS) == unix.NFTA_FIB_F_DADDR {
				at.field = fieldAddressType
			}
			registers[a.Number(unix.NFTA_FIB_DREG)] = at
		case "bitwise":
			r := registers[a.Number(unix.NFTA_BITWISE_SREG)]
			r.mask = a.Nested(unix.NFTA_BITWISE_MASK)[unix.NFTA_DATA_VALUE]
			if r.field != fieldSource && r.field != fieldDestination || len(r.mask) != r.bytes {
				r = content{}
			}
			registers[a.Number(unix.NFTA_BITWISE_DREG)] = r
		case "cmp":
			if a.Number(unix.NFTA_CMP_OP) == unix.NFT_CMP_EQ {
				c.compare(registers[a.Number(unix.NFTA_CMP_SREG)],
					a.Nested(unix.NFTA_CMP_DATA)[unix.NFTA_DATA_VALUE])
			} else {
				c.more = true
			}
		case "match":
			c.match(a.Text(unix.NFTA_MATCH_NAME), a.Number(unix.NFTA_MATCH_REV),
				a[unix.NFTA_MATCH_INFO])
		case "nat", "redir":
			o.translates = true
		case "masq":
			o.masquerades = true
		case "target":
			o.target(a.Text(unix.NFTA_TARGET_NAME))
		case "reject":
			o.verdict = drops
		case "immediate":
			o.immediate(a.Nested(unix.NFTA_IMMEDIATE_DATA).Nested(unix.NFTA_DATA_VERDICT))
		case "lookup":
			c.more = true
			_, maps := a[unix.NFTA_LOOKUP_DREG]
			if maps && a.Number(unix.NFTA_LOOKUP_DREG) == unix.NFT_REG_VERDICT {
				o.anywhere = true
			}
			delete(registers, a.Number(unix.NFTA_LOOKUP_DREG))
		default: // what it may have written is not known any more
			if e.Name != "counter" && e.Name != "log" {
				c.more = true
				if e.Name != "limit" {
					clear(registers)
				}
			}
		}
	}
	return c, o
}

// immediate reads a verdict.
func (o *outcome) immediate(a nl.NFTAttrs) {
	o.jump = a.Text(unix.NFTA_VERDICT_CHAIN)
	if a[unix.NFTA_VERDICT_CODE] == nil {
		return
	}
	switch int32(a.Number(unix.NFTA_VERDICT_CODE)) {
	case nl.NFAccept:
		o.verdict = accepts
	case nl.NFDrop:
		o.verdict = drops
	case unix.NFT_RETURN:
		o.verdict = returns
	}
}

// target reads a target of iptables.
func (o *outcome) target(name string) {
	switch name {
	case "DNAT", "SNAT", "REDIRECT", "NETMAP":
		o.translates = true
	case "MASQUERADE":
		o.masquerades = true
	case "REJECT":
		o.verdict = drops
	}
}

// loaded returns what a load of the packet puts into a register: an address of its IP header, or
// the first bytes of one.
func loaded(a nl.NFTAttrs) content {
	at, size := a.Number(unix.NFTA_PAYLOAD_OFFSET), int(a.Number(unix.NFTA_PAYLOAD_LEN))
	if a.Number(unix.NFTA_PAYLOAD_BASE) != unix.NFT_PAYLOAD_NETWORK_HEADER || size > 16 {
		return content{}
	}
	switch {
	case at == 12 && size <= 4:
		return content{field: fieldSource, bytes: size}
	case at == 16 && size <= 4:
		return content{field: fieldDestination, bytes: size}
	case at == 8 && size > 4: // a shorter part of an address of IPv6 may be one of IPv4
		return content{field: fieldSource, bytes: size}
	case at == 24 && size > 4:
		return content{field: fieldDestination, bytes: size}
	}
	return content{}
}

func metaField(a nl.NFTAttrs) field {
	switch a.Number(unix.NFTA_META_KEY) {
	case unix.NFT_META_IIFNAME:
		return fieldIn
	case unix.NFT_META_OIFNAME:
		return fieldOut
	case unix.NFT_META_NFPROTO:
		return fieldFamily
	}
	return fieldOther
}

// compare adds that a register has a value.
func (c *conditions) compare(r content, value []byte) {
	switch r.field {
	case fieldSource:
		c.src = prefix(r, value)
		c.more = c.more || !c.src.IsValid()
	case fieldDestination:
		c.dst = prefix(r, value)
		c.more = c.more || !c.dst.IsValid()
	case fieldIn:
		c.in, c.inBegins = exactName(value), text(value)
	case fieldOut:
		c.out, c.outBegins = exactName(value), text(value)
	case fieldAddressType:
		c.local = len(value) == 4 && binary.NativeEndian.Uint32(value) == unix.RTN_LOCAL
		c.more = c.more || !c.local
	case fieldFamily:
		if len(value) == 1 {
			c.family = value[0]
		}
	case fieldOther:
		c.more = true
	}
}

// prefix returns the addresses that a comparison of a register lets through, the zero Prefix for
// what is none.
func prefix(r content, value []byte) netip.Prefix {
	if len(value) != r.bytes {
		return netip.Prefix{}
	}
	bits := 8 * len(value)
	if r.mask != nil {
		if bits = ones(r.mask); bits < 0 {
			return netip.Prefix{}
		}
	}
	size := 4
	if r.bytes > 4 {
		size = 16
	}
	whole := make([]byte, size)
	copy(whole, value)
	a, _ := netip.AddrFromSlice(whole)
	return netip.PrefixFrom(a, bits).Masked()
}

// ones returns the length of the prefix that a mask leaves, -1 for another mask.
func ones(mask []byte) (n int) {
	for n < 8*len(mask) && mask[n/8]>>(7-n%8)&1 == 1 {
		n++
	}
	for i := n; i < 8*len(mask); i++ {
		if mask[i/8]>>(7-i%8)&1 == 1 {
			return -1
		}
	}
	return n
}

// exactName returns the name of an interface, "" for the beginning of one.
func exactName(value []byte) string {
	name, _, whole := bytes.Cut(value, []byte{0})
	if !whole {
		return ""
	}
	return string(name)
}

// match adds a match of iptables that nftables carry as it is.
func (c *conditions) match(name string, revision uint32, info []byte) {
	if name != "addrtype" || len(info) < 8 {
		c.more = c.more || name != "comment"
		return
	}
	c.more = true
	// struct xt_addrtype_info of include/uapi/linux/netfilter/xt_addrtype.h
	types, inverted := binary.NativeEndian.Uint16(info[2:]), false
	switch {
	case revision == 0 && len(info) >= 12:
		inverted = binary.NativeEndian.Uint32(info[8:]) != 0
	case revision == 1:
		inverted = binary.NativeEndian.Uint32(info[4:])&2 != 0
	default:
		return
	}
	c.local = types == 1<<unix.RTN_LOCAL && !inverted
}

// describe names a chain.
func describe(c nl.NFTChain) string {
	return strings.Join([]string{"table", c.Table, "chain", c.Name}, " ")
}
