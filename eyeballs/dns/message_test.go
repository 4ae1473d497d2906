package dns

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

// TestLameServer: an empty answer of a server that neither has the zone nor asks others does not
// say that there is no record: the next server is asked.
func TestLameServer(t *testing.T) {
	lame, good := startDNS(t), startDNS(t)
	lame.Set("host.test", typeA, eyeballstest.Record{Lame: true})
	good.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1")})
	got, _ := lookup(t, etc(t, map[string]string{}, lame, good), "host.test", A)
	wantAddrs(t, got[A], "192.0.2.1")
	got, _ = lookup(t, etc(t, map[string]string{}, lame), "host.test", A)
	var err *net.DNSError
	if !errors.As(got[A].Err, &err) || err.IsNotFound || !err.IsTemporary {
		t.Errorf("the lame server alone: %v", got[A].Err)
	}
}

// TestMalformedHTTPSRecord: a record whose parameters are not in order makes its set invalid, as
// RFC 9460 section 2.2 demands, but not the message, which would count as forged.
func TestMalformedHTTPSRecord(t *testing.T) {
	name := dnsmessage.MustNewName("host.test.")
	record := func(last string) dnsmessage.Resource {
		return dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 60},
			Body: &dnsmessage.HTTPSResource{SVCBResource: dnsmessage.SVCBResource{Priority: 1,
				Target: dnsmessage.MustNewName("."), Params: []dnsmessage.SVCParam{
					{Key: dnsmessage.SVCParamALPN, Value: []byte("\x02h2")},
					{Key: dnsmessage.SVCParamPort, Value: []byte(last)}}}}}
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, Response: true},
		Questions: []dnsmessage.Question{{Name: name, Type: typeHTTPS,
			Class: dnsmessage.ClassINET}},
		Answers: []dnsmessage.Resource{record("\x01\xbb"), record("\x01\xbb")}}
	msg, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := parse(msg, 7, name, typeHTTPS); err != nil || len(r.services) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	msg[len(msg)-5] = byte(dnsmessage.SVCParamALPN) // the key of the last parameter: a second one
	if r, err := parse(msg, 7, name, typeHTTPS); err != nil || len(r.services) != 0 {
		t.Errorf("malformed: %+v, %v", r, err)
	}
	if _, err := parse(msg[:len(msg)-1], 7, name, typeHTTPS); err == nil {
		t.Error("a message that is cut off counts")
	}
}

// TestForgedAnswer: an answer with another id, to another question or in other letter cases is not
// taken, and of one with very many records only some are.
func TestForgedAnswer(t *testing.T) {
	ask := dnsmessage.MustNewName("hOsT.test.")
	packed := func(id uint16, question string, of dnsmessage.Type, records int) []byte {
		t.Helper()
		name := dnsmessage.MustNewName(question)
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, Response: true},
			Questions: []dnsmessage.Question{{Name: name, Type: of, Class: dnsmessage.ClassINET}}}
		for i := range records {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{
				Name: name, Class: dnsmessage.ClassINET, TTL: 60},
				Body: &dnsmessage.AResource{A: [4]byte{10, 0, byte(i >> 8), byte(i)}}})
		}
		msg, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return msg
	}
	for what, c := range map[string]struct {
		msg  []byte
		want error
	}{
		"the answer":         {packed(7, "hOsT.test.", typeA, 1), nil},
		"another id":         {packed(8, "hOsT.test.", typeA, 1), errBogus},
		"another name":       {packed(7, "hOst.tesu.", typeA, 1), errBogus},
		"another type":       {packed(7, "hOsT.test.", typeAAAA, 1), errBogus},
		"other letter cases": {packed(7, "HoSt.test.", typeA, 1), errCase},
	} {
		r, err := parse(c.msg, 7, ask, typeA)
		if !errors.Is(err, c.want) || (len(r.addrs) == 1) != (c.want == nil) {
			t.Errorf("%s: %v, %v", what, r.addrs, err)
		}
	}
	many := packed(7, "hOsT.test.", typeA, maxRecords+50)
	if r, err := parse(many, 7, ask, typeA); err != nil || len(r.addrs) != maxRecords {
		t.Errorf("%d records are taken: %v", len(r.addrs), err)
	}
}

// TestTruncatedOverTCP: an answer that is truncated even over TCP does not say that there is no
// record.
func TestTruncatedOverTCP(t *testing.T) {
	var got Answer
	x := &exchange{r: &Resolver{}, config: &Config{}, full: "host.test", open: 1,
		questions: []question{{t: A, wire: typeA}}, servers: make([]server, 1),
		transmissions: 1, answer: func(a Answer) { got = a }}
	x.handle(packet{tcp: true, reply: reply{truncated: true}})
	var err *net.DNSError
	if !errors.As(got.Err, &err) || err.IsNotFound || !err.IsTemporary {
		t.Errorf("%+v", got)
	}
}
