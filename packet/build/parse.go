package build

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirnet/weir/packet"
)

// ParseText reads the text form of a packet and returns the packet, with bytes that
// decode to it. The form is
//
//	PROTO SRC[:PORT] -> DST[:PORT] [WORD [VALUE]]...
//
// PROTO is a name or number that ParseProto reads. An IPv6 address with a port is in brackets. The
// words, each with its default:
//
//	flags LETTERS   TCP flags of FSRPAUEC, or none (S)
//	seq N  ack N  win N     TCP fields (0)
//	vtag N          SCTP verification tag (0)
//	type N  code N  id N    ICMP type, code, and identifier (8 or 128, 0, 0)
//	rest N          bytes 4 to 7 of an ICMP message, instead of id (0)
//	ttl N  tos N    (64, 0)
//	ipid N          identification; in IPv6 it asks for a fragment header (0)
//	df  rf          IPv4 flags
//	frag OFF        fragment at that offset in bytes, a multiple of 8 (none)
//	mf              more fragments follow
//	opt LIST        options ssrr, lsrr, rr, ts, ra
//	ext LIST        IPv6 extension headers hop, dst, rt, rt0, ah
//	len N           length of the IP packet (just the headers)
//
// For example
//
//	tcp 10.0.0.5:4000 -> 10.0.1.9:80 flags S
//	ipv6-icmp fe80::1 -> ff02::1 type 134 ttl 255
func ParseText(s string) (packet.Packet, []byte, error) {
	d := description{ttl: 64, flags: packet.FlagSYN}
	if err := d.parse(s); err != nil {
		return packet.Packet{}, nil, fmt.Errorf("packet %q: %w", s, err)
	}
	b, err := d.build()
	if err != nil {
		return packet.Packet{}, nil, fmt.Errorf("packet %q: %w", s, err)
	}
	var p packet.Packet
	if r := p.Decode(b); r != packet.ReasonNone {
		return packet.Packet{}, nil, fmt.Errorf("packet %q: it would be malformed: %v", s, r)
	}
	return p, b, nil
}

// flagLetters, optionNames and extNames are the words that packet.Packet.AppendText writes.
const flagLetters = "FSRPAUEC"

var optionNames = map[string]uint8{
	"ssrr": packet.OptSSRR, "lsrr": packet.OptLSRR, "rr": packet.OptRR, "ts": packet.OptTS,
	"ra": packet.OptRouterAlert,
}

var extNames = map[string]uint8{
	"hop": packet.ExtHopByHop, "dst": packet.ExtDestination, "rt": packet.ExtRouting,
	"rt0": packet.ExtRouting0, "ah": packet.ExtAH,
}

// description is the parsed text form.
type description struct {
	proto              packet.Proto
	src, dst           netip.AddrPort
	flags              uint8
	seq, ack, rest     uint32
	win                uint16
	kind, code         uint8
	hasKind            bool
	ttl, tos           uint8
	ipid               uint32
	hasID              bool
	fragOff            uint16
	fragment           bool
	headFlags          uint8
	options, extension uint8
	length             int
}

func (d *description) parse(s string) error {
	fields := strings.Fields(s)
	if len(fields) < 4 || fields[2] != "->" {
		return errors.New("not PROTO SRC -> DST")
	}
	var err error
	if d.proto, err = packet.ParseProto(fields[0]); err != nil {
		return err
	}
	rest := fields[4:]
	for len(rest) > 0 {
		n, err := d.word(rest)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	ports := d.proto.HasPorts() && d.fragOff == 0
	if d.src, err = parseEnd(fields[1], ports); err != nil {
		return err
	}
	if d.dst, err = parseEnd(fields[3], ports); err != nil {
		return err
	}
	if d.src.Addr().Is4() != d.dst.Addr().Is4() {
		return fmt.Errorf("%v and %v are of different address families", d.src.Addr(), d.dst.Addr())
	}
	return nil
}

// parseEnd reads an address, with a port when the protocol has ports.
func parseEnd(s string, ports bool) (netip.AddrPort, error) {
	if ports {
		e, err := netip.ParseAddrPort(s)
		if err != nil || e.Addr().Zone() != "" || e.Addr().Is4In6() {
			return e, fmt.Errorf("%q is not ADDRESS:PORT, or [ADDRESS]:PORT for IPv6", s)
		}
		return e, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.AddrPort{}, fmt.Errorf("%q is not an IPv4 or IPv6 address without port and "+
			"zone", s)
	}
	return netip.AddrPortFrom(a, 0), nil
}

// word reads the word at the front of w, with its value, and returns how many elements it took.
func (d *description) word(w []string) (int, error) {
	switch w[0] {
	case "df":
		d.headFlags |= packet.FragDF
		return 1, nil
	case "rf":
		d.headFlags |= packet.FragRF
		return 1, nil
	case "mf":
		d.headFlags |= packet.FragMF
		d.fragment = true
		return 1, nil
	}
	if len(w) < 2 {
		return 0, fmt.Errorf("%q: unknown word, or its value is missing", w[0])
	}
	return 2, d.value(w[0], w[1])
}

// value reads the value v of a word.
func (d *description) value(word, v string) (err error) {
	switch word {
	case "flags":
		d.flags, err = parseFlags(v)
		return err
	case "opt":
		d.options, err = parseBits(v, optionNames)
		return err
	case "ext":
		d.extension, err = parseBits(v, extNames)
		return err
	}
	bits, ok := map[string]int{
		"seq": 32, "ack": 32, "vtag": 32, "rest": 32, "ipid": 32, "win": 16, "id": 16, "frag": 16,
		"len":  17,
		"type": 8, "code": 8, "ttl": 8, "tos": 8,
	}[word]
	if !ok {
		return fmt.Errorf("unknown word %q", word)
	}
	n, err := strconv.ParseUint(v, 0, bits)
	if err != nil {
		return fmt.Errorf("%s %q: want a number up to %d", word, v, uint64(1)<<bits-1)
	}
	switch word {
	case "seq":
		d.seq = uint32(n)
	case "vtag", "rest":
		d.rest = uint32(n)
	case "id":
		d.rest = uint32(n) << 16
	case "ack":
		d.ack = uint32(n)
	case "win":
		d.win = uint16(n)
	case "ipid":
		d.ipid, d.hasID = uint32(n), true
	case "frag":
		d.fragOff, d.fragment = uint16(n), true
	case "len":
		d.length = int(n)
	case "type":
		d.kind, d.hasKind = uint8(n), true
	case "code":
		d.code = uint8(n)
	case "ttl":
		d.ttl = uint8(n)
	case "tos":
		d.tos = uint8(n)
	}
	return nil
}

// parseFlags reads TCP flags as letters.
func parseFlags(s string) (flags uint8, err error) {
	if s == "none" {
		return 0, nil
	}
	for _, c := range s {
		i := strings.IndexRune(flagLetters, c)
		if i < 0 {
			return 0, fmt.Errorf("flags %q: want letters of %s, or none", s, flagLetters)
		}
		flags |= 1 << i
	}
	return flags, nil
}

// parseBits reads a comma list of names.
func parseBits(s string, names map[string]uint8) (set uint8, err error) {
	for item := range strings.SplitSeq(s, ",") {
		bit, ok := names[item]
		if !ok {
			return 0, fmt.Errorf("unknown option or header %q", item)
		}
		set |= bit
	}
	return set, nil
}
