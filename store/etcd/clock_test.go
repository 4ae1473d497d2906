package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/storetest"
)

// certificate is one for 127.0.0.1 that is valid from now on, for a day, and the pool with it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// secure listens with TLS in front of a unix socket, until the test ends, and returns the address.
func secure(t *testing.T, cert tls.Certificate, socket string) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert},
		NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer server.Close()
				go func() {
					defer server.Close()
					_, _ = io.Copy(server, client)
				}()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	return l.Addr().String()
}

// TestEtcdWithAWrongClock: with a clock of a year ago the certificate of an etcd is not valid yet.
// Each error says so, and what to do. When the clock is right, the same driver works.
func TestEtcdWithAWrongClock(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := Start(t.Context(), MemberConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	cert, pool := certificate(t)
	address := secure(t, cert, filepath.Join(dir, "client"))
	var wrong atomic.Bool
	wrong.Store(true)
	d, err := Open(Config{Silence: time.Second, Client: clientv3.Config{
		Endpoints: []string{"https://" + address},
		TLS: &tls.Config{RootCAs: pool, Time: func() time.Time {
			if wrong.Load() {
				return time.Now().Add(-365 * 24 * time.Hour)
			}
			return time.Now()
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	says := func(what string, err, is error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "not yet valid") ||
			!strings.Contains(err.Error(), "set it") || !errors.Is(err, is) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A call that ends before the first handshake has failed does not have the reason.
	storetest.Eventually(t, "a handshake fails", func() bool {
		_, _ = d.Read(t.Context(), "/a", 0)
		return d.secured.failed.Load() != nil
	})
	_, err = d.Read(t.Context(), "/a", 0)
	says("a read", err, store.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = d.Read(ctx, "/a", 0)
	says("a short read", err, context.DeadlineExceeded)
	_, err = d.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: "/a"}}})
	says("a commit", err, store.ErrUnavailable)
	for _, err := range d.Watch(t.Context(), "/a", 0) {
		says("a watch", err, store.ErrUnavailable)
	}
	wrong.Store(false)
	storetest.Eventually(t, "etcd is tried again", func() bool {
		_, err = d.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: "/a"}}})
		return err == nil
	})
	storetest.Eventually(t, "it is read with a clock that is right", func() bool {
		_, err = d.Read(t.Context(), "/a", 0)
		return err == nil
	})
}
