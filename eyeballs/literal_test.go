package eyeballs

import (
	"context"
	"errors"
	"math"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDialLiteral(t *testing.T) {
	f := newFixture(t, "")
	port := listen(t, "127.0.0.1", "::1")
	for _, a := range []string{"127.0.0.1", "::1"} {
		if got, _ := f.dial("tcp", addr(a, port)); got.String() != a {
			t.Errorf("reached %v", got)
		}
	}
	if len(f.dns.Queries()) != 0 {
		t.Error("queried DNS for a literal")
	}
	sock := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := f.Dial("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	_, err = f.Dial("tcp", "127.0.0.1:1")
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v", err)
	}
	// The address of the dial is also that of its attempt.
	if strings.Count(err.Error(), "127.0.0.1:1") != 1 {
		t.Errorf("the error names the address more than once: %v", err)
	}
}

// TestLiteralAllocations: for a literal, the dialer allocates no more than net.Dialer.
func TestLiteralAllocations(t *testing.T) {
	// No server accepts, so nothing else allocates: the backlog holds all connections.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	// A connection that is not there at once costs more. The least says what dialling costs.
	measure := func(dial func(context.Context, string, string) (net.Conn, error)) float64 {
		least := math.Inf(1)
		for range 100 {
			least = min(least, testing.AllocsPerRun(1, func() {
				c, err := dial(context.Background(), "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}))
		}
		return least
	}
	for _, timeout := range []time.Duration{0, testTimeout} {
		theirs := measure((&net.Dialer{Timeout: timeout}).DialContext)
		ours := measure((&Dialer{Timeout: timeout}).DialContext)
		if ours > theirs {
			t.Errorf("timeout %v: %v allocations, net.Dialer %v", timeout, ours, theirs)
		}
		t.Logf("timeout %v: %v allocations, net.Dialer %v", timeout, ours, theirs)
	}
}

// TestNilContext: a nil context panics with a clear message, as in net.Dialer, for any address.
func TestNilContext(t *testing.T) {
	for _, address := range []string{"127.0.0.1:1", "host.example:1"} {
		func() {
			defer func() {
				if v := recover(); v != "nil context" {
					t.Errorf("%s: %v", address, v)
				}
			}()
			var none context.Context
			c, err := new(Dialer).DialContext(none, "tcp", address)
			t.Errorf("%s: %v, %v", address, c, err)
		}()
	}
}
