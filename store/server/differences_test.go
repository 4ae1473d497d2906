package server

import (
	"context"
	"crypto/tls"
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

// TestDifferencesOfACertificate: a stolen host that asks for the difference on all its connections,
// and does not read it, has a few of the differences that are sent at once. Others get theirs.
func TestDifferencesOfACertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		ca, err := identity.NewCA("test")
		must(err)
		own, err := identity.Issue(ca, identity.ID{Kind: identity.Store, Name: "s"})
		must(err)
		config, err := own.ServerTLS()
		must(err)
		value := make([]byte, 1<<19) // more than a client takes that does not read
		rand.NewChaCha8([32]byte{}).Read(value)
		model := storetest.NewModel(time.Minute)
		_, err = model.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: "w/x",
			Value: value}}})
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
		defer group.Wait()
		defer s.Close()
		defer cancel()
		// begin asks for the difference, and returns what comes first.
		begin := func(c *identity.Credential) wire.Type {
			t.Helper()
			client, err := c.ClientTLS()
			must(err)
			raw, err := p.Dial(ctx, "", "")
			must(err)
			return ask(t, tls.Client(raw, client))
		}
		stolen, err := identity.Issue(ca, identity.ID{Kind: identity.Host, Name: "b"})
		must(err)
		for i := range maxPerPeer {
			want := wire.TypeCopy
			if i >= maxDiffering {
				want = wire.TypeWait
			}
			if got := begin(stolen); got != want {
				t.Errorf("connection %d gets a frame of type %d, want %d", i, got, want)
			}
		}
		other, err := identity.Issue(ca, identity.ID{Kind: identity.Host, Name: "c"})
		must(err)
		if got := begin(other); got != wire.TypeCopy {
			t.Errorf("another host gets a frame of type %d", got)
		}
	})
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
