package dns

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

// modelAddrs is the reference decoder for the addresses of a name: it unpacks the whole message and
// follows the chain of CNAMEs through a list.
func modelAddrs(m *dnsmessage.Message, name dnsmessage.Name,
	t dnsmessage.Type) (addrs []netip.Addr) {
	for range 16 {
		next, moved := name, false
		for _, r := range m.Answers {
			if r.Header.Class != dnsmessage.ClassINET || !equalFold(&r.Header.Name, &next) ||
				len(addrs) == maxRecords {
				continue
			}
			switch body := r.Body.(type) {
			case *dnsmessage.CNAMEResource:
				next, moved = body.CNAME, true
			case *dnsmessage.AResource:
				if t == typeA {
					addrs = append(addrs, netip.AddrFrom4(body.A))
				}
			case *dnsmessage.AAAAResource:
				if t == typeAAAA {
					addrs = append(addrs, netip.AddrFrom16(body.AAAA))
				}
			}
		}
		if len(addrs) > 0 || !moved {
			break
		}
		name = next
	}
	return addrs
}

// FuzzAnswer gives parse anything that a server might send.
func FuzzAnswer(f *testing.F) {
	name := dnsmessage.MustNewName("host.test.")
	for _, t := range []dnsmessage.Type{typeA, typeAAAA, typeHTTPS} {
		for _, msg := range eyeballstest.Messages(0x1234, name, t) {
			f.Add(msg)
		}
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		id := uint16(0x1234)
		if len(msg) > 1 {
			id = binary.BigEndian.Uint16(msg)
		}
		if _, err := parse(msg, id+1, name, typeA); err == nil {
			t.Fatal("accepted an answer with another id")
		}
		for _, typ := range []dnsmessage.Type{typeA, typeAAAA, typeHTTPS} {
			r, err := parse(msg, id, name, typ)
			if err != nil {
				continue
			}
			if len(r.addrs)+len(r.services) > maxRecords {
				t.Fatalf("%d records", len(r.addrs)+len(r.services))
			}
			if typ != typeHTTPS && len(r.services) > 0 || typ == typeHTTPS && len(r.addrs) > 0 {
				t.Fatalf("records of another type: %+v", r)
			}
			for _, a := range r.addrs {
				if a.Is4() != (typ == typeA) {
					t.Fatalf("%v answers %v", a, typ)
				}
			}
			if r.ttl < 0 {
				t.Fatalf("TTL %v", r.ttl)
			}
			var m dnsmessage.Message
			if r.truncated || m.Unpack(msg) != nil || r.rcode != 0 &&
				r.rcode != dnsmessage.RCodeNameError {
				continue
			}
			if want := modelAddrs(&m, name, typ); !slices.Equal(r.addrs, want) {
				t.Fatalf("%v: got %v, want %v", typ, r.addrs, want)
			}
		}
	})
}
