package client_test

import (
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/wire"
)

// trickle is how one who has stolen a weir-store treats a call.
type trickle struct {
	of    func(c *client.Client, t *testing.T) error // the call
	treat func(conn net.Conn)
}

func read(c *client.Client, t *testing.T) error {
	_, err := c.Read(t.Context(), "h/", 0)
	return err
}

// random has n bytes that nothing makes shorter.
func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// part is a part of an answer.
func part(more bool) []byte {
	return wire.Result{Number: 1, Revision: 1, More: more,
		Entries: []store.Entry{{Key: "h/a", Value: random(1 << 10)}}}.Encode()
}

// parts sends one part after the other until the connection ends.
func parts(conn net.Conn) {
	go io.Copy(io.Discard, conn)
	for {
		if _, err := conn.Write(part(true)); err != nil {
			return
		}
		time.Sleep(4 * time.Second)
	}
}

var trickles = map[string]trickle{
	"parts": {read, parts},
	"bytes of a part": {read, func(conn net.Conn) {
		go io.Copy(io.Discard, conn)
		for _, b := range part(false) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(4 * time.Second)
		}
	}},
	"it reads slowly": {func(c *client.Client, t *testing.T) error {
		_, err := c.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: "h/a",
			Value: random(1<<20 - 1<<10)}}})
		return err
	}, func(conn net.Conn) {
		for range 60 { // of 64 records
			if _, err := io.CopyN(io.Discard, conn, 16<<10); err != nil {
				return
			}
			if _, err := conn.Write(wire.Progress{}.Encode()); err != nil {
				return
			}
			time.Sleep(3500 * time.Millisecond)
		}
		parts(conn)
	}},
}

// TestTricklingStore: one who has stolen a weir-store, or is on the way to it, does not keep a call
// for long. It ends, says of which weir-store, and the connection ends with it.
func TestTricklingStore(t *testing.T) {
	for name, how := range trickles {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, how.ends)
		})
	}
}

func (how trickle) ends(t *testing.T) {
	ended := make(chan struct{})
	c := newClientOf(t, client.DefaultSilence, func(raw net.Conn, served *tls.Config) {
		defer close(ended)
		defer raw.Close()
		conn := tls.Server(raw, served)
		if _, _, err := wire.ReadFrame(conn, wire.MaxFrame); err != nil {
			return
		}
		if _, err := conn.Write(wire.Welcome{Cluster: "test", Epoch: 1}.Encode()); err != nil {
			return
		}
		how.treat(conn)
	})
	begin := time.Now()
	err := how.of(c, t)
	if took := time.Since(begin); !errors.Is(err, store.ErrUnavailable) ||
		!strings.Contains(err.Error(), "a:1 did not finish") || took > 6*time.Minute {
		t.Errorf("after %v: %v", took, err)
	}
	<-ended
	if c.State().Connected {
		t.Error("the connection stays")
	}
}
