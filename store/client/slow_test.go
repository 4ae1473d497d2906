package client_test

import (
	"crypto/tls"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/pipenet"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

// slowLine passes 2 KiB each 40 ms.
type slowLine struct{ net.Conn }

const slowStep = 2 << 10

func (s slowLine) Read(b []byte) (int, error) {
	time.Sleep(40 * time.Millisecond)
	return s.Conn.Read(b[:min(len(b), slowStep)])
}

func (s slowLine) Write(b []byte) (sent int, err error) {
	for sent < len(b) && err == nil {
		time.Sleep(40 * time.Millisecond)
		var n int
		n, err = s.Conn.Write(b[sent:min(len(b), sent+slowStep)])
		sent += n
	}
	return sent, err
}

// serveSlowly answers the calls of one client over a slow line, until the connection ends.
func serveSlowly(raw net.Conn, config *tls.Config, answer func(wire.Type) [][]byte) {
	defer raw.Close()
	conn := tls.Server(slowLine{raw}, config)
	if conn.Handshake() != nil {
		return
	}
	calls := make(chan wire.Type, 10)
	go func() {
		defer close(calls)
		for {
			t, _, err := wire.ReadFrame(conn, wire.MaxFrame)
			if err != nil {
				return
			}
			calls <- t
		}
	}()
	for {
		frames := [][]byte{wire.Progress{}.Encode()}
		select {
		case t, ok := <-calls:
			if !ok {
				return
			}
			frames = answer(t)
		case <-time.After(time.Second):
		}
		for _, frame := range frames {
			if _, err := conn.Write(frame); err != nil {
				return
			}
		}
	}
}

// TestLargeCallsOnASlowLine: what a call sends and what it is answered may take longer than the
// time of silence, as long as something comes. It ends when nothing of the answer comes.
func TestLargeCallsOnASlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = 5 * time.Second // 250 KiB
		value := make([]byte, 1<<19)
		rand.NewChaCha8([32]byte{}).Read(value)
		entries := []store.Entry{{Key: "h/a", Value: value}}
		reads := 0
		c := newSlowClient(t, silence, func(of wire.Type) [][]byte {
			switch of {
			case wire.TypeHello:
				return [][]byte{wire.Welcome{Cluster: "test", Epoch: 1}.Encode()}
			case wire.TypeCommit:
				return [][]byte{wire.Result{Number: 1, Revision: 1}.Encode()}
			}
			reads++
			first := wire.Result{Number: uint64(1 + reads), Revision: 1, More: true,
				Entries: entries}
			last := first
			if last.More = false; reads == 2 { // never
				return [][]byte{first.Encode()}
			}
			return [][]byte{first.Encode(), last.Encode()}
		})
		begin := time.Now()
		_, err := c.Commit(t.Context(), store.Txn{Put: entries})
		if took := time.Since(begin); err != nil || took < 2*silence {
			t.Fatalf("a commit takes %v: %v", took, err)
		}
		begin = time.Now()
		got, err := c.Read(t.Context(), "h/", 0)
		if took := time.Since(begin); err != nil || len(got.Entries) != 2 || took < 4*silence {
			t.Fatalf("a read of %d entries takes %v: %v", len(got.Entries), took, err)
		}
		begin = time.Now()
		_, err = c.Read(t.Context(), "h/", 0)
		if took := time.Since(begin); err == nil || took > 4*silence {
			t.Errorf("a read of which half comes takes %v: %v", took, err)
		}
	})
}

// newSlowClient returns a client of a server with such answers.
func newSlowClient(t *testing.T, silence time.Duration,
	answer func(wire.Type) [][]byte) *client.Client {
	t.Helper()
	return newClientOf(t, silence, func(raw net.Conn, served *tls.Config) {
		serveSlowly(raw, served, answer)
	})
}

// newClientOf returns a client of a server.
func newClientOf(t *testing.T, silence time.Duration,
	serve func(net.Conn, *tls.Config)) *client.Client {
	t.Helper()
	w := newPiped(t, "h/", silence)
	own, err := identity.Issue(w.ca, identity.ID{Kind: identity.Store, Name: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	served, err := own.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	listener := pipenet.Listen()
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(raw, served)
		}
	}()
	name, config := w.newHost(t, nil)
	c, err := client.New(client.Config{Name: name, Cluster: "test", TLS: config,
		Stores: func() []string { return []string{"a:1"} }, Dial: listener.Dial,
		Silence: silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
