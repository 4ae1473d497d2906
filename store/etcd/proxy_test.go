package etcd

import (
	"net"
	"sync"
	"testing"
)

// proxy copies between a unix socket and another one. While it is cut, no byte passes and no
// connection ends.
type proxy struct {
	to string

	mu    sync.Mutex
	cut   bool
	freed *sync.Cond
}

func (p *proxy) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	p.freed.Broadcast()
}

func (p *proxy) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cut {
		p.freed.Wait()
	}
}

func newProxy(t *testing.T, at, to string) *proxy {
	t.Helper()
	p := &proxy{to: to}
	p.freed = sync.NewCond(&p.mu)
	listener, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		listener.Close()
		p.setCut(false)
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

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.wait()
	server, err := net.Dial("unix", p.to)
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

func (p *proxy) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.wait()
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}
