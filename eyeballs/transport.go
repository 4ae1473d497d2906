package eyeballs

import (
	"crypto/tls"
	"net/http"
	"time"
)

// Transport returns a new http.Transport whose connections d dials. Like http.DefaultTransport it
// speaks HTTP/2 to servers that offer it, uses the proxies of the environment, and closes idle
// connections. It limits a dial to 30 seconds if d has no Timeout; a transport with nothing but a
// DialContext does none of that. TLS and HTTPS of d apply to https servers; TLS also to those
// behind a proxy. Later changes of d do not affect the transport.
func (d *Dialer) Transport() *http.Transport {
	plain := *d
	if plain.Timeout == 0 {
		// A dial outlives its request, and TLSHandshakeTimeout does not apply to DialTLSContext.
		plain.Timeout = 30 * time.Second
	}
	plain.TLS, plain.HTTPS = nil, false
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           plain.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	if d.TLS == nil && !d.HTTPS {
		return t
	}
	secure := *d
	secure.Timeout = plain.Timeout
	secure.TLS = &tls.Config{}
	if d.TLS != nil {
		secure.TLS = d.TLS.Clone()
	}
	if len(secure.TLS.NextProtos) == 0 {
		secure.TLS.NextProtos = []string{"h2", "http/1.1"}
	}
	t.TLSClientConfig = secure.TLS.Clone()
	t.DialTLSContext = secure.DialContext
	return t
}
