package client_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
)

// counted counts what is written to a connection, and closes whole when that is a number of bytes.
type counted struct {
	*net.TCPConn
	left  *atomic.Int64
	whole chan struct{}
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	if left := c.left.Add(-int64(n)); left <= 0 && left+int64(n) > 0 {
		close(c.whole)
	}
	return n, err
}

// gate is between a client and a server. While it is locked it takes nothing of the client.
type gate struct{ sync.Mutex }

// through connects to the gate, which connects to the server.
func (g *gate) through(t *testing.T, server net.Conn) *net.TCPConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	taken, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		taken.Close()
		server.Close()
	})
	go io.Copy(taken, server)
	go func() {
		for memory := make([]byte, 32<<10); ; {
			g.Lock()
			g.Unlock() //lint:ignore SA2001 that it is open is all that matters
			n, err := taken.Read(memory)
			if err == nil {
				_, err = server.Write(memory[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return client.(*net.TCPConn)
}

// TestUnsentIsNotSent: a large transaction that nothing takes is not in the kernel as a whole,
// where it would count as sent. The answer would be awaited for the time of silence from then on,
// and an honest line of 64 KiB/s needs longer for it.
func TestUnsentIsNotSent(t *testing.T) {
	w := newSteady(t, "h/")
	value := make([]byte, store.MaxBytes-100)
	rand.NewChaCha8([32]byte{}).Read(value)
	var left atomic.Int64
	left.Store(int64(len(value)))
	whole := make(chan struct{})
	var line gate
	dial := w.dial
	w.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return counted{line.through(t, conn), &left, whole}, nil
	}
	c := w.client(t, nil)
	if _, err := c.Read(t.Context(), "h/a", 0); err != nil {
		t.Fatal(err)
	}
	line.Lock()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: "h/a", Value: value}}})
		ended <- err
	}()
	select {
	case <-whole:
		t.Error("all of it counts as sent, and nothing was taken")
	case <-time.After(500 * time.Millisecond):
	}
	line.Unlock()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
