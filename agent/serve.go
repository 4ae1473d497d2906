package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/net/netutil"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/page"
	"github.com/weirnet/weir/agent/pods"
	"github.com/weirnet/weir/internal/unixsocket"
	"github.com/weirnet/weir/observe"
)

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
	// for what is under way when the node ends
	closeTime = 5 * time.Second
)

// readers is how many connections the read-only socket accepts: they get no more of the agent's
// descriptors and memory.
const readers = 256

// readerHeader is how many bytes the header of a reader's request has. It is kept while the request
// waits, and may take twelve times as much.
const readerHeader = 16 << 10

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
	r, err := listenForReaders(p.ReadSocket(), func(err error) {
		s.node.problems.Add(err.Error(), "")
	})
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
			failed(fmt.Errorf("group %s cannot read the state of the node: %w", readersGroup, err))
		}
	}
	return netutil.LimitListener(newPerUser(l, readersOfUser), readers), nil
}

const readersGroup = "weir"

func newServer(n *Node) *server {
	s := &server{node: n}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", api.Answer(n.status))
	mux.HandleFunc("GET /v1/rules", api.Answer(n.listRules))
	mux.HandleFunc("GET /v1/tables", n.listTables)
	mux.HandleFunc("GET /v1/sets", api.Answer(n.rules.Sets))
	mux.HandleFunc("GET /v1/pipes", api.Answer(n.rules.Pipes))
	mux.HandleFunc("GET /v1/nat", api.Answer(n.rules.NATs))
	mux.HandleFunc("GET /v1/states", n.observer.ServeStates)
	mux.HandleFunc("POST /v1/states/delete", api.ChangeContext(n.observer.DeleteStates))
	mux.HandleFunc("GET /v1/events", n.observer.ServeEvents)
	mux.HandleFunc("GET /v1/top", n.observer.ServeTop)
	mux.HandleFunc("GET /v1/history", n.observer.ServeHistory)
	mux.HandleFunc("GET /v1/packets", n.observer.ServePackets)
	mux.Handle("GET /metrics", observe.MetricsHandler(n.observer.Metrics))
	mux.HandleFunc("POST /v1/do", api.ChangeContext(n.rules.RunCommand))
	mux.HandleFunc("POST /v1/commands", api.ChangeContext(n.rules.RunCommands))
	mux.HandleFunc("POST /v1/load", api.ChangeContext(n.explain.Load))
	mux.HandleFunc("POST /v1/confirm", api.AnswerContext(n.rules.Confirm))
	mux.HandleFunc("POST /v1/revert", api.AnswerContext(n.rules.Revert))
	mux.HandleFunc("POST /v1/panic", api.ChangeContext(n.panics.Begin))
	mux.HandleFunc("POST /v1/panic/end", api.AnswerContext(n.panics.End))
	mux.HandleFunc("POST /v1/why", api.Change(n.explain.Why))
	mux.HandleFunc("POST /v1/flow", api.Change(n.observer.Flow))
	mux.HandleFunc("POST /v1/preview", api.ChangeContext(n.previews.Make))
	mux.HandleFunc("POST /v1/doubts", api.Change(n.explain.SessionWarnings))
	mux.HandleFunc("GET /v1/pods", api.Answer(n.pods.List))
	mux.HandleFunc("POST /v1/pods", api.ChangeContext(n.pods.Attach))
	mux.HandleFunc("POST /v1/pods/detach", api.ChangeContext(n.pods.Detach))
	mux.HandleFunc("POST /v1/pods/label", api.ChangeContext(n.pods.Label))
	mux.HandleFunc("POST /v1/pods/check", api.Change(n.pods.Check))
	mux.HandleFunc("POST /v1/pods/attached", api.Change(n.pods.Attached))
	mux.HandleFunc("POST /v1/pods/gc", api.ChangeContext(n.pods.GC))
	mux.HandleFunc("GET /v1/services", api.Answer(n.services.List))
	mux.HandleFunc("POST /v1/services", api.Change(n.services.Add))
	mux.HandleFunc("POST /v1/services/remove", api.Change(n.services.Remove))
	mux.HandleFunc("GET /v1/peers", api.Answer(n.peers.List))
	mux.HandleFunc("POST /v1/peers", api.Change(n.addPeer))
	mux.HandleFunc("POST /v1/peers/remove", api.Change(n.removePeer))
	mux.HandleFunc("POST /v1/peers/key", api.Answer(n.peers.Key))
	mux.HandleFunc("POST /v1/cluster/accept", api.Answer(n.acceptRemovals))
	mux.HandleFunc("POST /v1/restart", api.Answer(n.restart))
	mux.HandleFunc("POST /v1/down", n.serveDown)
	page.Handle(mux)
	s.http.Handler, s.reading.Handler = page.RefuseCrossOrigin(mux),
		page.RefuseCrossOrigin(api.ReadOnly(mux, page.Handle))
	var streams context.Context
	streams, s.end = context.WithCancel(context.Background())
	for _, one := range []*http.Server{&s.http, &s.reading} {
		one.BaseContext = func(net.Listener) context.Context { return streams }
		one.ReadHeaderTimeout, one.IdleTimeout = headerTime, idleTime
	}
	s.http.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		pid, uid := unixsocket.Peer(c)
		return pods.WithClientPID(api.WithClientUID(ctx, uid), pid)
	}
	s.reading.ConnContext, s.reading.MaxHeaderBytes = withReader, readerHeader
	return s
}

// close answers what is under way, ends the streams and stops. A client that does not take its
// answer in time, or does not send its request, is cut off, which is not an error.
func (s *server) close() error {
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var errs []error
	for _, one := range []*http.Server{&s.http, &s.reading} {
		err := one.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = one.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
