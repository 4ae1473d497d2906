package dns

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/eyeballs/svcb"
)

// Type is a kind of question that a [Resolver] answers, or a set of them: the values are bits. They
// are not the numbers that DNS uses on the wire.
type Type uint8

// Queries are sent back to back in the order HTTPS, AAAA, A (HEv3 section 4.1).
const (
	A Type = 1 << iota
	AAAA
	HTTPS
	// Prefix64 asks for the NAT64 prefixes of the network (RFC 7050).
	Prefix64
	// PTR asks for the name of an address. No dial needs it; see [Resolver.NameOf].
	PTR
)

// order is the order in which questions are sent.
var order = [...]Type{HTTPS, AAAA, A, Prefix64, PTR}

// String names the types in t, in the order in which queries are sent: "HTTPS+AAAA+A".
func (t Type) String() string {
	names := map[Type]string{HTTPS: "HTTPS", AAAA: "AAAA", A: "A", Prefix64: "PREF64", PTR: "PTR"}
	s := ""
	for _, one := range order {
		if t&one == 0 {
			continue
		}
		if s != "" {
			s += "+"
		}
		s += names[one]
	}
	return s
}

// Answer is the answer to one question.
type Answer struct {
	// Name and Type repeat the question. Type has exactly one bit.
	Name string
	Type Type
	// Addrs answers A and AAAA, Services answers HTTPS, Prefixes answers Prefix64, and Host answers
	// PTR. All are empty if the record does not exist or Err is a failure.
	Addrs    []netip.Addr
	Services []svcb.Record
	Prefixes []netip.Prefix
	Host     string
	// NoName means that the name itself does not exist (NXDOMAIN).
	NoName bool
	// TTL is how long the answer may be cached from now on.
	TTL time.Duration
	// Authentic is the AD bit of a server that resolv.conf trusts.
	Authentic bool
	// From names the source: hosts, cache, system, or the address of a server.
	From string
	// Err explains why there is no record. It is a *net.DNSError, except when the query could not
	// be sent at all.
	Err error
}
