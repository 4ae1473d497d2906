package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

// conn is a connection of a certificate.
type conn struct {
	server *Server
	peer   identity.Peer
	number uint64 // in the order in which connections entered
	tls    *tls.Conn
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	follow  chan wire.Follow // has one value, once
	digests chan *wire.Digests
	calls   chan struct{} // has a value for each call that runs
	trees   chan struct{} // has one for each subtree that its certificate reads
	running sync.WaitGroup

	writing sync.Mutex
	moved   time.Time    // guarded by writing: when the deadline of writing was set
	wrote   atomic.Int64 // bytes

	mu       sync.Mutex
	admitted Admission
	ended    bool // it was refused: it may do nothing
	watches  map[uint64]context.CancelFunc
	followed bool
}

// serve serves one connection until it ends.
func (s *Server) serve(raw net.Conn) {
	defer raw.Close()
	secured := tls.Server(raw, s.config.TLS)
	c, err := s.hello(secured)
	s.proved(raw)
	if err != nil {
		s.Counters.Refused.Add(1)
		s.config.Log.Debug("a connection was refused", "from", raw.RemoteAddr(), "err", err)
		return
	}
	if c == nil {
		return // one that joined
	}
	defer c.cancel()
	if !s.enter(c) {
		return
	}
	defer s.leave(c)
	c.checkAgain() // what changed before it was entered
	s.Counters.Accepted.Add(1)
	c.run()
}

// hello makes the handshake and the first exchange. A host that joins is answered here, and c is
// nil then.
func (s *Server) hello(secured *tls.Conn) (c *conn, err error) {
	if err := secured.SetDeadline(time.Now().Add(s.firstTimeout())); err != nil {
		return nil, err
	}
	if err := secured.Handshake(); err != nil {
		return nil, err
	}
	peer, known, err := identity.PeerOf(secured.ConnectionState())
	if err != nil {
		return nil, err
	}
	// Exactly the first frame: what follows belongs to the connection's own reader.
	t, body, err := wire.ReadFrame(secured, wire.MaxFirst)
	switch {
	case err != nil:
		return nil, err
	case t == wire.TypeJoin && !known:
		return nil, s.join(secured, body)
	case t != wire.TypeHello || !known:
		err := errors.New("without a certificate a host can join, and nothing else")
		if known {
			err = fmt.Errorf("a connection does not begin with a frame of type %d", t)
		}
		_, _ = secured.Write(wire.EncodeRefused(err.Error())) // it ends anyway
		return nil, err
	}
	admission, welcome, err := s.admit(peer, body)
	if err != nil {
		frame := wire.EncodeRefused(err.Error())
		if errors.Is(err, store.ErrUnavailable) {
			s.Counters.Waits.Add(1)
			frame = wire.Wait{For: time.Second, Reason: err.Error()}.Encode()
		}
		_, _ = secured.Write(frame)
		return nil, err
	}
	if _, err := secured.Write(welcome.Encode()); err != nil {
		return nil, err
	}
	if err := secured.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	c = &conn{server: s, peer: peer, tls: secured, admitted: admission,
		follow: make(chan wire.Follow, 1), digests: make(chan *wire.Digests, 1),
		calls: make(chan struct{}, maxCalls), trees: make(chan struct{}, maxTrees),
		watches: map[uint64]context.CancelFunc{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// admit decides about a certificate and its hello.
func (s *Server) admit(p identity.Peer, hello []byte) (a Admission, w wire.Welcome, err error) {
	m, err := wire.DecodeHello(hello)
	if err != nil {
		return a, w, err
	}
	select {
	case <-s.state.ready:
	case <-s.state.closed:
		return a, w, store.ErrUnavailable
	case <-time.After(s.firstTimeout() / 2):
		return a, w, fmt.Errorf("%w: nothing was read yet", store.ErrUnavailable)
	}
	if w.Cluster, w.Epoch, err = s.config.Cluster(s.state.get); err != nil {
		return a, w, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	if m.Cluster != "" && m.Cluster != w.Cluster {
		return a, w, fmt.Errorf("this is cluster %s, not %s", w.Cluster, m.Cluster)
	}
	w.Revision = s.state.revision()
	a, err = s.config.Admit(s.state.get, p)
	if err == nil {
		return a, w, nil
	}
	// One that joined a moment ago may not have arrived here yet.
	ctx, cancel := context.WithTimeout(context.Background(), s.firstTimeout()/2)
	defer cancel()
	a, again := s.readAdmission(ctx, p)
	if errors.Is(again, store.ErrUnavailable) {
		return a, w, again
	}
	return a, w, again
}

// readAdmission decides about a certificate by what the store has now.
func (s *Server) readAdmission(ctx context.Context, p identity.Peer) (Admission, error) {
	var failed error
	a, err := s.config.Admit(func(key string) (e store.Entry, ok bool) {
		got, err := s.config.Store.Read(ctx, key, 0)
		if err != nil {
			failed = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
			return e, false
		}
		if len(got.Entries) == 0 {
			return e, false
		}
		return got.Entries[0], true
	}, p)
	if failed != nil {
		return a, failed
	}
	return a, err
}

func (c *conn) admission() Admission {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admitted
}

// current returns what a transaction may do now: of a connection that was refused nothing, also if
// the transaction began before.
func (c *conn) current() (Admission, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return Admission{}, fmt.Errorf("%w: %v is not admitted any more", store.ErrPermission,
			c.peer.ID)
	}
	return c.admitted, nil
}

func (c *conn) setAdmission(a Admission) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.admitted = a
	}
}

// run serves until the connection ends.
func (c *conn) run() {
	stop := context.AfterFunc(c.ctx, func() { c.tls.NetConn().Close() })
	defer stop()
	c.running.Go(c.feed)
	from := bufio.NewReaderSize(c.tls, 512) // most of what a host sends is small
	for {
		t, body, err := wire.ReadFrame(from, wire.MaxFrame)
		if err == nil {
			err = c.handle(t, body)
		}
		if err != nil {
			if c.ctx.Err() == nil {
				c.server.config.Log.Debug("a connection ended", "peer", c.peer.ID, "err", err)
			}
			break
		}
	}
	c.cancel()
	c.running.Wait()
	c.server.state.unsent.release(c)
}

// write sends frames whole, or ends the connection.
func (c *conn) write(frames []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	// In steps, so that a large difference on a slow line may take its time.
	for len(frames) > 0 {
		n := min(len(frames), 64<<10)
		err := c.attend()
		if err == nil {
			_, err = c.tls.Write(frames[:n])
		}
		if err != nil {
			c.cancel()
			return err
		}
		c.wrote.Add(int64(n))
		frames = frames[n:]
	}
	return nil
}

// attend sets the deadline of writing: the time of silence, or a little less. It moves in steps,
// since each costs a tenth of what a small batch does.
func (c *conn) attend() error {
	now, silence := time.Now(), c.server.config.Silence
	if now.Sub(c.moved) <= silence/16 {
		return nil
	}
	c.moved = now
	return c.tls.SetWriteDeadline(now.Add(silence))
}

// refuse ends the connection and says why. What the connection may do ends first.
func (c *conn) refuse(why error) {
	c.end()
	c.server.config.Log.Info("a connection was ended", "peer", c.peer.ID, "err", why)
	timer := time.AfterFunc(time.Second, c.cancel)
	defer timer.Stop()
	if c.write(wire.EncodeRefused(why.Error())) == nil {
		c.cancel()
	}
}

// end takes from the connection what it may do.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admitted, c.ended = Admission{}, true
}

