package client_test

import (
	"context"
	"crypto/tls"
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

// TestWaitForEver: a weir-store that asks hosts to wait for a hundred years does not keep them away
// from the others.
func TestWaitForEver(t *testing.T) {
	synctest.Test(t, waitForEver)
}

func waitForEver(t *testing.T) {
	w := newPiped(t, "h/", silence)
	w.put(t, "h/a", "1")
	evil := pipenet.Listen()
	w.serveTLS(t, evil, func(conn net.Conn) {
		if _, _, err := wire.ReadFrame(conn, wire.MaxFirst); err != nil {
			return
		}
		for _, frame := range [][]byte{wire.Welcome{Cluster: "test", Epoch: 1}.Encode(),
			wire.Wait{For: 99 * 365 * 24 * time.Hour, Reason: "evil"}.Encode()} {
			if _, err := conn.Write(frame); err != nil {
				return
			}
		}
		_, _, _ = wire.ReadFrame(conn, wire.MaxFrame)
	})
	name, config := w.newHost(t, nil)
	first := true
	c, err := client.New(client.Config{Name: name, Cluster: "test", TLS: config,
		Stores: func() []string {
			if first { // whichever it orders first
				first = false
				return []string{"evil"}
			}
			return []string{w.proxy.Address}
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "evil" {
				return evil.Dial(ctx, network, address)
			}
			return w.dial(ctx, network, address)
		}, Silence: w.silence})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stepped, ctx := make(chan bool, 100), t.Context()
	var failed []error
	go c.Follow(ctx, client.Follow{
		Copy:   func() *store.Copy { return store.NewCopy(store.Snapshot{}) },
		Step:   func(store.Batch) error { stepped <- true; return nil },
		Failed: func(err error) { failed = append(failed, err) },
	})
	select {
	case <-stepped:
	case <-time.After(testTimeout):
		t.Fatal("the host still waits")
	}
	if len(failed) == 0 {
		t.Error("it was not asked to wait, which tests nothing")
	}
}

// serveTLS serves TLS connections with the certificate of a weir-store.
func (w *wired) serveTLS(t *testing.T, from net.Listener, serve func(net.Conn)) {
	t.Helper()
	own, err := identity.Issue(w.ca, identity.ID{Kind: identity.Store, Name: "evil"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := own.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	listener := tls.NewListener(from, config)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
}

// TestAnswerOfSmallEntries: an answer is bounded by the memory that it takes. A weir-store that is
// not what it should be may send any number of entries without bytes.
func TestAnswerOfSmallEntries(t *testing.T) {
	w := newSteady(t, "h/")
	const each = 100000
	frame := wire.Result{Number: 1, Revision: 1, More: true,
		Entries: make([]store.Entry, each)}.Encode()
	last := wire.Result{Number: 1, Revision: 1}.Encode()
	evil, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.serveTLS(t, evil, func(conn net.Conn) {
		if _, _, err := wire.ReadFrame(conn, wire.MaxFirst); err != nil {
			return
		}
		_, err := conn.Write(wire.Welcome{Cluster: "test", Epoch: 1}.Encode())
		if err == nil {
			_, _, err = wire.ReadFrame(conn, wire.MaxFrame)
		}
		for sent := 0; err == nil && sent <= 256<<20/256; sent += each {
			_, err = conn.Write(frame)
		}
		if err == nil {
			_, _ = conn.Write(last)
		}
		_, _, _ = wire.ReadFrame(conn, wire.MaxFrame) // until the client ends the connection
	})
	name, config := w.newHost(t, nil)
	c, err := client.New(client.Config{Name: name, Cluster: "test", TLS: config,
		Stores: func() []string { return []string{evil.Addr().String()} },
		Dial:   (&net.Dialer{}).DialContext, Silence: w.silence})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Read(t.Context(), "h/a", 0); err == nil {
		t.Errorf("an answer with %d entries is taken", len(got.Entries))
	}
}
