package agent

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/pipenet"
)

// send connects, and sends the text of a request.
func send(t *testing.T, l *pipenet.Listener, request string) net.Conn {
	t.Helper()
	near, err := l.Dial(t.Context(), "", "")
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
				s, l := newServer(n), pipenet.Listen()
				served := make(chan error, 1)
				go func() { served <- s.http.Serve(l) }()
				defer send(t, l, c.request).Close()
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
		l := pipenet.Listen()
		echo := func(q map[string]int) (map[string]int, error) { return q, nil }
		server := http.Server{Handler: readOnly(api.Change(echo))}
		go server.Serve(l)
		defer server.Close() // after a failure, too
		began := time.Now()
		var silent []net.Conn
		for range answersAtOnce {
			for _, what := range []string{"POST /v1/why", "GET /v1/status"} {
				c := send(t, l, what+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{")
				defer c.Close()
				silent = append(silent, c)
			}
		}
		synctest.Wait() // all wait for their bodies
		client := http.Client{Transport: &http.Transport{DialContext: l.Dial}, Timeout: time.Hour}
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
