package dns

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// ttl of all answers, in seconds: pods come and go.
	ttl = 5
	// mostAddrs is how many addresses an answer has.
	mostAddrs = 32
	// plainSize is how long an answer over UDP may be for one who does not say more (RFC 1035).
	// mostSize is what it never exceeds, so that it is not fragmented.
	plainSize, mostSize = 512, 1232
)

// query is what a message asks.
type query struct {
	header   dnsmessage.Header
	question dnsmessage.Question
	name     string // of the question, in lower case
	edns     bool
	size     int // of an answer over UDP
}

// verdict is what to do with a message.
type verdict uint8

const (
	drop    verdict = iota
	reply           // the answer is complete
	forward         // the resolvers of the host answer
)

// parse reads a message. What is not a query is dropped; what cannot be answered gets an error.
func parse(msg []byte) (q query, code dnsmessage.RCode, v verdict) {
	var p dnsmessage.Parser
	var err error
	if q.header, err = p.Start(msg); err != nil || q.header.Response {
		return q, 0, drop
	}
	if q.header.OpCode != 0 {
		return q, dnsmessage.RCodeNotImplemented, reply
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 {
		return q, dnsmessage.RCodeFormatError, reply
	}
	q.question, q.size = questions[0], plainSize
	q.name = strings.ToLower(q.question.Name.String())
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return q, dnsmessage.RCodeFormatError, reply
	}
	for {
		h, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return q, dnsmessage.RCodeSuccess, forward
		}
		if err != nil || h.Type == dnsmessage.TypeOPT && q.edns {
			return q, dnsmessage.RCodeFormatError, reply
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns, q.size = true, min(max(int(h.Class), plainSize), mostSize)
		}
		if p.SkipAdditional() != nil {
			return q, dnsmessage.RCodeFormatError, reply
		}
	}
}

// answer returns the answer to a message of a pod, or says that it is to be forwarded or dropped.
func (s *Server) answer(msg []byte, asker netip.Addr, tcp bool) (out []byte, q query, v verdict) {
	q, code, v := parse(msg)
	if v != forward {
		return q.build(code, false, nil, tcp), q, v
	}
	if q.question.Class != dnsmessage.ClassINET {
		return q.build(dnsmessage.RCodeRefused, false, nil, tcp), q, reply
	}
	var bodies []dnsmessage.ResourceBody
	known := true
	if name, ours := inZone(q.name); ours {
		bodies, known = s.addresses(name, asker, q.question.Type)
	} else if a, arpa := addrOf(q.name); arpa && s.inRanges(a) {
		bodies, known = s.pointer(a, q.question.Type)
	} else {
		return nil, q, forward
	}
	if !known {
		code = dnsmessage.RCodeNameError
	}
	return q.build(code, true, bodies, tcp), q, reply
}

// inZone returns what is in front of Zone, "" for the zone itself.
func inZone(name string) (rest string, ours bool) {
	if name == Zone {
		return "", true
	}
	rest, ours = strings.CutSuffix(name, "."+Zone)
	return rest + ".", ours
}

// addresses returns the addresses of a name that a question of this type asks for, and whether
// there is such a name for the asker.
func (s *Server) addresses(name string, asker netip.Addr, t dnsmessage.Type) (
	all []dnsmessage.ResourceBody, ok bool) {
	if name == "" {
		return nil, true
	}
	addrs, ok := s.names.lookup(name, asker, t == dnsmessage.TypeA, mostAddrs, s.random())
	for _, a := range addrs {
		switch t {
		case dnsmessage.TypeA:
			all = append(all, &dnsmessage.AResource{A: a.As4()})
		case dnsmessage.TypeAAAA:
			all = append(all, &dnsmessage.AAAAResource{AAAA: a.As16()})
		}
	}
	return all, ok
}

// pointer returns the name of the pod with an address.
func (s *Server) pointer(a netip.Addr, t dnsmessage.Type) (all []dnsmessage.ResourceBody, ok bool) {
	name, ok := s.names.owner(a)
	if !ok || name == "" {
		return nil, ok
	}
	ptr, err := dnsmessage.NewName(name)
	if err == nil && t == dnsmessage.TypePTR {
		all = append(all, &dnsmessage.PTRResource{PTR: ptr})
	}
	return all, true
}

// build makes an answer. One that is too long for UDP is empty and says so: it is asked for again
// over TCP.
func (q *query) build(code dnsmessage.RCode, ours bool, bodies []dnsmessage.ResourceBody,
	tcp bool) []byte {
	out, err := q.message(code, ours, bodies, false)
	if err == nil && !tcp && len(out) > max(q.size, plainSize) {
		out, err = q.message(code, ours, nil, true)
	}
	if err != nil {
		return nil
	}
	return out
}

func (q *query) message(code dnsmessage.RCode, ours bool, bodies []dnsmessage.ResourceBody,
	truncated bool) ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: q.header.ID, Response: true,
		OpCode: q.header.OpCode, Authoritative: ours, Truncated: truncated,
		RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true, RCode: code})
	b.EnableCompression()
	m := message{b: &b}
	if q.question.Name.Length > 0 {
		m.do(b.StartQuestions())
		m.do(b.Question(q.question))
	}
	m.do(b.StartAnswers())
	for _, body := range bodies {
		m.add(q.question.Name, body)
	}
	if ours && len(bodies) == 0 && !truncated {
		m.do(b.StartAuthorities())
		m.do(b.SOAResource(dnsmessage.ResourceHeader{Name: zoneName,
			Class: dnsmessage.ClassINET, TTL: ttl},
			dnsmessage.SOAResource{NS: zoneName, MBox: zoneName, Serial: 1, Refresh: ttl,
				Retry: ttl, Expire: ttl, MinTTL: ttl}))
	}
	if q.edns {
		m.do(b.StartAdditionals())
		var h dnsmessage.ResourceHeader
		m.do(h.SetEDNS0(mostSize, code, false))
		m.do(b.OPTResource(h, dnsmessage.OPTResource{}))
	}
	if m.err != nil {
		return nil, m.err
	}
	return b.Finish()
}

var zoneName = dnsmessage.MustNewName(Zone)

// message collects the first error of a builder.
type message struct {
	b   *dnsmessage.Builder
	err error
}

func (m *message) do(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *message) add(name dnsmessage.Name, body dnsmessage.ResourceBody) {
	h := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: ttl}
	switch r := body.(type) {
	case *dnsmessage.AResource:
		m.do(m.b.AResource(h, *r))
	case *dnsmessage.AAAAResource:
		m.do(m.b.AAAAResource(h, *r))
	case *dnsmessage.PTRResource:
		m.do(m.b.PTRResource(h, *r))
	}
}

// addrOf returns the address of a name in in-addr.arpa or ip6.arpa.
func addrOf(name string) (a netip.Addr, ok bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(rest, ".")
		if len(parts) != 4 {
			return a, false
		}
		a, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
		return a, err == nil
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok || len(rest) != 63 {
		return a, false
	}
	var text strings.Builder
	for i := range 32 {
		if i > 0 && i%4 == 0 {
			text.WriteByte(':')
		}
		text.WriteByte(rest[62-2*i])
		if i < 31 && rest[61-2*i] != '.' {
			return a, false
		}
	}
	a, err := netip.ParseAddr(text.String())
	return a, err == nil
}
