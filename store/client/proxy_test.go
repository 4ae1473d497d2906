package client_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy copies between a client and a server. While it is cut, no byte passes and no connection
// ends.
type proxy struct {
	address string
	to      atomic.Value // string
	slow    atomic.Bool  // 2 KiB each 40 ms

	mu    sync.Mutex
	cut   bool
	freed *sync.Cond
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{}
	p.freed = sync.NewCond(&p.mu)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = listener.Addr().String()
	t.Cleanup(func() {
		listener.Close()
		p.setCut(false)
	})
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(from)
		}
	}()
	return p
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

func (p *proxy) serve(from net.Conn) {
	defer from.Close()
	p.wait()
	to, err := net.Dial("tcp", p.to.Load().(string))
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		defer from.Close()
		p.copy(from, to)
	}()
	p.copy(to, from)
}

func (p *proxy) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		size := len(buffer)
		if p.slow.Load() {
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
