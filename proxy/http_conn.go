package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// httpConn is a client's connection that the HTTP server reads, with the bytes that were read to
// detect the protocol. Writes, and reads of the body of a request, fail with a timeout if nothing
// has moved for too long. The HTTP server bounds the time for the header of a request, and until
// the next request.
type httpConn struct {
	net.Conn
	client *client
	early  []byte
	clock  *clock // also of the connections to servers

	// forward carries the plain requests of this client with these credentials; nil before the
	// first. Clients and users never share a connection: a server may bind it to the user that has
	// authenticated on it.
	mu          sync.Mutex
	forward     *http.Transport // guarded by mu
	credentials string          // guarded by mu
	server      net.Conn        // guarded by mu; the newest connection of forward
	inBody      bool            // guarded by mu; reads have the deadline of the clock

	// loginBy is when the right password must have come; zero once it has, or if none is needed.
	// Until then the proxy waits for the client no longer, whatever the client sends.
	loginBy time.Time // guarded by mu
}

// connKey is the key of the httpConn in the context of a request.
type connKey struct{}

// transport returns the transport for plain requests of the client with these credentials.
func (w *httpConn) transport(credentials string) *http.Transport {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forward != nil && w.credentials == credentials {
		return w.forward
	}
	if w.forward != nil {
		w.forward.CloseIdleConnections()
	}
	w.credentials = credentials
	w.forward = &http.Transport{
		DialContext:            w.dialServer,
		DisableCompression:     true, // the client gets the encoding that it requested
		MaxIdleConns:           1,    // a client's requests come one after the other
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxAnswerHeader,
	}
	return w.forward
}

// dialServer connects to the server of a plain request, in the place of the server before: a client
// takes two descriptors, not more. No request uses the connection before any more.
func (w *httpConn) dialServer(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	before := w.server
	w.server = nil
	w.mu.Unlock()
	if before != nil {
		before.Close()
	}
	s := w.client.s
	target, err := s.dial(ctx, w.client.conn, network, address)
	if err != nil {
		return nil, err
	}
	w.clock.touch() // the time of the dial does not count
	c := &idleConn{Conn: target, clock: w.clock, s: s}
	w.mu.Lock()
	w.server = c
	w.mu.Unlock()
	return c, nil
}

// Read returns the early bytes first.
func (w *httpConn) Read(b []byte) (int, error) {
	if len(w.early) > 0 {
		n := copy(b, w.early)
		if w.early = w.early[n:]; len(w.early) == 0 {
			w.early = nil
		}
		return n, nil
	}
	w.beginRead()
	for {
		n, err := w.Conn.Read(b)
		if n > 0 {
			w.clock.touch()
		}
		if n > 0 || !isTimeout(err) || !w.extend() {
			return n, err
		}
	}
}

// Write waits as long as the clock allows.
func (w *httpConn) Write(b []byte) (int, error) {
	s := w.client.s
	w.mu.Lock()
	until := w.loginBy
	w.mu.Unlock()
	if until.IsZero() {
		return s.write(w.Conn, w.clock, b)
	}
	w.Conn.SetWriteDeadline(until.Add(s.HandshakeTimeout)) // the check may take long
	return w.Conn.Write(b)
}

// authorize removes the limits of a client without a password.
func (w *httpConn) authorize() {
	w.mu.Lock()
	w.loginBy = time.Time{}
	w.mu.Unlock()
	w.client.proved()
}

// SetReadDeadline undoes beginBody: the HTTP server calls it when the body has ended or there is
// none, and before it waits for the next request. The zero time is for its read in the background,
// which waits for the handler and not for the client.
func (w *httpConn) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inBody = false
	if !w.loginBy.IsZero() && t.After(w.loginBy) {
		t = w.loginBy
	}
	return w.Conn.SetReadDeadline(t)
}

// beginBody bounds reads by the clock from now on. The HTTP server sets no deadline in a body,
// neither for the handler nor when it reads what the handler has left, or answers without the
// handler.
func (w *httpConn) beginBody() {
	w.mu.Lock()
	w.inBody = true
	w.mu.Unlock()
}

// beginRead sets the deadline of a read in a body. The time counts from now: before, the client may
// have had to wait.
func (w *httpConn) beginRead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.inBody && !w.loginBy.IsZero():
		w.Conn.SetReadDeadline(w.loginBy)
	case w.inBody:
		w.clock.touch()
		w.Conn.SetReadDeadline(w.clock.deadline())
	}
}

// extend sets the next deadline of a read that has timed out in a body. It returns false if the
// clock allows no more, or if the deadline is not that of a body.
func (w *httpConn) extend() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.inBody {
		return false
	}
	if !w.loginBy.IsZero() || w.clock.over() {
		w.inBody = false // the deadline stays: later reads of this body fail, too
		w.client.s.stats.idleClosed.Add(1)
		return false
	}
	w.Conn.SetReadDeadline(w.clock.deadline())
	return true
}

// Close ends the client.
func (w *httpConn) Close() error {
	w.mu.Lock()
	if w.forward != nil {
		w.forward.CloseIdleConnections()
	}
	w.mu.Unlock()
	return w.client.Close()
}
