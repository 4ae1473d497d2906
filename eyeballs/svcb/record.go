// Package svcb holds what a dialer wants to know of an SVCB or HTTPS record
// (RFC 9460): where the service lives, on which port, what it speaks, and the
// addresses that the record hints at. It is pure: bytes in, values out.
package svcb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Record is one SVCB or HTTPS record. Priority 0 is AliasMode: only Target
// counts. Anything else is ServiceMode, and a smaller number is wanted more.
type Record struct {
	Priority uint16
	// Target is the name that serves, in lower case and without the final dot.
	// Empty means the owner of the record.
	Target string
	// ALPN lists the protocols the record names, not counting the default one.
	ALPN          []string
	NoDefaultALPN bool
	// Port is 0 where the record leaves the port to the URL.
	Port uint16
	// Hints4 and Hints6 are addresses that are as good as answers until the
	// target's own A and AAAA records are known (RFC 9460 section 7.3).
	Hints4, Hints6 []netip.Addr
	// ECH is an ECHConfigList as the TLS library wants it.
	ECH []byte
}

// DefaultProtocol is what every HTTPS service speaks unless its record says
// no-default-alpn (RFC 9460 section 9.1.2).
const DefaultProtocol = "http/1.1"

// ErrMandatory says that a record needs a parameter that this package does not
// know. RFC 9460 section 8 has clients ignore such a record.
var ErrMandatory = errors.New("svcb: record has a mandatory parameter that is not known here")

// Alias reports whether r is in AliasMode.
func (r *Record) Alias() bool { return r.Priority == 0 }

// Speaks reports whether the service speaks one of protocols. A client that
// names no protocol takes any service.
func (r *Record) Speaks(protocols []string) bool {
	if len(protocols) == 0 {
		return true
	}
	for _, p := range protocols {
		if slices.Contains(r.ALPN, p) {
			return true
		}
		if p == DefaultProtocol && !r.NoDefaultALPN {
			return true
		}
	}
	return false
}

// FromResource reads a record out of a parsed DNS resource. An error means that
// the record must be ignored; the rest of its set stays good only if the error
// is ErrMandatory (RFC 9460 section 2.2: a malformed record spoils its set).
func FromResource(res *dnsmessage.SVCBResource) (Record, error) {
	r := Record{Priority: res.Priority, Target: canonical(res.Target.String())}
	if r.Alias() {
		return r, nil
	}
	last := -1
	for i := range res.Params {
		key, value := res.Params[i].Key, res.Params[i].Value
		if int(key) <= last {
			return Record{}, fmt.Errorf("svcb: parameter %v is out of order", key)
		}
		last = int(key)
		if err := r.set(key, value); err != nil {
			return Record{}, err
		}
	}
	if err := checkMandatory(res); err != nil {
		return Record{}, err
	}
	if r.NoDefaultALPN && len(r.ALPN) == 0 {
		return Record{}, errors.New("svcb: no-default-alpn without alpn")
	}
	return r, nil
}

func (r *Record) set(key dnsmessage.SVCParamKey, value []byte) error {
	switch key {
	case dnsmessage.SVCParamALPN:
		for b := value; len(b) > 0; {
			n := int(b[0])
			if n == 0 || len(b) < 1+n {
				return errors.New("svcb: malformed alpn")
			}
			r.ALPN = append(r.ALPN, string(b[1:1+n]))
			b = b[1+n:]
		}
		if len(r.ALPN) == 0 {
			return errors.New("svcb: empty alpn")
		}
	case dnsmessage.SVCParamNoDefaultALPN:
		if len(value) != 0 {
			return errors.New("svcb: no-default-alpn with a value")
		}
		r.NoDefaultALPN = true
	case dnsmessage.SVCParamPort:
		if len(value) != 2 {
			return errors.New("svcb: malformed port")
		}
		r.Port = binary.BigEndian.Uint16(value)
	case dnsmessage.SVCParamIPv4Hint:
		return hints(&r.Hints4, value, 4)
	case dnsmessage.SVCParamIPv6Hint:
		return hints(&r.Hints6, value, 16)
	case dnsmessage.SVCParamECH:
		r.ECH = slices.Clone(value)
	}
	return nil
}

func hints(to *[]netip.Addr, value []byte, size int) error {
	if len(value) == 0 || len(value)%size != 0 {
		return fmt.Errorf("svcb: malformed hints of %d bytes", len(value))
	}
	for b := range slices.Chunk(value, size) {
		addr, _ := netip.AddrFromSlice(b)
		*to = append(*to, addr)
	}
	return nil
}

// checkMandatory holds the record to RFC 9460 section 8.
func checkMandatory(res *dnsmessage.SVCBResource) error {
	value, ok := res.GetParam(dnsmessage.SVCParamMandatory)
	if !ok {
		return nil
	}
	if len(value) == 0 || len(value)%2 != 0 {
		return errors.New("svcb: malformed mandatory list")
	}
	for b := range slices.Chunk(value, 2) {
		key := dnsmessage.SVCParamKey(binary.BigEndian.Uint16(b))
		if _, there := res.GetParam(key); !there || key == dnsmessage.SVCParamMandatory {
			return fmt.Errorf("svcb: mandatory parameter %v is missing", key)
		}
		switch key {
		case dnsmessage.SVCParamALPN, dnsmessage.SVCParamNoDefaultALPN, dnsmessage.SVCParamPort,
			dnsmessage.SVCParamIPv4Hint, dnsmessage.SVCParamIPv6Hint, dnsmessage.SVCParamECH:
		default:
			return ErrMandatory
		}
	}
	return nil
}

func canonical(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}
