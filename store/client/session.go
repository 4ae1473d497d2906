package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// maxUnsent is how much of what a client writes the kernel keeps until it is acknowledged, which it
// doubles for its own needs. What is there counts as sent, and the answer is awaited for the time
// of silence from then on: a whole transaction must not lie there on a slow line.
const maxUnsent = 64 << 10

// keptFrame is how much memory a session keeps for the next frame.
const keptFrame = 64 << 10

// session is one connection.
type session struct {
	conn    net.Conn
	address string // of the weir-store, as it was dialled
	from    *bufio.Reader
	silence time.Duration
	welcome wire.Welcome
	heard   func(*session, wire.Progress)

	arriving atomic.Bool // a frame has begun to arrive

	writing sync.Mutex

	mu     sync.Mutex
	calls  map[uint64]*call
	number uint64
	inbox  *inbox
	err    error         // why it ended
	done   chan struct{} // closed when it ended
}

// call is a request that waits for its results. A watch gets many.
type call struct {
	frames chan answer
}

// answer is a Result, or an Event.
type answer struct {
	result *wire.Result
	event  *wire.Event
}

// dial connects and says hello.
func dial(ctx context.Context, c *Config, address string,
	heard func(*session, wire.Progress)) (*session, error) {
	conn, err := secure(ctx, c.TLS, c.Dial, address)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, address: address, silence: c.Silence, heard: heard,
		calls: map[uint64]*call{},
		from:  bufio.NewReader(&silenceConn{conn: conn, silence: c.Silence}),
		done:  make(chan struct{})}
	if err := s.hello(ctx, c.Cluster); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// secure connects by TLS.
