package api

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/pipenet"
)

// nothing is what these tests answer besides.
func nothing(*http.ServeMux) {}

// timely is an answer whose connection takes deadlines.
type timely struct{ *httptest.ResponseRecorder }

func (timely) SetReadDeadline(time.Time) error  { return nil }
func (timely) SetWriteDeadline(time.Time) error { return nil }

// TestLargeAnswersWait: while the tables are listed for one reader no other gets them, and one
// answer that needs an engine is made at once. Neither keeps the other, or a small answer, waiting.
func TestLargeAnswersWait(t *testing.T) {
	var begun atomic.Int32
	inside, release := make(chan string), make(chan struct{})
	socket := ReadOnly(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		if r.URL.Path == "/v1/status" {
			return
		}
		select {
		case inside <- r.URL.Path:
			<-release
		case <-r.Context().Done(): // it was not its turn
		}
	}), nothing)
	ask := func(ctx context.Context, request string) {
		method, path, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, path, strings.NewReader("{}"))
		socket.ServeHTTP(timely{httptest.NewRecorder()}, r.WithContext(ctx))
	}
	ended := make(chan struct{})
	gone, leave := context.WithCancel(t.Context())
	leave()
	for i, kind := range [][]string{{"GET /v1/tables"},
		{"POST /v1/why", "POST /v1/flow", "POST /v1/preview", "POST /v1/doubts"}} {
		go func() {
			ask(t.Context(), kind[0])
			ended <- struct{}{}
		}()
		select {
		case <-inside:
		case <-time.After(5 * time.Minute):
			t.Fatalf("%s waits for another kind", kind[0])
		}
		// These have left: they are answered only if it is their turn. A turn that is free is taken
		// half of the time.
		for _, request := range kind {
			for range 64 {
				ask(gone, request)
			}
			if n := begun.Load(); n != int32(i+1) {
				t.Fatalf("%s: %d answers are made", request, n)
			}
		}
	}
	ask(t.Context(), "GET /v1/status")
	if begun.Load() != 3 {
		t.Error("a small answer waits")
	}
	close(release)
	for range 2 {
		<-ended
	}
	go ask(t.Context(), "GET /v1/tables")
	select {
	case <-inside:
	case <-time.After(5 * time.Minute):
		t.Error("the next one is not answered")
	}
}

// TestReadersThatSendNoBody: readers that do not send the bodies that they have announced, more
// than there are turns, hold up no other one, and are refused after a while.
func TestReadersThatSendNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pipenet.Listen()
		echo := func(q map[string]int) (map[string]int, error) { return q, nil }
		server := http.Server{Handler: ReadOnly(Change(echo), nothing)}
		go server.Serve(l)
		defer server.Close() // after a failure, too
		began := time.Now()
		var silent []net.Conn
		for range answersAtOnce {
			for _, what := range []string{"POST /v1/why", "GET /v1/status"} {
				c, err := l.DialAndWrite(what +
					" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{")
				if err != nil {
					t.Fatal(err)
				}
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
