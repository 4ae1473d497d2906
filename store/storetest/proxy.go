package storetest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy copies between clients and a server. While it is cut, no byte passes and no connection
// ends.
type Proxy struct {
	Address string      // where it listens
	Slow    atomic.Bool // 2 KiB each 40 ms

	network string

	mu     sync.Mutex
	to     func() (net.Conn, error) // the server
	cut    bool
	freed  *sync.Cond
	conns  []net.Conn // both ends, also of connections that have ended
	closed bool

	running sync.WaitGroup
}

// NewProxy listens at an address of a network, "tcp" or "unix", until the test ends. to is the
// address of the server, of the same network.
func NewProxy(t *testing.T, network, at, to string) *Proxy {
	t.Helper()
	listener, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	p := NewProxyAt(t, listener, nil)
	p.network = network
	p.LeadTo(to)
	return p
}

// NewProxyAt accepts from a listener, until the test ends, and reaches the server by a function.
func NewProxyAt(t *testing.T, listener net.Listener, to func() (net.Conn, error)) *Proxy {
	t.Helper()
	p := &Proxy{Address: listener.Addr().String(), to: to}
	p.freed = sync.NewCond(&p.mu)
	t.Cleanup(func() {
		listener.Close()
		p.Cut(false)
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.closed = true
		p.mu.Unlock()
		p.running.Wait()
	})
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(client) })
		}
	})
	return p
}

// LeadTo changes the server of the connections to come.
func (p *Proxy) LeadTo(address string) {
	p.Lead(func() (net.Conn, error) { return net.Dial(p.network, address) })
}

// Lead is LeadTo for a server that is reached by a function.
func (p *Proxy) Lead(to func() (net.Conn, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// Cut cuts both sides off from each other, or lets bytes pass again.
func (p *Proxy) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	p.freed.Broadcast()
}

// wait waits while it is cut, and returns how the server is reached then.
func (p *Proxy) wait() (to func() (net.Conn, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cut {
		p.freed.Wait()
	}
	return p.to
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.track(client) {
		return
	}
	server, err := p.wait()()
	if err != nil {
		return
	}
	defer server.Close()
	if !p.track(server) {
		return
	}
	p.running.Go(func() {
		defer client.Close()
		p.copy(client, server)
	})
	p.copy(server, client)
}

// track has a connection end with the proxy, and reports whether that still runs.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, c)
	return !p.closed
}

// copy copies until either end fails. It reads on while it is cut, as the kernel does for a
// connection: no sender waits for the other end.
func (p *Proxy) copy(to, from net.Conn) {
	read, done := make(chan []byte, 1<<10), make(chan struct{})
	defer close(done)
	p.running.Go(func() {
		defer close(read)
		for {
			size := 32 << 10
			if p.Slow.Load() {
				size = 2 << 10
				time.Sleep(40 * time.Millisecond)
			}
			b := make([]byte, size)
			n, err := from.Read(b)
			if n > 0 {
				select {
				case read <- b[:n]:
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for b := range read {
		p.wait()
		if _, err := to.Write(b); err != nil {
			return
		}
	}
	p.wait() // the end of the connection, too
}
