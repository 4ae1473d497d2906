package server_test

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/server"
	"github.com/weirnet/weir/store/storetest"
	"github.com/weirnet/weir/store/wire"
)

// TestJoinFlood: a stranger who tries to join over and over does not fill the log.
func TestJoinFlood(t *testing.T) {
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
	var log bytes.Buffer
	s, err := server.New(server.Config{Store: storetest.NewModel(time.Second), Name: "w/",
		TLS: config, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Cluster: func(server.Get) (string, uint64, error) { return "test", 1, nil },
		Admit: func(server.Get, identity.Peer) (a server.Admission, err error) {
			return a, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	const tries = 60
	begin := time.Now()
	for range tries {
		conn, err := tls.Dial("tcp", listener.Addr().String(),
			identity.JoinTLS(identity.FingerprintOf(ca.Certificate())))
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Write(wire.Join{Request: []byte("{}")}.Encode())
		if err == nil {
			_, _, err = wire.ReadFrame(conn, wire.MaxFrame)
		}
		conn.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	<-served
	most := 11 + int(time.Since(begin)/time.Second)
	if n := bytes.Count(log.Bytes(), []byte("could not join")); n > most || n == 0 {
		t.Errorf("%d lines of %d tries, at most %d", n, tries, most)
	}
	if n := s.Counters.JoinsRefused.Load(); n != tries {
		t.Errorf("%d are counted", n)
	}
}
