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
	"os/user"
	"strconv"
	"time"

	"golang.org/x/net/netutil"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/page"
	"github.com/weirnet/weir/internal/unixsocket"
	"github.com/weirnet/weir/observe"
)

// maxRequest bounds the body of a request: a rule file of a million table entries fits.
const maxRequest = 64 << 20

// server answers the local API on two sockets: root's, and a read-only one.
type server struct {
	node    *Node
	http    http.Server
	reading http.Server
	end     context.CancelFunc // ends the streams
}

const (
	headerTime = 10 * time.Second // for a client to send the header
	idleTime   = 60 * time.Second // for a connection between two requests
)

// readers is how many connections the read-only socket accepts: they get no more of the agent's
// descriptors and memory.
const readers = 256

// begin opens the sockets, answers on them, and reports to served when that ends. The socket
// decides who may do what: a client that can change the rules owns the machine's network.
func (s *server) begin(p Paths, served chan<- error) error {
	// Others reach the sockets in the directory, and cannot open it themselves.
	if err := os.Chmod(p.Run(), 0o711); err != nil {
		return err
	}
	l, err := unixsocket.Listen(p.Socket())
	if err != nil {
		return err
	}
	r, err := listenForReaders(p.ReadSocket(), func(err error) { s.node.problem(err.Error(), "") })
	if err != nil {
		return errors.Join(err, l.Close())
	}
	go func() { served <- s.http.Serve(l) }()
	go func() { served <- s.reading.Serve(r) }()
	return nil
}

// listenForReaders makes the socket for group weir, or for root alone when there is no such group.
func listenForReaders(path string, failed func(error)) (net.Listener, error) {
	l, err := unixsocket.Listen(path)
	if err != nil {
		return nil, err
	}
	if g, err := user.LookupGroup(readersGroup); err == nil {
		gid, err := strconv.Atoi(g.Gid)
		if err = errors.Join(err, os.Chown(path, -1, gid)); err == nil {
			err = os.Chmod(path, 0o660)
		}
		if err != nil { // they cannot look, and the node does its work
			failed(fmt.Errorf("group %s cannot look at the node: %w", readersGroup, err))
		}
	}
	return netutil.LimitListener(l, readers), nil
}

const readersGroup = "weir"

// readable is what the read-only socket answers. The content of packets is not part of it.
var readable = []string{"GET /v1/status", "GET /v1/rules", "GET /v1/tables", "GET /v1/sets",
	"GET /v1/states", "GET /v1/events", "GET /v1/top",
	"POST /v1/why", "GET /v1/pods", "GET /v1/peers", "GET /metrics"}

// readOnly passes on what only reads, and refuses the rest.
func readOnly(all http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, pattern := range readable {
		mux.Handle(pattern, all)
	}
	page.Files(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusForbidden, errReadOnly{r.Method + " " + r.URL.Path})
	})
	return http.MaxBytesHandler(mux, 64<<10)
}

// errReadOnly refuses a change on the read-only socket.
type errReadOnly struct{ request string }

func (e errReadOnly) Error() string {
	return fmt.Sprintf("not permitted: this socket answers questions and changes nothing (%s)",
		e.request)
}

// Hint returns who may.
func (errReadOnly) Hint() string { return "run as root" }

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
	mux.HandleFunc("POST /v1/pods/gc", changeFor(n.gcPods))
	mux.HandleFunc("GET /v1/peers", answer(n.peers.list))
	mux.HandleFunc("POST /v1/peers", change(n.peers.add))
	mux.HandleFunc("POST /v1/peers/remove", change(n.peers.remove))
	mux.HandleFunc("POST /v1/peers/key", answer(n.peers.key))
	mux.HandleFunc("POST /v1/down", n.serveDown)
	page.Files(mux)
	s.http.Handler, s.reading.Handler = page.Guard(mux), page.Guard(readOnly(mux))
	var streams context.Context
	streams, s.end = context.WithCancel(context.Background())
	for _, one := range []*http.Server{&s.http, &s.reading} {
		one.BaseContext = func(net.Listener) context.Context { return streams }
		one.ReadHeaderTimeout, one.IdleTimeout = headerTime, idleTime
	}
	return s
}

// close answers what is under way, ends the streams and stops.
func (s *server) close() error {
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(s.http.Shutdown(ctx), s.reading.Shutdown(ctx))
}

// answer serves a request without a body.
func answer[A any](ask func() (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		reply(w, ask)
	}
}

// change serves a request with a body.
func change[R, A any](ask func(R) (A, error)) http.HandlerFunc {
	return changeFor(func(_ context.Context, r R) (A, error) { return ask(r) })
}

// changeFor is change with the context of the request, which ends when the client disconnects.
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
