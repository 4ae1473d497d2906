package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

func TestRefusesToBeOpen(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no") }
	for addr, open := range map[string]bool{"127.0.0.1:0": false, "127.9.9.9:0": false,
		"[::1]:0": false, "0.0.0.0:0": true, "[::]:0": true} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := (&Server{Dial: dial}).Check(l.Addr()); errors.Is(err, ErrOpen) != open {
			t.Errorf("%s: %v", addr, err)
		}
		if err := (&Server{Dial: dial,
			Users: map[string]string{"a": "b"}}).Check(l.Addr()); err != nil {
			t.Errorf("%s with a password: %v", addr, err)
		}
		if open {
			if err := (&Server{Dial: dial}).Serve(l); !errors.Is(err, ErrOpen) {
				t.Errorf("Serve: %v", err)
			}
		}
		l.Close()
	}
}

// TestIdleTimeout: a connection on which nothing moves is closed, not sooner than it may be, and
// counted.
func TestIdleTimeout(t *testing.T) {
	const idle = 50 * time.Millisecond
	s := &Server{IdleTimeout: idle}
	proxy, port := start(t, s, oneHost), echo(t)
	begin := time.Now()
	c, err := dialSOCKS(t, proxy, "", "", "host.test:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("data came that was not sent")
	}
	if took := time.Since(begin); took < idle {
		t.Errorf("closed after %v", took)
	}
	if s.Stats().IdleClosed == 0 {
		t.Error("not counted")
	}
}

// relayed relays between two connections in memory, and returns their outer ends.
func relayed(t *testing.T, s *Server) (client, target net.Conn) {
	t.Helper()
	s.prepare()
	client, near := net.Pipe()
	target, far := net.Pipe()
	c := newClient(s, near)
	if !s.enter(c) || !c.attach(far) {
		t.Fatal("there is no place")
	}
	s.relay(c, far, nil)
	return client, target
}

// TestBusyConnectionStaysOpen: a connection stays open as long as data moves in both directions or
// in one, and is closed when it has been idle for exactly the time.
func TestBusyConnectionStaysOpen(t *testing.T) {
	for name, both := range map[string]bool{"both directions": true, "one direction": false} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{IdleTimeout: time.Minute}
			client, target := relayed(t, s)
			defer s.Shutdown(t.Context())
			b := make([]byte, 1)
			for i := range 24 {
				time.Sleep(50 * time.Second)
				from, to := target, client
				if both && i%2 == 0 {
					from, to = client, target
				}
				go from.Write([]byte{byte(i)})
				if _, err := io.ReadFull(to, b); err != nil || b[0] != byte(i) {
					t.Fatalf("%s: closed while in use: %v, %v", name, b, err)
				}
			}
			begin := time.Now()
			if _, err := client.Read(b); err == nil {
				t.Errorf("%s: data came that was not sent", name)
			}
			if took := time.Since(begin); took != time.Minute {
				t.Errorf("%s: closed after %v", name, took)
			}
			if s.Stats().IdleClosed == 0 {
				t.Errorf("%s: not counted", name)
			}
		})
	}
}

func TestHandshakeTimeout(t *testing.T) {
	proxy := start(t, &Server{HandshakeTimeout: 100 * time.Millisecond}, "")
	for _, begin := range []string{"", "\x05", "\x05\x01\x00\x05\x01", "G",
		"CONNECT x:1 HTTP/1.1\r\n"} {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, begin)
		c.SetReadDeadline(time.Now().Add(5 * time.Minute))
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			t.Errorf("%q: the connection is still open", begin)
		}
		c.Close()
	}
}

