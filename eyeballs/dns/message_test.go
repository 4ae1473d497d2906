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
