// Package pipenet connects a server and its clients in memory and without buffers, for tests. A
// write blocks until the other end reads it, and in a testing/synctest bubble the fake clock then
// advances.
package pipenet

import (
	"context"
	"io"
	"net"
	"sync"
)

// Listener is a net.Listener whose clients connect by Dial.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// Listen returns a Listener.
func Listen() *Listener {
	l := &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener. Nothing can be reached there.
func (*Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7477} }

// Dial connects to the Listener, whatever network and address are.
func (l *Listener) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// DialAndWrite connects to the Listener and writes the first words of a client.
func (l *Listener) DialAndWrite(text string) (net.Conn, error) {
	near, err := l.Dial(context.Background(), "", "")
	if err == nil {
		_, err = io.WriteString(near, text)
	}
	return near, err
}
