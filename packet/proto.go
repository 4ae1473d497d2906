package packet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Proto is an IP protocol number: the IPv4 protocol, or the IPv6 next header. Every command, event
// and API of Weir writes it by the same name.
type Proto uint8

// IP protocol numbers that the decoder knows by name. They have no type, so that a Proto and
// a byte of a header can both be compared with them.
const (
	ProtoHopByHop    = 0
	ProtoICMP        = 1
	ProtoIGMP        = 2
	ProtoTCP         = 6
	ProtoUDP         = 17
	ProtoRouting     = 43
	ProtoFragment    = 44
	ProtoGRE         = 47
	ProtoESP         = 50
	ProtoAH          = 51
	ProtoICMPv6      = 58
	ProtoNoNext      = 59
	ProtoDestination = 60
	ProtoSCTP        = 132
	ProtoUDPLite     = 136
)

// protoNames are the names that String returns.
var protoNames = [256]string{
	1: "icmp", 2: "igmp", 4: "ipencap", 6: "tcp", 17: "udp", 33: "dccp", 46: "rsvp", 47: "gre",
	50: "esp", 51: "ah", 58: "ipv6-icmp", 88: "eigrp", 89: "ospf", 97: "etherip", 103: "pim",
	108: "ipcomp", 112: "vrrp", 115: "l2tp", 132: "sctp", 136: "udplite",
}

// protoNumbers are the names that ParseProto reads: those of the IANA registry that a firewall
// meets, spelled as in /etc/protocols, and the other common names of ICMPv6.
var protoNumbers = map[string]Proto{
	"icmp": 1, "igmp": 2, "ggp": 3, "ipencap": 4, "ipip": 4, "st": 5, "tcp": 6, "egp": 8, "igp": 9,
	"pup": 12, "udp": 17, "hmp": 20, "xns-idp": 22, "rdp": 27, "iso-tp4": 29, "dccp": 33, "xtp": 36,
	"ddp": 37, "idpr-cmtp": 38, "ipv6-route": 43, "ipv6-frag": 44, "idrp": 45, "rsvp": 46,
	"gre": 47, "esp": 50, "ah": 51, "skip": 57, "ipv6-icmp": 58, "icmp6": 58, "icmpv6": 58,
	"ipv6-nonxt": 59, "ipv6-opts": 60, "rspf": 73, "vmtp": 81, "eigrp": 88, "ospf": 89,
	"ax.25": 93, "etherip": 97, "encap": 98, "pim": 103, "ipcomp": 108, "carp": 112, "vrrp": 112,
	"l2tp": 115, "isis": 124, "sctp": 132, "fc": 133, "mobility-header": 135, "udplite": 136,
	"mpls-in-ip": 137, "manet": 138, "hip": 139, "shim6": 140, "wesp": 141, "rohc": 142,
}

// String returns the name of a common protocol, such as "tcp" or "ipv6-icmp", and the decimal
// number of any other. ParseProto reads both.
func (p Proto) String() string {
	if name := protoNames[p]; name != "" {
		return name
	}
	return strconv.Itoa(int(p))
}

// appendTo appends what String returns, without allocating.
func (p Proto) appendTo(b []byte) []byte {
	if name := protoNames[p]; name != "" {
		return append(b, name...)
	}
	return strconv.AppendUint(b, uint64(p), 10)
}

// HasPorts reports whether the headers of the protocol start with a source and a destination port
// that Decode reads: TCP, UDP, UDP-Lite and SCTP.
func (p Proto) HasPorts() bool {
	return p == ProtoTCP || p == ProtoUDP || p == ProtoSCTP || p == ProtoUDPLite
}

// ParseProto reads the name of a protocol in lower case, as ProtoNumber does, or a decimal number
// up to 255.
func ParseProto(s string) (Proto, error) {
	if p, ok := ProtoNumber(s); ok {
		return p, nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("unknown protocol %q: want a name in lower case (tcp, udp, icmp, "+
			"ipv6-icmp, sctp, ...) or a number up to 255", s)
	}
	return Proto(n), nil
}

// MarshalText implements encoding.TextMarshaler: it returns what String does.
func (p Proto) MarshalText() ([]byte, error) { return p.appendTo(nil), nil }

// UnmarshalText implements encoding.TextUnmarshaler: it reads what ParseProto does.
func (p *Proto) UnmarshalText(text []byte) (err error) {
	*p, err = ParseProto(string(text))
	return err
}

// ProtoNumber returns the protocol of a name. One protocol can have several: ICMPv6 is ipv6-icmp,
// icmp6 and icmpv6.
func ProtoNumber(name string) (Proto, bool) {
	p, ok := protoNumbers[name]
	return p, ok
}

// ProtoNames returns the names that ProtoNumber knows, sorted.
func ProtoNames() []string { return slices.Sorted(maps.Keys(protoNumbers)) }
