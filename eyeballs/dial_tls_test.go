package eyeballs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
	"github.com/weirnet/weir/eyeballs/internal/race"
)

func TestDialTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	}))
	s.EnableHTTP2 = true
	s.Listener.Close()
	// One on the same port of another address accepts and sends nothing.
	both := listeners(t, "127.0.0.1", "127.0.0.2")
	s.Listener = both[0]
	s.StartTLS()
	defer s.Close()
	good := netip.MustParseAddrPort(s.Listener.Addr().String())
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())

	f := newFixture(t, "127.0.0.2 example.com\n127.0.0.1 example.com\n")
	f.TLS = &tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}}
	address := addr("example.com", good.Port())
	c, took := tlsDial(t, f, address)
	if state := c.ConnectionState(); !state.HandshakeComplete ||
		state.NegotiatedProtocol != "h2" {
		t.Errorf("%+v", state)
	}
	if took < race.AttemptDelay || f.count(EventConnected) != 2 || f.count(EventCancelled) != 1 {
		t.Errorf("a stalled handshake cost %v, want one attempt delay; events %+v", took, f.events)
	}
	// The next dial tries the address that stalled last. It knows the round-trip time of the other,
	// so its delay is shorter.
	f.events = nil
	tlsDial(t, f, address)
	f.begins("the second dial", "127.0.0.1", 0, race.MinAttemptDelay)
	// A certificate that is not trusted is a failed attempt like any other.
	f.TLS = &tls.Config{ServerName: "example.com"}
	_, err := f.Dial("tcp", addr("localhost", good.Port()))
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), "handshake") {
		t.Errorf("error %v", err)
	}
	// A literal gets its handshake too.
	f.TLS = &tls.Config{RootCAs: roots}
	if c, err := f.Dial("tcp", good.String()); err != nil {
		t.Error(err)
	} else if _, ok := c.(*tls.Conn); !ok {
		t.Errorf("%T", c)
	} else {
		c.Close()
	}
}

func tlsDial(t *testing.T, f *fixture, address string) (*tls.Conn, time.Duration) {
	t.Helper()
	begin := time.Now()
	c, err := f.Dial("tcp", address)
	took := time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	return c.(*tls.Conn), took
}

func TestDialHTTPSRecords(t *testing.T) {
	f := newFixture(t, "")
	f.HTTPS = true
	port := listen(t, "127.0.0.1", "127.0.0.7")
	param := func(k dnsmessage.SVCParamKey, v ...byte) dnsmessage.SVCParam {
		return dnsmessage.SVCParam{Key: k, Value: v}
	}
	f.dns.Set("_8443._https.host.test", typeHTTPS,
		eyeballstest.Record{Services: []dnsmessage.SVCBResource{{
			Priority: 1, Target: dnsmessage.MustNewName("svc.test."), Params: []dnsmessage.SVCParam{
				param(dnsmessage.SVCParamALPN, 2, 'h', '2'),
				param(dnsmessage.SVCParamPort, byte(port>>8), byte(port)),
				param(dnsmessage.SVCParamIPv4Hint, 127, 0, 0, 7),
			}}}})
	f.dns.Set("svc.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.1"), Lose: -1})
	f.dns.Set("svc.test", typeAAAA, eyeballstest.Record{})
	f.dns.Set("host.test", typeA, eyeballstest.Record{Addrs: ip("127.0.0.3")})
	f.dns.Set("host.test", typeAAAA, eyeballstest.Record{})
	c, err := f.Dial("tcp", "host.test:8443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.RemoteAddr().String(); got != addr("127.0.0.7", port) {
		t.Errorf("reached %s, want the hint at the record's port", got)
	}
}

// TestHTTPTransport: a plain http.Transport works with the dialer, too.
func TestHTTPTransport(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	}))
	defer s.Close()
	f := newFixture(t, "127.0.0.1 web.test\n")
	client := &http.Client{Transport: &http.Transport{DialContext: f.DialContext}}
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	resp, err := client.Get("http://web.test:" + port + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if string(body) != "hello" || err != nil {
		t.Errorf("%q %v", body, err)
	}
}
