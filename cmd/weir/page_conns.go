package main

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// pageConns listens for the connections to the page, of which there may be `most`. Every user of
// the machine can make one. So when there are too many, the oldest one that has not shown the token
// gives way to a new one. No one without the token keeps the owner from the page. A browser needs
// some six.
type pageConns struct {
	net.Listener
	most int

	mu       sync.Mutex
	unproved []*pageConn // guarded by mu; the oldest first
	proved   int         // guarded by mu
}

// pageConn is one of them.
type pageConn struct {
	net.Conn
	all    *pageConns
	proved bool // guarded by all.mu; a request with the token came by it
	gone   bool // guarded by all.mu
}

// Accept implements net.Listener. If all connections have shown the token, the new one is closed.
func (l *pageConns) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := &pageConn{Conn: c, all: l}
		old, fits := l.add(p)
		if old != nil {
			_ = old.Close() // the client learns of it, or has gone
		}
		if fits {
			return p, nil
		}
		_ = c.Close()
	}
}

// add counts a new connection, and returns the one that gives way to it.
func (l *pageConns) add(p *pageConn) (old *pageConn, fits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proved >= l.most {
		return nil, false
	}
	if l.proved+len(l.unproved) >= l.most {
		old = l.unproved[0]
		l.forgetLocked(old)
	}
	l.unproved = append(l.unproved, p)
	return old, true
}

// forgetLocked does not count a connection any more.
func (l *pageConns) forgetLocked(p *pageConn) {
	switch {
	case p.gone:
		return
	case p.proved:
		l.proved--
	default:
		l.unproved = without(l.unproved, p)
	}
	p.gone = true
}

func without(all []*pageConn, p *pageConn) []*pageConn {
	at := slices.Index(all, p)
	return slices.Delete(all, at, at+1)
}

// Close implements net.Conn.
func (p *pageConn) Close() error {
	p.all.mu.Lock()
	p.all.forgetLocked(p)
	p.all.mu.Unlock()
	return p.Conn.Close()
}

// prove notes that a request with the token came by the connection.
func (p *pageConn) prove() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	if p.gone || p.proved {
		return
	}
	p.all.unproved = without(p.all.unproved, p)
	p.proved = true
	p.all.proved++
}

type pageConnKey struct{}

// withPageConn is the ConnContext of the server of the page.
func withPageConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, pageConnKey{}, c)
}

// proves passes requests with the token on.
func proves(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := r.Context().Value(pageConnKey{}).(*pageConn); ok {
			p.prove()
		}
		next.ServeHTTP(w, r)
	})
}