func TestMaxClients(t *testing.T) {
	s := &Server{MaxClients: 2}
	proxy, port := start(t, s, oneHost), echo(t)
	var open []net.Conn
	for range 2 {
		c, err := dialSOCKS(t, proxy, "", "", "host.test:"+port)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if _, err := dialSOCKS(t, proxy, "", "", "host.test:"+port); err == nil {
		t.Error("a third client was let in")
	}
	if st := s.Stats(); st.TurnedAway != 1 || st.Clients != 2 {
		t.Errorf("%+v", st)
	}
	for _, c := range open {
		c.Close()
	}
	nstest.Eventually(t, "closed clients are not counted", func() bool {
		return s.Stats().Clients == 0
	})
	c, err := dialSOCKS(t, proxy, "", "", "host.test:"+port)
	if err != nil {
		t.Fatal("after two have closed:", err)
	}
	c.Close()
}

// TestPlacesWithoutPassword: clients that show no password do not keep others away, and end none
// that has shown it. One that loses its place does not wait for the check of its password.
func TestPlacesWithoutPassword(t *testing.T) {
	s := &Server{Users: hashed("ann", "secret"), MaxClients: 4, HandshakeTimeout: time.Hour}
	proxy, port := start(t, s, oneHost), echo(t)
	first, err := dialSOCKS(t, proxy, "ann", "secret", "host.test:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, begin := range []string{"", "\x05\x01\x02", "GET http://x/ HTTP/1.1\r\n"} {
		accepted := s.Stats().Accepted
		for range 8 {
			c, err := net.Dial("tcp", proxy)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, begin)
		}
		nstest.Eventually(t, "all places are taken", func() bool {
			return s.Stats().Accepted+s.Stats().TurnedAway >= accepted+8
		})
		c, err := dialSOCKS(t, proxy, "ann", "secret", "host.test:"+port)
		if err != nil {
			t.Fatalf("behind clients that send %q: %v", begin, err)
		}
		roundTrip(t, c, 1<<10)
		c.Close()
	}
	roundTrip(t, first, 1<<10)
	if st := s.Stats(); st.TurnedAway < 15 || st.Clients > 4 {
		t.Errorf("%+v", st)
	}
	s.logins.turn <- struct{}{}
	there, here := net.Pipe()
	defer there.Close()
	c, checked := newClient(s, here), make(chan bool, 1)
	go func() { checked <- s.allowed(context.Background(), c, "eve", "guess") }()
	c.cancel()
	select {
	case right := <-checked:
		if right {
			t.Error("a password that was not checked is right")
		}
	case <-time.After(5 * time.Minute):
		t.Error("it waits for the check")
	}
}

func TestGracefulStop(t *testing.T) {
	s := &Server{}
	d := net.Dialer{}
	s.Dial = d.DialContext
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	port := echo(t)
	c, err := dialSOCKS(t, l.Addr().String(), "", "", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() {
		stopped <- s.Shutdown(t.Context())
	}()
	if err := <-served; !errors.Is(err, ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still accepts")
	}
	roundTrip(t, c, 1<<20) // open connections continue
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := s.Serve(l); !errors.Is(err, ErrClosed) {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}

func TestForcedStop(t *testing.T) {
	s := &Server{Dial: new(net.Dialer).DialContext}
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go s.Serve(l)
	c, err := dialSOCKS(t, l.Addr().String(), "", "", "127.0.0.1:"+echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the connection outlived the server: %v", err)
	}
}

func TestClientLeavesDuringDial(t *testing.T) {
	ended := make(chan error, 1)
	s := &Server{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}
	proxy := start(t, s, "")
	for _, open := range []string{"\x05\x01\x00\x05\x01\x00\x03\x01x\x00\x01",
		"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"} {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, open)
		time.Sleep(watchDelay / 2)
		c.Close()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%q: dial ended with %v", open, err)
			}
		case <-time.After(5 * time.Minute):
			t.Errorf("%q: the dial continued without its client", open)
		}
	}
}

func TestSlowReaderDoesNotLoseData(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const size = 20 << 20
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Write([]byte(strings.Repeat("0123456789abcdef", size/16)))
	}()
	proxy := start(t, &Server{}, "")
	c, err := dialSOCKS(t, proxy, "", "", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	total, b := 0, make([]byte, 256<<10)
	for {
		n, err := c.Read(b)
		total += n
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if total < 4<<20 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if total != size {
		t.Errorf("got %d of %d bytes", total, size)
	}
}
