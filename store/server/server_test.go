package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/pipenet"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/server"
	"github.com/weirnet/weir/store/storetest"
	"github.com/weirnet/weir/store/wire"
)

// TestCloseWhileOneJoins: the end of weir-store does not wait for a host that joins, nor for
// connections that say nothing.
func TestCloseWhileOneJoins(t *testing.T) {
	synctest.Test(t, closeWhileOneJoins)
}

func closeWhileOneJoins(t *testing.T) {
	ca, err := identity.NewCA("test")
	if err != nil {
		t.Fatal(err)
	}
	own, err := identity.Issue(ca, identity.ID{Kind: identity.Store, Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := own.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	s, err := server.New(server.Config{Store: storetest.NewModel(time.Second), Name: "w/",
		TLS: config, Cluster: func(server.Get) (string, uint64, error) { return "test", 1, nil },
		Admit: func(server.Get, identity.Peer) (server.Admission, error) {
			return server.Admission{}, errors.New("no one")
		},
		Join: func(ctx context.Context, _ tls.ConnectionState, _ wire.Join) ([]byte, error) {
			close(began)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	if err != nil {
		t.Fatal(err)
	}
	listener := pipenet.Listen()
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	silent, err := listener.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	conn, err := listener.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	joining := tls.Client(conn, identity.JoinTLS(identity.FingerprintOf(ca.Certificate())))
	if _, err := joining.Write(wire.Join{Request: []byte("{}")}.Encode()); err != nil {
		t.Fatal(err)
	}
	<-began
	begin := time.Now()
	s.Close()
	if took := time.Since(begin); took > 0 {
		t.Errorf("it took %v", took)
	}
	if err := <-served; err == nil {
		t.Error("Serve ended without an error")
	}
}
