package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/page"
	"github.com/weirnet/weir/observe"
)

// maxRequest bounds the body of a request: a rule file of a million table entries fits.
const maxRequest = 64 << 20

// server answers the local API.
type server struct {
	node *Node
	http http.Server
	end  context.CancelFunc // ends the streams
}

// listen makes the socket. Only root may use it: whoever can change the rules owns the machine's network.
func listen(path string) (net.Listener, error) {
	// The lock on the directory is ours, so that a socket in it is a dead agent's.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func newServer(n *Node) *server {
	s := &server{node: n}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", answer(n.status))
	mux.HandleFunc("GET /v1/rules", answer(n.rules))
	mux.HandleFunc("GET /v1/tables", answer(n.tables))
	mux.HandleFunc("GET /v1/sets", answer(n.sets))
	mux.HandleFunc("GET /v1/states", answer(n.states))
	mux.HandleFunc("GET /v1/events", n.serveEvents)
	mux.HandleFunc("GET /v1/top", n.serveTop)
	mux.HandleFunc("GET /v1/packets", n.servePackets)
	mux.Handle("GET /metrics", observe.MetricsHandler(n.metrics))
	mux.HandleFunc("POST /v1/do", change(n.do))
	mux.HandleFunc("POST /v1/load", change(n.load))
	mux.HandleFunc("POST /v1/confirm", answer(n.confirm))
	mux.HandleFunc("POST /v1/why", change(n.why))
	mux.HandleFunc("GET /v1/pods", answer(n.listPods))
	mux.HandleFunc("POST /v1/pods", changeFor(n.attachPod))
	mux.HandleFunc("POST /v1/pods/detach", changeFor(n.detachPod))
	mux.HandleFunc("POST /v1/pods/check", change(n.checkPod))
	mux.HandleFunc("POST /v1/pods/keep", changeFor(n.keepPods))
	mux.HandleFunc("GET /v1/peers", answer(n.peers.list))
	mux.HandleFunc("POST /v1/peers", change(n.peers.add))
	mux.HandleFunc("POST /v1/peers/remove", change(n.peers.remove))
	mux.HandleFunc("POST /v1/peers/key", answer(n.peers.key))
	mux.HandleFunc("POST /v1/down", answer(n.down))
	page.Files(mux)
	s.http.Handler = page.Guard(mux)
	var streams context.Context
	streams, s.end = context.WithCancel(context.Background())
	s.http.BaseContext = func(net.Listener) context.Context { return streams }
	s.http.ReadHeaderTimeout = 10 * time.Second
	return s
}

// close answers what is under way, ends the streams and stops.
func (s *server) close() error {
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.http.Shutdown(ctx)
}

// answer serves a question that needs no words.
func answer[A any](ask func() (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		reply(w, ask)
	}
}

// change serves a request with a body.
func change[R, A any](ask func(R) (A, error)) http.HandlerFunc {
	return changeFor(func(_ context.Context, r R) (A, error) { return ask(r) })
}

// changeFor is change for what has to know whether the client still waits: its context ends when the client hangs up.
func changeFor[R, A any](ask func(context.Context, R) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request R
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		d.DisallowUnknownFields()
		if err := d.Decode(&request); err != nil {
			refuse(w, http.StatusBadRequest, fmt.Errorf("read the request: %w", err))
			return
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			refuse(w, http.StatusBadRequest, errors.New("read the request: more than one value"))
			return
		}
		reply(w, func() (A, error) { return ask(r.Context(), request) })
	}
}

func reply[A any](w http.ResponseWriter, ask func() (A, error)) {
	a, err := ask()
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(a)
}

// refuse answers with what went wrong, and with a report of each mistake if it was in rule text.
func refuse(w http.ResponseWriter, status int, err error) {
	e := api.Error{Version: api.Version, Message: err.Error()}
	var hint interface{ Hint() string }
	if errors.As(err, &hint) {
		e.Advice = hint.Hint()
	}
	var report interface{ Report() string }
	if errors.As(err, &report) {
		e.Details = report.Report()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(e)
}
