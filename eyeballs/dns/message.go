package dns

import (
	"errors"
	"math"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/svcb"
)

// udpSize is the size of a datagram, in bytes, that is not fragmented on the way (DNS flag day
// 2020).
const udpSize = 1232

// maxRecords bounds the records taken from one answer.
const maxRecords = 256

func wireType(t Type) dnsmessage.Type {
	switch t {
	case A:
		return dnsmessage.TypeA
	case HTTPS:
		return dnsmessage.TypeHTTPS
	case PTR:
		return dnsmessage.TypePTR
	default: // AAAA, and the AAAA of ipv4only.arpa
		return dnsmessage.TypeAAAA
	}
}

// pack appends a query to buf. edns adds EDNS(0), ad sets the AD bit.
func pack(buf []byte, id uint16, q dnsmessage.Question, edns, ad bool) ([]byte, error) {
	b := dnsmessage.NewBuilder(buf,
		dnsmessage.Header{ID: id, RecursionDesired: true, AuthenticData: ad})
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if err := b.Question(q); err != nil {
		return nil, err
	}
	if edns {
		if err := b.StartAdditionals(); err != nil {
			return nil, err
		}
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(udpSize, dnsmessage.RCodeSuccess, false); err != nil {
			return nil, err
		}
		if err := b.OPTResource(h, dnsmessage.OPTResource{}); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

// reply is a well-formed answer to the question.
type reply struct {
	rcode     dnsmessage.RCode
	truncated bool
	bare      bool // a format error that does not repeat the question
	lame      bool // of a server that neither has the zone nor asks others
	ad        bool
	addrs     []netip.Addr
	services  []svcb.Record
	host      string        // of the first PTR record
	ttl       time.Duration // of the answer, or of its absence
	cacheable bool
}

var (
	errBogus = errors.New("dns: not an answer to this question")
	errCase  = errors.New("dns: an answer to this question with other letter cases")
)

// parse reads a message that should answer the question. On an error the message must be ignored:
// it is malformed or answers another question. errCase means that only the case of the name's
// letters is wrong.
func parse(msg []byte, id uint16, name dnsmessage.Name, t dnsmessage.Type) (reply, error) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil {
		return reply{}, err
	}
	if !h.Response || h.ID != id || h.OpCode != 0 {
		return reply{}, errBogus
	}
	q, err := p.Question()
	if err == dnsmessage.ErrSectionDone && h.RCode == dnsmessage.RCodeFormatError {
		// Servers before EDNS(0) stop at the first record that they do not know, and send the
		// header alone. The caller decides whether the id is enough to believe it.
		return reply{rcode: h.RCode, bare: true}, nil
	}
	if err != nil {
		return reply{}, err
	}
	if q.Type != t || q.Class != dnsmessage.ClassINET || !equalFold(&q.Name, &name) {
		return reply{}, errBogus
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone {
		return reply{}, errBogus
	}
	if q.Name != name {
		return reply{}, errCase
	}
	r := reply{rcode: h.RCode, truncated: h.Truncated, ad: h.AuthenticData,
		lame: !h.Authoritative && !h.RecursionAvailable}
	if h.Truncated || h.RCode != dnsmessage.RCodeSuccess && h.RCode != dnsmessage.RCodeNameError {
		return r, nil
	}
	if err := r.answers(p, name, t); err != nil {
		return reply{}, err
	}
	if len(r.addrs) == 0 && len(r.services) == 0 {
		r.absence(p)
	}
	return r, nil
}

// saysNothing reports whether there are no records because the server does not know them. It refers
// to others, as glibc also interprets it, or could not send them even over TCP.
func (r *reply) saysNothing() bool {
	return r.truncated ||
		r.lame && r.rcode == dnsmessage.RCodeSuccess && !r.cacheable && r.host == ""
}

// answers collects the records of the name at the end of the chain of CNAMEs. The chain may be in
// any order, so the section is read until a pass finds nothing new.
func (r *reply) answers(p dnsmessage.Parser, name dnsmessage.Name, t dnsmessage.Type) error {
	ttl := uint32(math.MaxUint32)
	for range 16 {
		found, moved, err := r.pass(p, &name, t, &ttl)
		if err != nil {
			return err
		}
		if found || !moved {
			break
		}
	}
	r.ttl, r.cacheable = bounded(ttl, maxTTL), true
	return nil
}

// parseFolded is parse for a name in any letter case.
func parseFolded(msg []byte, id uint16, name dnsmessage.Name, t dnsmessage.Type) (reply, error) {
	var p dnsmessage.Parser
	if _, err := p.Start(msg); err != nil {
		return reply{}, err
	}
	if q, err := p.Question(); err == nil && equalFold(&q.Name, &name) {
		name = q.Name
	}
	return parse(msg, id, name, t)
}

// bounded converts a TTL: it is at most limit, and 0 if the highest bit is set (RFC 2181 section
// 8).
func bounded(ttl uint32, limit time.Duration) time.Duration {
	if ttl > math.MaxInt32 {
		return 0
	}
	return min(time.Duration(ttl)*time.Second, limit)
}

// pass reads the answer section once. It follows CNAMEs of name (moved) and collects its records
// (found); ttl becomes the smallest TTL of both.
func (r *reply) pass(p dnsmessage.Parser, name *dnsmessage.Name, t dnsmessage.Type,
	ttl *uint32) (found, moved bool, err error) {
	spoilt := false
	for {
		h, err := p.AnswerHeader()
		if err == dnsmessage.ErrSectionDone {
			if spoilt {
				r.services = nil
			}
			return found, moved, nil
		}
		if err != nil {
			return false, false, err
		}
		ours := h.Class == dnsmessage.ClassINET && equalFold(&h.Name, name) &&
			len(r.addrs)+len(r.services) < maxRecords
		switch {
		case ours && h.Type == dnsmessage.TypeCNAME && t != dnsmessage.TypeCNAME:
			c, err := p.CNAMEResource()
			if err != nil {
				return false, false, err
			}
			*name, moved, *ttl = c.CNAME, true, min(*ttl, h.TTL)
			continue
		case !ours || h.Type != t:
			if err := p.SkipAnswer(); err != nil {
				return false, false, err
			}
			continue
		case t == dnsmessage.TypeA:
			a, err := p.AResource()
			if err != nil {
				return false, false, err
			}
			r.addrs = append(r.addrs, netip.AddrFrom4(a.A))
		case t == dnsmessage.TypeAAAA:
			a, err := p.AAAAResource()
			if err != nil {
				return false, false, err
			}
			r.addrs = append(r.addrs, netip.AddrFrom16(a.AAAA))
		case t == dnsmessage.TypePTR:
			ptr, err := p.PTRResource()
			if err != nil {
				return false, false, err
			}
			if r.host == "" {
				r.host = ptr.PTR.String()
			}
		case t == dnsmessage.TypeHTTPS:
			res, err := p.HTTPSResource()
			if err != nil { // only the record is malformed, if the message continues after it
				if err := p.SkipAnswer(); err != nil {
					return false, false, err
				}
				found, spoilt, *ttl = true, true, min(*ttl, h.TTL)
				continue
			}
			rec, err := svcb.FromResource(&res.SVCBResource)
			switch {
			case err == nil:
				r.services = append(r.services, rec)
			case !errors.Is(err, svcb.ErrMandatory):
				spoilt = true
			}
		}
		found, *ttl = true, min(*ttl, h.TTL)
	}
}

// absence finds how long the absence of a record may be cached (RFC 2308 section 5). Without an SOA
// record it must not be.
func (r *reply) absence(p dnsmessage.Parser) {
	r.cacheable = false
	if p.SkipAllAnswers() != nil {
		return
	}
	for {
		h, err := p.AuthorityHeader()
		if err != nil {
			return
		}
		if h.Type != dnsmessage.TypeSOA {
			if p.SkipAuthority() != nil {
				return
			}
			continue
		}
		soa, err := p.SOAResource()
		if err == nil {
			r.ttl, r.cacheable = bounded(min(h.TTL, soa.MinTTL), maxNegativeTTL), true
		}
		return
	}
}

// equalFold compares names as DNS does: ASCII letters in any case. Servers and middleboxes change
// cases, some on purpose.
func equalFold(a, b *dnsmessage.Name) bool {
	if a.Length != b.Length {
		return false
	}
	for i := range a.Length {
		if lower(a.Data[i]) != lower(b.Data[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
