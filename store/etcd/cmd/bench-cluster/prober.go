package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// prober sends a packet each millisecond and notes the answers.
type prober struct {
	conn net.Conn
	done chan struct{}
	all  sync.WaitGroup

	mu          sync.Mutex
	first, last time.Time // guarded by mu; of the answers
}

// probe probes a port of all hosts with kernels, each with a flow of its own.
func (p *policy) probe(port int) (all []*prober, err error) {
	for _, n := range p.lab.nodes {
		conn, err := p.lab.store.DialContext(context.Background(), "udp4",
			fmt.Sprintf("%v:%d", n.addr, port))
		if err != nil {
			return nil, err
		}
		one := &prober{conn: conn, done: make(chan struct{})}
		one.all.Go(one.send)
		one.all.Go(one.read)
		all = append(all, one)
	}
	return all, nil
}

func (p *prober) send() {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-every.C:
			_, _ = p.conn.Write([]byte("probe")) // refused until a version lets it in
		}
	}
}

func (p *prober) read() {
	b := make([]byte, 64)
	for {
		_, err := p.conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.mu.Lock()
		if p.last = time.Now(); p.first.IsZero() {
			p.first = p.last
		}
		p.mu.Unlock()
	}
}

// firstAnswer waits for an answer and returns when the first one came.
func (p *prober) firstAnswer() (at time.Time, err error) {
	err = eventually("an answer to "+p.conn.RemoteAddr().String(), func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if at = p.first; at.IsZero() {
			return errors.New("there is none")
		}
		return nil
	})
	return at, err
}

// stop ends the flow and returns when the last answer came.
func (p *prober) stop() time.Time {
	close(p.done)
	_ = p.conn.Close()
	p.all.Wait()
	return p.last
}
