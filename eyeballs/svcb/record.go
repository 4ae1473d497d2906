// Package svcb holds what a dialer needs from an SVCB or HTTPS record (RFC 9460): the target, the
// port, the protocols, and the address hints. It is pure: bytes in, values out.
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

// Record is one SVCB or HTTPS record. Priority 0 is AliasMode: only Target counts. Any other
// priority is ServiceMode: a smaller number is preferred.
type Record struct {
	Priority uint16
	// Target is the name of the server, in lower case and without the final dot. Empty means the
	// owner of the record.
	Target string
	// ALPN lists the protocols of the record, without the default one. NoDefaultALPN means that the
	// service does not speak DefaultProtocol.
	ALPN          []string
	NoDefaultALPN bool
	// Port is 0 if the record has none: then the port of the URL applies.
	Port uint16
	// Hints4 and Hints6 are addresses that count as answers until the A and AAAA records of the
	// target are known (RFC 9460 section 7.3).
	Hints4, Hints6 []netip.Addr
	// ECH is an ECHConfigList in the form that crypto/tls takes.
	ECH []byte
}

// DefaultProtocol is the protocol of every HTTPS service whose record does not have no-default-alpn
// (RFC 9460 section 9.1.2).
const DefaultProtocol = "http/1.1"

// ErrMandatory means that a record has a mandatory parameter that the dialer does not support. A
// client must ignore such a record (RFC 9460 section 8).
var ErrMandatory = errors.New("svcb: record has an unsupported mandatory parameter")

// Alias reports whether r is in AliasMode.
func (r *Record) Alias() bool { return r.Priority == 0 }

// Speaks reports whether the service speaks one of protocols. A client without protocols accepts
// any service.
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

// FromResource reads a record from a parsed DNS resource. On an error the record must be ignored.
// If the error is not ErrMandatory, the record is malformed and its whole set must be ignored (RFC
// 9460 section 2.2).
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

// maxHints bounds the hints of one family that are taken from a record. One record can hold
// 16,000, each of which would be an address to order and to dial.
const maxHints = 16

func hints(to *[]netip.Addr, value []byte, size int) error {
	if len(value) == 0 || len(value)%size != 0 {
		return fmt.Errorf("svcb: malformed hints of %d bytes", len(value))
	}
	value = value[:min(len(value), maxHints*size)]
	for b := range slices.Chunk(value, size) {
		addr, _ := netip.AddrFromSlice(b)
		*to = append(*to, addr)
	}
	return nil
}

// checkMandatory checks the mandatory list (RFC 9460 section 8).
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
			dnsmessage.SVCParamIPv4Hint, dnsmessage.SVCParamIPv6Hint:
		default: // ECH too: the dialer does not encrypt the name that its handshake sends
			return ErrMandatory
		}
	}
	return nil
}

func canonical(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}
