package proxy

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// feed is a listener to which connections are given.
type feed struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newFeed() *feed { return &feed{conns: make(chan net.Conn), done: make(chan struct{})} }

// give hands a connection to the server, false if there is none any more.
func (f *feed) give(c net.Conn) bool {
	select {
	case f.conns <- c:
		return true
	case <-f.done:
		return false
	}
}

// Accept returns the next connection given.
func (f *feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (f *feed) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// Addr is of no meaning.
func (f *feed) Addr() net.Addr { return &net.UnixAddr{} }

// webConn is a client's connection in the hands of the HTTP server, with the bytes
// that were read to see that it is one.
type webConn struct {
	net.Conn
	client *client
	early  []byte

	// What plain requests of this client go over, for the user that it has shown; nil before the
	// first. Connections are never shared between clients or users: a server may know a connection
	// by who has authenticated on it.
	mu      sync.Mutex
	forward *http.Transport // guarded by mu
	shown   string          // guarded by mu
}

// webKey finds the webConn in a request's context.
type webKey struct{}

// transport returns what carries plain requests of the client with these credentials.
func (w *webConn) transport(s *Server, credentials string) *http.Transport {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forward != nil && w.shown == credentials {
		return w.forward
	}
	if w.forward != nil {
		w.forward.CloseIdleConnections()
	}
	w.shown = credentials
	w.forward = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			far, err := s.dial(ctx, w.client.conn, network, address)
			if err != nil {
				return nil, err
			}
			return &idleConn{Conn: far, clock: newClock(s.IdleTimeout), s: s}, nil
		},
		DisableCompression:    true, // what the client asked for is what it gets
		MaxIdleConnsPerHost:   1,    // a client's requests come one after the other
		MaxIdleConns:          4,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	return w.forward
}

// Read gives the early bytes first.
func (w *webConn) Read(b []byte) (int, error) {
	if len(w.early) > 0 {
		n := copy(b, w.early)
		if w.early = w.early[n:]; len(w.early) == 0 {
			w.early = nil
		}
		return n, nil
	}
	return w.Conn.Read(b)
}

// Close ends the client.
func (w *webConn) Close() error {
	w.mu.Lock()
	if w.forward != nil {
		w.forward.CloseIdleConnections()
	}
	w.mu.Unlock()
	return w.client.Close()
}

func (s *Server) prepareHTTP() {
	s.web = &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ReadHeaderTimeout: s.HandshakeTimeout,
		IdleTimeout:       s.IdleTimeout,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, webKey{}, c)
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	web, ok := r.Context().Value(webKey{}).(*webConn)
	if !ok {
		http.Error(w, "weir proxy: no connection of a client", http.StatusInternalServerError)
		return
	}
	if len(s.Users) > 0 && !s.authorized(r, web) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="weir proxy"`)
		http.Error(w, "weir proxy: a user and password are needed", http.StatusProxyAuthRequired)
		return
	}
	switch {
	case r.Method == http.MethodConnect:
		s.connect(w, r, web)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		s.plain(w, r, web)
	case r.URL.IsAbs():
		http.Error(w, "weir proxy: only http: URLs are fetched here, use CONNECT for others",
			http.StatusBadRequest)
	default:
		http.Error(w, "weir proxy: this is a proxy, not a web server", http.StatusBadRequest)
	}
}

func (s *Server) authorized(r *http.Request, web *webConn) bool {
	kind, token, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " ")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(token))
	user, pass, ok := strings.Cut(string(raw), ":")
	if !strings.EqualFold(kind, "Basic") || err != nil || !ok {
		if kind != "" {
			s.stats.denied.Add(1)
		}
		return false
	}
	return s.allowed(r.Context(), web.client.conn, user, pass)
}

// connect serves CONNECT: from here on the connection is the client's.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, web *webConn) {
	s.stats.connects.Add(1)
	address, err := connectTarget(r)
	if err != nil {
		s.stats.badHandshakes.Add(1)
		http.Error(w, "weir proxy: "+err.Error(), http.StatusBadRequest)
		return
	}
	far, err := s.dial(r.Context(), web.client.conn, "tcp", address)
	if err != nil {
		http.Error(w, "weir proxy: "+err.Error(), statusFor(err))
		return
	}
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		far.Close()
		http.Error(w, "weir proxy: this connection cannot be a tunnel",
			http.StatusInternalServerError)
		return
	}
	if !web.client.own(far) {
		return
	}
	early := append([]byte(nil), web.early...)
	if n := buffered.Reader.Buffered(); n > 0 {
		b, _ := buffered.Reader.Peek(n)
		early = append(append([]byte(nil), b...), web.early...)
	}
	web.Conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(web.Conn,
		"HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		web.client.Close()
		return
	}
	s.relay(web.client, far, early)
}

// connectTarget checks the authority of a CONNECT request.
func connectTarget(r *http.Request) (string, error) {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("CONNECT wants host:port, not %q", r.Host)
	}
	if strings.ContainsAny(host, "/@? ") {
		return "", fmt.Errorf("%q is no host", host)
	}
	return net.JoinHostPort(host, port), nil
}

func statusFor(err error) int {
	if errors.Is(err, ErrNotAllowed) {
		return http.StatusForbidden
	}
	if replyFor(err) == replyTimeout {
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// plain fetches an http: URL for the client.
func (s *Server) plain(w http.ResponseWriter, r *http.Request, web *webConn) {
	s.stats.requests.Add(1)
	p := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = cloneURL(p.In.URL)
			p.Out.Host = p.In.URL.Host // RFC 9112 section 3.2.2: the URL wins
			for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
				"X-Forwarded-Proto"} {
				if v, ok := p.In.Header[h]; ok {
					p.Out.Header[h] = v
				}
			}
		},
		Transport: web.transport(s, r.Header.Get("Proxy-Authorization")),
		ErrorLog:  log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "weir proxy: "+err.Error(), statusFor(err))
		},
		FlushInterval: -1, // what comes is passed on at once
	}
	defer func() {
		// The server wants this panic to cut the connection: the answer broke off.
		if v := recover(); v != nil {
			if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				s.Log.Error("request failed", "error", v)
			}
			panic(http.ErrAbortHandler)
		}
	}()
	p.ServeHTTP(w, r)
}

func cloneURL(u *url.URL) *url.URL {
	c := *u
	c.User = nil
	return &c
}
