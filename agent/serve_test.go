package agent

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// pipes connects in memory and without buffers: what a client does not take blocks the server at
// once, and in a bubble of synctest the clock runs meanwhile.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.close()
	return nil
}

// Addr implements net.Listener.
func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.conns <- far
	return near, nil
}

// send connects, and sends the text of a request.
func (p *pipes) send(t *testing.T, request string) net.Conn {
	t.Helper()
	near, err := p.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(near, request); err != nil {
		t.Fatal(err)
	}
	return near
}

// TestCloseWaitsForNoClient: the end of the API is clean, and comes in time, also when a client
// reads no event of its stream, or does not send the body that it has announced.
func TestCloseWaitsForNoClient(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		most    time.Duration
	}{
		"nothing is read": {"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
			closeTime - time.Second},
		"no body is sent": {"POST /v1/pods HTTP/1.1\r\nHost: localhost\r\n" +
			"Content-Length: 9\r\n\r\n", closeTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(Config{Paths: Paths{Root: t.TempDir()}, Settings: DefaultSettings(),
					Log: slog.New(slog.DiscardHandler)}, false)
				s, l := newServer(n), newPipes()
				served := make(chan error, 1)
				go func() { served <- s.http.Serve(l) }()
				defer l.send(t, c.request).Close()
				synctest.Wait() // for the handler, which waits for the client
				began := time.Now()
				if err := s.close(); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > c.most {
					t.Errorf("the end took %v", took)
				}
				if err := <-served; err != http.ErrServerClosed {
					t.Error(err)
				}
			})
		})
	}
}

// TestReadersThatSendNoBody: readers that do not send the bodies that they have announced, more
// than there are turns, hold up no other one, and are refused after a while.
func TestReadersThatSendNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		echo := func(q map[string]int) (map[string]int, error) { return q, nil }
		server := http.Server{Handler: readOnly(api.Change(echo))}
		go server.Serve(l)
		defer server.Close() // after a failure, too
		began := time.Now()
		var silent []net.Conn
		for range answersAtOnce {
			for _, what := range []string{"POST /v1/why", "GET /v1/status"} {
				c := l.send(t, what+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{")
				defer c.Close()
				silent = append(silent, c)
			}
		}
		synctest.Wait() // all wait for their bodies
		client := http.Client{Transport: &http.Transport{DialContext: l.dial}, Timeout: time.Hour}
		answer, err := client.Post("http://localhost/v1/why", "", strings.NewReader(`{"a":1}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if took := time.Since(began); err != nil || string(got) != "{\"a\":1}\n" || took > 0 {
			t.Errorf("after %v: %q, %v", took, got, err)
		}
		for _, c := range silent {
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || answer.StatusCode != http.StatusBadRequest {
				t.Fatalf("a reader that sends nothing: %+v, %v", answer, err)
			}
			answer.Body.Close()
		}
		if took := time.Since(began); took != bodyTime {
			t.Errorf("they were refused after %v", took)
		}
		client.CloseIdleConnections()
	})
}
