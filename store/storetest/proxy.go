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
	to      atomic.Value // string

	mu    sync.Mutex
	cut   bool
	freed *sync.Cond
}

// NewProxy listens at an address of a network, "tcp" or "unix", until the test ends. to is the
// address of the server, of the same network.
func NewProxy(t *testing.T, network, at, to string) *Proxy {
	t.Helper()
	p := &Proxy{network: network}
	p.freed = sync.NewCond(&p.mu)
	p.LeadTo(to)
	listener, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	p.Address = listener.Addr().String()
	t.Cleanup(func() {
		listener.Close()
		p.Cut(false)
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

// LeadTo changes the server of the connections to come.
func (p *Proxy) LeadTo(address string) { p.to.Store(address) }

// Cut cuts both sides off from each other, or lets bytes pass again.
func (p *Proxy) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	p.freed.Broadcast()
}

func (p *Proxy) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cut {
		p.freed.Wait()
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	p.wait()
	server, err := net.Dial(p.network, p.to.Load().(string))
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer client.Close()
		p.copy(client, server)
	}()
	p.copy(server, client)
}

func (p *Proxy) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		size := len(buffer)
		if p.Slow.Load() {
			size = 2 << 10
			time.Sleep(40 * time.Millisecond)
		}
		n, err := from.Read(buffer[:size])
		p.wait()
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}
