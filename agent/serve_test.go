package agent

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/pipenet"
)

// TestCloseWaitsForNoClient: the end of the API is clean, and comes in time. This holds also when a
// client reads no event of its stream, or does not send the body that it has announced.
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
				s, l := newServer(n), pipenet.Listen()
				served := make(chan error, 1)
				go func() { served <- s.http.Serve(l) }()
				client, err := l.DialAndWrite(c.request)
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
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

// TestHeadersOfReadersAreBounded: a reader does not fill the agent's memory by headers, each of
// which is kept while its request waits.
func TestHeadersOfReadersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(Config{Paths: Paths{Root: t.TempDir()}, Settings: DefaultSettings(),
			Log: slog.New(slog.DiscardHandler)}, false)
		s, l := newServer(n), pipenet.Listen()
		served := make(chan error, 1)
		go func() { served <- s.reading.Serve(l) }()
		client, err := l.DialAndWrite("GET / HTTP/1.1\r\n")
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		go io.WriteString(client, "Host: localhost\r\n"+strings.Repeat("a:\r\n", 16<<10)+"\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("64 KiB of headers: %+v, %v", answer, err)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
}
