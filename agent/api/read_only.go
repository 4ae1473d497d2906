package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Answers on the read-only socket that are made at once, and how long a reader has to send its
// request and to take the answer. An answer lies in memory until it is taken, and may be as large
// as the table of states. One listing of the tables of the rules is made at once, and one answer
// that needs an engine with them.
const (
	answersAtOnce = 4
	bodyTime      = 10 * time.Second
	answerTime    = 10 * time.Second
)

// readable is what the read-only socket answers, beside events, tables and what is in withEngine.
// The content of packets is not part of it.
var readable = []string{"GET /v1/status", "GET /v1/rules", "GET /v1/sets",
	"GET /v1/pipes", "GET /v1/nat",
	"GET /v1/states", "GET /v1/top", "GET /v1/history",
	"GET /v1/pods", "GET /v1/services",
	"GET /v1/peers", "GET /metrics"}

// withEngine is what it answers with an engine that is made for the answer.
var withEngine = []string{"POST /v1/why", "POST /v1/flow", "POST /v1/preview", "POST /v1/doubts"}

// ReadOnly passes on what only reads, within limits, and refuses the rest. more adds what it
// answers besides.
func ReadOnly(all http.Handler, more func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	some, one := bodyFirst(inTurn(all, answersAtOnce)), bodyFirst(inTurn(all, 1))
	mux.Handle("GET /v1/events", bodyFirst(someStreams(all)))
	mux.Handle("GET /v1/tables", bodyFirst(inTurn(all, 1)))
	for _, pattern := range readable {
		mux.Handle(pattern, some)
	}
	for _, pattern := range withEngine {
		mux.Handle(pattern, one)
	}
	more(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, http.StatusForbidden, errReadOnly{r.Method + " " + r.URL.Path})
	})
	return http.MaxBytesHandler(mux, 64<<10)
}

// bodyFirst passes a request on when its body, which has a bound, lies in memory. The server reads
// the body of every request, at the latest before it answers. A reader that does not send its body
// must not hold a turn meanwhile.
func bodyFirst(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r)
		if err != nil {
			WriteError(w, http.StatusBadRequest, fmt.Errorf("read the request: %w", err))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// readBody reads the body of a request, which has bodyTime to come. After an error the deadline
// stays, so that the server does not wait for the rest.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Now().Add(bodyTime)); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	// From now on a read waits for the client to hang up, which ends the context.
	return body, c.SetReadDeadline(time.Time{})
}

// inTurn answers so many requests at once; others wait. A reader that does not take its answer in
// time is cut off.
func inTurn(all http.Handler, atOnce int) http.Handler {
	turns := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		defer func() { <-turns }()
		c := http.NewResponseController(w)
		if err := c.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
			WriteError(w, http.StatusInternalServerError, err)
			return
		}
		all.ServeHTTP(w, r)
		_ = c.SetWriteDeadline(time.Time{}) // or the connection is over, and has none
	})
}

// errReadOnly refuses a change on the read-only socket.
type errReadOnly struct{ request string }

func (e errReadOnly) Error() string {
	return fmt.Sprintf("not permitted: this socket is read-only (%s)",
		e.request)
}

// Hint returns who may.
func (errReadOnly) Hint() string { return "run as root" }