func secure(ctx context.Context, config *tls.Config, dial func(context.Context, string,
	string) (net.Conn, error), address string) (*tls.Conn, error) {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, &dialError{err}
	}
	_ = wire.SetTCPOptions(conn) // an old kernel cannot
	if tcp, ok := conn.(interface{ SetWriteBuffer(int) error }); ok {
		if err := tcp.SetWriteBuffer(maxUnsent); err != nil {
			conn.Close()
			return nil, err
		}
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

func (s *session) hello(ctx context.Context, cluster string) error {
	deadline, _ := ctx.Deadline()
	stop := context.AfterFunc(ctx, func() { s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := s.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := s.conn.Write(wire.Hello{Cluster: cluster}.Encode()); err != nil {
		return err
	}
	t, body, err := wire.ReadFrame(s.conn, wire.MaxFrame) // exactly the first frame
	switch {
	case err != nil:
		return err
	case t == wire.TypeWelcome:
		s.welcome, err = wire.DecodeWelcome(body)
	default:
		err = s.ends(t, body)
	}
	if err != nil {
		return err
	}
	if cluster != "" && s.welcome.Cluster != cluster {
		return fmt.Errorf("it belongs to cluster %s, not %s", s.welcome.Cluster, cluster)
	}
	if !stop() {
		return ctx.Err()
	}
	return s.conn.SetDeadline(time.Time{})
}

// silenceConn is a connection that ends when nothing arrives for the time of silence, or a little
// less. The deadline moves in steps, since each costs as much as a short read. A large frame on a
// slow line may take longer than that.
type silenceConn struct {
	conn    net.Conn
	silence time.Duration
	moved   time.Time // when the deadline was set
}

// Read implements io.Reader.
func (a *silenceConn) Read(b []byte) (int, error) {
	if now := time.Now(); now.Sub(a.moved) > a.silence/16 {
		if err := a.conn.SetReadDeadline(now.Add(a.silence)); err != nil {
			return 0, err
		}
		a.moved = now
	}
	return a.conn.Read(b)
}

// waitError asks to come back later.
type waitError struct{ wire.Wait }

func (e *waitError) Error() string {
	return fmt.Sprintf("weir-store asks to wait %v: %s", e.For, e.Reason)
}

func (e *waitError) Unwrap() error { return store.ErrUnavailable }

// ends returns the error of a frame that ends the connection, or that is none of weir-store's.
func (s *session) ends(t wire.Type, body []byte) error {
	switch t {
	case wire.TypeWait:
		w, err := wire.DecodeWait(body)
		if err != nil {
			return err
		}
		return &waitError{w}
	case wire.TypeRefused:
		reason, err := wire.DecodeRefused(body)
		if err != nil {
			return err
		}
		return fmt.Errorf("refused: %s: %w", reason, store.ErrPermission)
	}
	return fmt.Errorf("weir-store sent a frame of type %d", t)
}

// run reads until the connection ends, and returns why.
func (s *session) run() error {
	var memory []byte
	for {
		_, err := s.from.Peek(1)
		if err != nil {
			return s.end(err)
		}
		s.arriving.Store(true)
		t, body, err := wire.ReadFrameInto(s.from, wire.MaxFrame, memory)
		s.arriving.Store(false)
		if cap(body) > cap(memory) && cap(body) <= keptFrame {
			memory = body
		}
		if err == nil {
			err = s.handle(t, body)
		}
		if err != nil {
			return s.end(err)
		}
	}
}

// end closes the connection, and returns why it ended first.
func (s *session) end(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		s.conn.Close()
		close(s.done)
	}
	return s.err
}

// ended returns why the session ended, or nil.
func (s *session) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// broken is the error of a call whose connection ended.
func (s *session) broken() error {
	err := s.ended()
	return fmt.Errorf("%w: the connection to %s ended: %v", store.ErrUnavailable, s.address, err)
}

func (s *session) handle(t wire.Type, body []byte) error {
	switch t {
	case wire.TypeResult:
		m, err := wire.DecodeResult(body)
		if err == nil {
			s.answer(m.Number, answer{result: &m}, !m.More)
		}
		return err
	case wire.TypeEvent:
		m, err := wire.DecodeEvent(body)
		if err == nil {
			s.answer(m.Number, answer{event: &m}, false)
		}
		return err
	case wire.TypeProgress:
		m, err := wire.DecodeProgress(body)
		if err != nil {
			return err
		}
		s.heard(s, m)
		if m.Silent >= s.silence {
			return fmt.Errorf("%w: weir-store has heard nothing for %v", store.ErrUnavailable,
				m.Silent)
		}
		return nil
	}
	s.mu.Lock()
	in := s.inbox
	s.mu.Unlock()
	if in == nil {
		return s.ends(t, body)
	}
	switch t {
	case wire.TypeAsk:
		return in.ask()
	case wire.TypeCopy:
		m, err := wire.DecodeCopy(body)
		if err != nil {
			return err
		}
		return in.part(m)
	case wire.TypeBatch:
		m, err := wire.DecodeBatch(body)
		if err != nil {
			return err
		}
		return in.batch(m)
	}
	return s.ends(t, body)
}

// answer gives a call what it waits for. A watch that does not keep up ends.
func (s *session) answer(number uint64, a answer, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[number]
	if c == nil {
		return // it was cancelled meanwhile
	}
	select {
	case c.frames <- a:
	default:
		last = true
	}
	if last {
		delete(s.calls, number)
		close(c.frames)
	}
}

// begin registers a call that gets up to backlog answers that it has not taken.
func (s *session) begin(backlog int) (uint64, *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	c := &call{make(chan answer, backlog)}
	s.calls[s.number] = c
	return s.number, c
}

// forget ends the interest in a call, and reports whether it had not ended.
func (s *session) forget(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.calls[number]
	delete(s.calls, number)
	return ok
}

// send writes a frame. The end of the context ends it. An error ends the session.
func (s *session) send(ctx context.Context, frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return err // nothing of the frame is sent
	}
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		s.conn.SetWriteDeadline(time.Unix(1, 0))
		close(set)
	})
	defer func() {
		if !stop() {
			<-set // or it would end what is sent next
		}
	}()
	// In steps, so that a large transaction on a slow line may take its time.
	for step := range slices.Chunk(frame, 64<<10) {
		err := s.conn.SetWriteDeadline(time.Now().Add(s.silence))
		if err == nil {
			err = ctx.Err() // the deadline may have taken the place of that of its end
		}
		if err == nil {
			_, err = s.conn.Write(step)
		}
		if err != nil {
			return s.end(err)
		}
	}
	return nil
}
