package dns

import (
	"errors"
	"net"
	"testing"

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

// TestTruncatedOverTCP: nor does an answer that does not fit into TCP either.
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
