package eyeballs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"syscall"
	"testing"
	"time"
)

// newWebServer starts a server of HTTP/1.1 and HTTP/2 that answers with the protocol of the
// request. roots holds its certificate.
func newWebServer(t *testing.T) (port string, roots *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots = x509.NewCertPool()
	roots.AddCert(s.Certificate())
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, roots
}

// get requests an address and returns the answer.
func get(t *testing.T, transport *http.Transport, address string) string {
	t.Helper()
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestTransportSpeaksHTTP2: with the transport's own TLS, with that of the dialer, and with HTTPS
// records, a server that offers HTTP/2 gets requests in HTTP/2.
func TestTransportSpeaksHTTP2(t *testing.T) {
	port, roots := newWebServer(t)
	for name, set := range map[string]func(*Dialer) *http.Transport{
		"plain": func(d *Dialer) *http.Transport {
			tr := d.Transport()
			tr.TLSClientConfig = &tls.Config{RootCAs: roots}
			return tr
		},
		"TLS": func(d *Dialer) *http.Transport {
			d.TLS = &tls.Config{RootCAs: roots}
			return d.Transport()
		},
		"TLS and HTTPS": func(d *Dialer) *http.Transport {
			d.TLS, d.HTTPS = &tls.Config{RootCAs: roots}, true
			return d.Transport()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "127.0.0.1 example.com\n")
			if got := get(t, set(f.Dialer), "https://example.com:"+port+"/"); got != "HTTP/2.0" {
				t.Errorf("the server was asked in %s", got)
			}
			if f.count(EventWon) != 1 {
				t.Errorf("the dialer made %d connections, want 1", f.count(EventWon))
			}
		})
	}
}

// TestTransportWithoutTLS: the TLS of the dialer does not apply to http.
func TestTransportWithoutTLS(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	}))
	defer s.Close()
	f := newFixture(t, "127.0.0.1 web.test\n")
	f.TLS, f.HTTPS = &tls.Config{}, true
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	if got := get(t, f.Transport(), "http://web.test:"+port+"/"); got != "hello" {
		t.Errorf("the server said %q", got)
	}
}

// TestTransportAsksProxy: requests go to the proxy, http as a request and https through CONNECT,
// with the TLS of the dialer inside.
func TestTransportAsksProxy(t *testing.T) {
	port, roots := newWebServer(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			io.WriteString(w, r.Method+" "+r.URL.String())
			return
		}
		there, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close()
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer here.Close()
		io.WriteString(here, "HTTP/1.1 200 "+r.Host+"\r\n\r\n")
		go io.Copy(there, here)
		io.Copy(here, there)
	}))
	defer proxy.Close()
	f := newFixture(t, "")
	f.TLS = &tls.Config{RootCAs: roots}
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	for asked, want := range map[string]string{
		"http://nowhere.test/page": "GET http://nowhere.test/page",
		"https://example.com/":     "HTTP/2.0",
	} {
		tr := f.Transport()
		tr.Proxy = http.ProxyURL(address)
		if got := get(t, tr, asked); got != want {
			t.Errorf("%s through the proxy: %q, want %q", asked, got, want)
		}
	}
}

// TestTransportIsLikeTheDefault: what http.DefaultTransport sets, the transport sets, to the same
// value, and the proxies are those of the environment.
func TestTransportIsLikeTheDefault(t *testing.T) {
	want := reflect.ValueOf(http.DefaultTransport).Elem()
	got := reflect.ValueOf((&Dialer{}).Transport()).Elem()
	for i := range want.NumField() {
		field := want.Type().Field(i)
		switch field.Name {
		case "DialContext":
			continue // its own
		case "TLSClientConfig", "TLSNextProto":
			continue // a transport fills them when it is used first
		}
		if !field.IsExported() {
			continue
		}
		if field.Type.Kind() == reflect.Func {
			if got.Field(i).Pointer() != want.Field(i).Pointer() {
				t.Errorf("%s is another function", field.Name)
			}
		} else if !reflect.DeepEqual(got.Field(i).Interface(), want.Field(i).Interface()) {
			t.Errorf("%s is %v, want %v", field.Name, got.Field(i), want.Field(i))
		}
	}
}

// TestTransportEndsDials: a dial to a silent server ends, with the handshake of the dialer and
// without.
func TestTransportEndsDials(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 30 * time.Second,
		time.Hour: time.Hour} {
		refused, within := errors.New("refused"), time.Duration(0)
		d := &Dialer{Timeout: timeout, TLS: &tls.Config{}, ControlContext: func(ctx context.Context,
			_, _ string, _ syscall.RawConn) error {
			if end, ok := ctx.Deadline(); ok {
				within = time.Until(end)
			}
			return refused
		}}
		tr := d.Transport()
		for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
			"plain": tr.DialContext, "TLS": tr.DialTLSContext} {
			within = 0
			_, err := dial(t.Context(), "tcp", "127.0.0.1:9")
			if !errors.Is(err, refused) || within <= 0 || within > want {
				t.Errorf("%s, timeout %v: a dial has %v: %v", name, timeout, within, err)
			}
		}
	}
}
