package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// timely is an answer whose connection takes deadlines.
type timely struct{ *httptest.ResponseRecorder }

func (timely) SetReadDeadline(time.Time) error  { return nil }
func (timely) SetWriteDeadline(time.Time) error { return nil }

// TestLargeAnswersWait: while the tables are listed for one reader no other gets them, and one
// answer that needs an engine is made at once. Neither keeps the other, or a small answer, waiting.
func TestLargeAnswersWait(t *testing.T) {
	var begun atomic.Int32
	inside, release := make(chan string), make(chan struct{})
	socket := readOnly(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		if r.URL.Path == "/v1/status" {
			return
		}
		select {
		case inside <- r.URL.Path:
			<-release
		case <-r.Context().Done(): // it was not its turn
		}
	}))
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
		case <-time.After(30 * time.Second):
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
	case <-time.After(30 * time.Second):
		t.Error("the next one is not answered")
	}
}
