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

// connQueue is a listener for connections that another listener has accepted.
type connQueue struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newConnQueue() *connQueue {
	return &connQueue{conns: make(chan net.Conn), done: make(chan struct{})}
}

// push gives a connection to Accept. It returns false after Close.
func (q *connQueue) push(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.done:
		return false
	}
}

// Accept returns the next connection.
func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

// Addr returns a meaningless address.
func (q *connQueue) Addr() net.Addr { return &net.UnixAddr{} }

// Bounds of headers in bytes, since each is held in memory: of a request, which anyone may send,
// and of an answer.
const (
	maxRequestHeader = 64 << 10
	maxAnswerHeader  = 256 << 10
)

func (s *Server) prepareHTTP() {
	s.web = &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ReadHeaderTimeout: s.HandshakeTimeout,
		IdleTimeout:       s.IdleTimeout,
		MaxHeaderBytes:    maxRequestHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		// StateActive: the header of a request has been read. The server answers some requests
		// without the handler, and reads their bodies too: `OPTIONS *`, and an Expect that it does
		// not know.
		ConnState: func(c net.Conn, state http.ConnState) {
			if web, ok := c.(*httpConn); ok && state == http.StateActive {
				web.beginBody()
			}
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	web, ok := r.Context().Value(connKey{}).(*httpConn)
	if !ok {
		http.Error(w, "weir proxy: not a connection of a client", http.StatusInternalServerError)
		return
	}
	if len(s.Users) > 0 {
		if !s.authorized(r, web) {
			w.Header().Set("Proxy-Authenticate", `Basic realm="weir proxy"`)
			http.Error(w, "weir proxy: a user and password are required",
				http.StatusProxyAuthRequired)
			return
		}
		web.authorize()
	}
	switch {
	case r.Method == http.MethodConnect:
		s.connect(w, r, web)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		s.forward(w, r, web)
	case r.URL.IsAbs():
		http.Error(w, "weir proxy: only http: URLs are served here, use CONNECT for others",
			http.StatusBadRequest)
	default:
		http.Error(w, "weir proxy: this is a proxy, not a web server", http.StatusBadRequest)
	}
}

func (s *Server) authorized(r *http.Request, web *httpConn) bool {
	kind, token, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " ")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(token))
	user, pass, ok := strings.Cut(string(raw), ":")
	if !strings.EqualFold(kind, "Basic") || err != nil || !ok {
		if kind != "" {
			s.stats.denied.Add(1)
		}
		return false
	}
	return s.allowed(r.Context(), web.client, user, pass)
}

// connect serves CONNECT. The connection becomes a tunnel.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, web *httpConn) {
	s.stats.connects.Add(1)
	address, err := connectTarget(r)
	if err != nil {
		s.stats.badHandshakes.Add(1)
		http.Error(w, "weir proxy: "+err.Error(), http.StatusBadRequest)
		return
	}
	target, err := s.dial(r.Context(), web.client.conn, "tcp", address)
	if err != nil {
		http.Error(w, "weir proxy: "+err.Error(), statusFor(err))
		return
	}
	_, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		target.Close()
		http.Error(w, "weir proxy: this connection cannot be a tunnel",
			http.StatusInternalServerError)
		return
	}
	if !web.client.attach(target) {
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
	s.relay(web.client, target, early)
}

// connectTarget checks the authority of a CONNECT request.
func connectTarget(r *http.Request) (string, error) {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("CONNECT needs host:port, not %q", r.Host)
	}
	if strings.ContainsAny(host, "/@? ") {
		return "", fmt.Errorf("%q is not a host", host)
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

// forward serves a plain request for an http: URL.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, web *httpConn) {
	s.stats.requests.Add(1)
	p := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = cloneURL(p.In.URL)
			p.Out.Host = p.In.URL.Host // not the Host header (RFC 9112 section 3.2.2)
			for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
				"X-Forwarded-Proto"} {
				if v, ok := p.In.Header[h]; ok {
					p.Out.Header[h] = v
				}
			}
		},
		Transport: web.transport(r.Header.Get("Proxy-Authorization")),
		ErrorLog:  log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "weir proxy: "+err.Error(), statusFor(err))
		},
		FlushInterval: -1, // data is passed on at once
	}
	// Without this the HTTP server reads the rest of the request's body, and closes it, before it
	// writes a response. A server that answers before it has read the body would wait for ever. A
	// transport that has not seen the end of the body yet would cut the response off. Only
	// connections that are not HTTP/1 refuse it.
	http.NewResponseController(w).EnableFullDuplex()
	defer func() {
		// This panic makes the server close the connection: the response is incomplete.
		if v := recover(); v != nil {
			if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				s.Log.Error("request failed", "err", v)
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
