package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/pipenet"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/storetest"
	"github.com/weirnet/weir/store/wire"
)

// TestDifferencesOfACertificate: a certificate has one of the differences that are sent at once,
// the newest. So stolen hosts that ask for it on all their connections, and do not read it, leave
// the others to other hosts. A host that comes back does not wait for the end of a connection that
// it has left behind.
func TestDifferencesOfACertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := identity.NewCA("test")
		if err != nil {
			t.Fatal(err)
		}
		s, p := serveLarge(t, ca)
		begin := func(c *identity.Credential) wire.Type { return begin(t, p, c) }
		host := func(name string) *identity.Credential { return hostOf(t, ca, name) }
		const stolen = maxDifferences / 2
		for i := range stolen {
			c := host(fmt.Sprint("b", i))
			for range maxPerPeer - 1 {
				if got := begin(c); got != wire.TypeCopy {
					t.Fatalf("stolen host %d gets a frame of type %d", i, got)
				}
			}
		}
		synctest.Wait()
		if n := len(s.differences); n != stolen {
			t.Errorf("%d certificates have %d differences", stolen, n)
		}
		if n := s.Counters.Overtaken.Load(); n != stolen*(maxPerPeer-2) {
			t.Errorf("%d differences were ended", n)
		}
		for i := range maxDifferences - stolen {
			if got := begin(host(fmt.Sprint("c", i))); got != wire.TypeCopy {
				t.Fatalf("host %d gets a frame of type %d", i, got)
			}
		}
		if got := begin(host("d")); got != wire.TypeWait {
			t.Errorf("one more than are sent at once gets a frame of type %d", got)
		}
	})
}

// begin asks for the difference, and returns what comes first.
func begin(t *testing.T, p *pipenet.Listener, c *identity.Credential) wire.Type {
	t.Helper()
	return ask(t, dialAs(t, p, c))
}

// dialAs returns a connection with a credential, for as long as the test runs.
func dialAs(t *testing.T, p *pipenet.Listener, c *identity.Credential) *tls.Conn {
	t.Helper()
	config, err := c.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := p.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	return tls.Client(raw, config)
}

// hostOf makes a credential of a host.
func hostOf(t *testing.T, ca *identity.CA, name string) *identity.Credential {
	t.Helper()
	c, err := identity.Issue(ca, identity.ID{Kind: identity.Host, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDifferencesInARow: a stolen host comes back over and over and asks for the difference each
// time. It has weir-store pack the copy a few times, and then once in a while. Others get theirs.
func TestDifferencesInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := identity.NewCA("test")
		if err != nil {
			t.Fatal(err)
		}
		_, p := serveLarge(t, ca)
		stolen, other := hostOf(t, ca, "b"), hostOf(t, ca, "c")
		for i := range differenceBurst {
			if got := begin(t, p, stolen); got != wire.TypeCopy {
				t.Fatalf("difference %d: a frame of type %d", i, got)
			}
		}
		if got := begin(t, p, stolen); got != wire.TypeWait {
			t.Errorf("one more: a frame of type %d", got)
		}
		if got := begin(t, p, other); got != wire.TypeCopy {
			t.Errorf("another host: a frame of type %d", got)
		}
		time.Sleep(differenceEvery) // of the bubble
		for _, want := range []wire.Type{wire.TypeCopy, wire.TypeWait} {
			if got := begin(t, p, stolen); got != want {
				t.Errorf("later: a frame of type %d, want %d", got, want)
			}
		}
	})
}

// serveLarge serves a store that has more than a client takes that does not read.
func serveLarge(t *testing.T, ca *identity.CA) (*Server, *pipenet.Listener) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := identity.Issue(ca, identity.ID{Kind: identity.Store, Name: "s"})
	must(err)
	config, err := own.ServerTLS()
	must(err)
	value := make([]byte, 1<<19)
	rand.NewChaCha8([32]byte{}).Read(value)
	model := storetest.NewModel(time.Minute)
	_, err = model.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: "w/x", Value: value}}})
	must(err)
	s, err := New(Config{Store: model, Name: "w/", TLS: config,
		Cluster: func(Get) (string, uint64, error) { return "test", 1, nil },
		Admit: func(Get, identity.Peer) (Admission, error) {
			return Admission{Grants: []store.Grant{{Name: "w/"}}}, nil
		}})
	must(err)
	p := pipenet.Listen()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.Run(ctx) })
	group.Go(func() { s.Serve(p) })
	t.Cleanup(func() {
		cancel()
		s.Close()
		group.Wait()
	})
	return s, p
}

// ask asks for the whole copy, and returns the type of the frame that comes then. Its body is not
// read.
func ask(t *testing.T, conn *tls.Conn) wire.Type {
	t.Helper()
	for _, b := range [][]byte{wire.Hello{}.Encode(), wire.Follow{}.Encode()} {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, _, err := wire.ReadFrame(conn, wire.MaxFrame); err != nil { // welcome, ask
			t.Fatal(err)
		}
	}
	if _, err := conn.Write((&wire.Digests{}).Encode()); err != nil {
		t.Fatal(err)
	}
	var header [5]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		t.Fatal(err)
	}
	return wire.Type(header[4])
}