func (c *conn) handle(t wire.Type, body []byte) error {
	switch t {
	case wire.TypeFollow:
		m, err := wire.DecodeFollow(body)
		if err != nil {
			return err
		}
		return c.wantsFollow(m)
	case wire.TypeDigests:
		m, err := wire.DecodeDigests(body)
		if err != nil {
			return err
		}
		select {
		case c.digests <- m:
			return nil
		default:
			return errors.New("digests that were not asked for")
		}
	case wire.TypeRead:
		m, err := wire.DecodeRead(body)
		if err != nil {
			return err
		}
		return c.call(func() { c.read(m) })
	case wire.TypeCommit:
		m, err := wire.DecodeCommit(body)
		if err != nil {
			return err
		}
		return c.call(func() { c.commit(m) })
	case wire.TypeWatch:
		m, err := wire.DecodeWatch(body)
		if err != nil {
			return err
		}
		return c.watch(m)
	case wire.TypeCancel:
		number, err := wire.DecodeCancel(body)
		if err != nil {
			return err
		}
		c.endWatch(number)
		return nil
	}
	return fmt.Errorf("a client does not send frames of type %d", t)
}

func (c *conn) wantsFollow(m wire.Follow) error {
	c.mu.Lock()
	again := c.followed
	c.followed = true
	c.mu.Unlock()
	if again {
		return errors.New("the connection follows already")
	}
	for _, g := range c.admission().Grants {
		if store.Covers(g.Name, c.server.config.Name) {
			c.follow <- m
			return nil
		}
	}
	err := fmt.Errorf("%v may not follow %s", c.peer.ID, c.server.config.Name)
	_ = c.write(wire.EncodeRefused(err.Error())) // it ends anyway
	return err
}
