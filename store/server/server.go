package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

// Get returns an entry of the store, or ok false if it does not exist.
type Get func(key string) (e store.Entry, ok bool)

// Admission has the current permissions of a certificate.
type Admission struct {
	Grants []store.Grant
	// Key is the entry that admits the certificate, at Revision. When it changes, the certificate
	// is checked again. Every transaction compares it: a host that is removed writes nothing more.
	// "": nothing ends the admission.
	Key      string
	Revision int64
	// Check refuses a transaction that the grants permit, such as one that is too large. nil: none.
	// get reads the copy of weir-store.
	Check func(get Get, t store.Txn) error
	// CheckRead refuses a read, or a watch, that the grants permit: they bound what may be asked
	// for, and it bounds how much. nil: none.
	CheckRead func(name string, watch bool) error
	// FillLimit returns how full the database may be, in percent, for a longer value of a key. nil:
	// any value is taken.
	FillLimit func(key string) int
	// Writes and Reads are what its certificate may write and read. What is too much waits.
	Writes, Reads Budget
}

// Budget is how many bytes there are in a second, and how many at once. Without a Rate there are
// any number.
type Budget struct{ Rate, Burst int }

// Config describes a server.
type Config struct {
	Store store.Store // with the rights of weir-store
	Name  string      // the subtree that clients follow: cluster.Watched
	TLS   *tls.Config // identity.Credential.Server

	// Cluster returns the id and the epoch of the cluster, from what the store has.
	Cluster func(get Get) (id string, epoch uint64, err error)
	// Admit returns what a certificate may do. It reads with get only.
	Admit func(get Get, p identity.Peer) (Admission, error)
	// Changed gets what changes in the copy, from the first snapshot on. It does not wait. May be
	// nil.
	Changed func([]store.Change)
	// PercentFull returns how full the database of the store is, in percent, at most 100, of what
	// may be filled. It is called for each transaction. nil: that is not known. If the copy is
	// fuller than that, the copy counts.
	PercentFull func() int
	// MaxCopy is how large the copy may be, in bytes; 0: store.MaxCopy. A larger one is not
	// followed: no host would take it.
	MaxCopy int
	// Join answers a host that has a token. nil: no one can join here.
	Join func(ctx context.Context, state tls.ConnectionState, m wire.Join) ([]byte, error)

	Progress time.Duration // 0: 5 s
	Silence  time.Duration // after which a connection that takes nothing ends; 0: 15 s
	Log      *slog.Logger
}

// Limits. A connection that exceeds them waits or ends.
const (
	maxDifferences = 64  // that are sent at once, one to a certificate
	maxHandshakes  = 512 // connections that have not proved who they are
	maxPerPeer     = 4   // connections of one certificate
	maxCalls       = 8   // reads and transactions of a connection at once
	maxTrees       = 2   // reads of subtrees of a certificate at once
	maxWatches     = 16  // of a connection

	differenceQueue = 2 * time.Second  // for how long a difference may wait for others
	differenceEvery = 15 * time.Second // one of a certificate, after differenceBurst
	differenceBurst = 8
	joinTimeout     = 30 * time.Second
)

// firstTimeout bounds the handshake and the first exchange by a third of the time of silence, as a
// client does.
func (s *Server) firstTimeout() time.Duration { return s.config.Silence / 3 }

// Counters count events since the start.
type Counters struct {
	Accepted, Refused, Ended atomic.Uint64 // connections; ended: those of removed certificates
	Continues, Differences   atomic.Uint64 // how connections began to follow
	Overtaken                atomic.Uint64 // differences that a newer one of the certificate ended
	Slow                     atomic.Uint64 // connections that ended: unsent
	Waits                    atomic.Uint64 // sent elsewhere
	Throttled                atomic.Uint64 // transactions and reads that waited for their turn
	NoSpace                  atomic.Uint64 // transactions that the database has no space for
	Joins, JoinsRefused      atomic.Uint64
	Reads, Transactions      Results       // of clients that were admitted
	StoreFailures            atomic.Uint64 // how often the watch on the store ended
	Large                    atomic.Uint64 // of them, since the copy would be too large
}

// Server serves hosts. Run follows the store, Serve accepts connections.
type Server struct {
	Counters Counters

	config      Config
	state       *state
	writing     atomic.Int64  // bytes of the transactions that etcd has not answered
	large       atomic.Int64  // size of a copy that is too large to be followed; 0: it is followed
	differences chan struct{} // has a value for each that is sent
	refusals    *rate.Limiter // of joins in the log, which strangers may try at any rate
	beat        *beat

	mu         sync.Mutex
	handshakes []net.Conn // in order of arrival
	conns      map[*conn]bool
	entered    uint64                            // how many connections there have been
	differing  map[identity.Serial]*conn         // that waits for its difference, or gets it
	began      map[identity.Serial]*rate.Limiter // differences of certificates that had some lately
	writes     limiters                          // of certificates that have written lately
	reads      limiters                          // and of those that have read
	closed     bool
	serving    sync.WaitGroup
}

// New returns a server.
func New(c Config) (*Server, error) {
	if c.Store == nil || c.TLS == nil || c.Admit == nil || c.Cluster == nil || c.Name == "" {
		return nil, errors.New("a server needs Store, Name, TLS, Cluster and Admit")
	}
	if c.Progress == 0 {
		c.Progress = 5 * time.Second
	}
	if c.Silence == 0 {
		c.Silence = 15 * time.Second
	}
	if c.MaxCopy == 0 {
		c.MaxCopy = store.MaxCopy
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := newState()
	s.unsent.most = 2 * c.MaxCopy
	return &Server{config: c, beat: newBeat(), state: s, conns: map[*conn]bool{},
		writes: limiters{}, reads: limiters{},
		differing:   map[identity.Serial]*conn{},
		began:       map[identity.Serial]*rate.Limiter{},
		differences: make(chan struct{}, maxDifferences),
		refusals:    rate.NewLimiter(rate.Every(time.Second), 10)}, nil
}

// unguarded holds nothing back: weir-store decides nothing.
var unguarded = store.Guard{
	Kind:  func(string) string { return "" },
	Meant: func(*store.Copy, string) bool { return true },
}

// Run follows the store until the context ends, and returns the context's error.
func (s *Server) Run(ctx context.Context) error {
	var beating sync.WaitGroup
	defer beating.Wait()
	beating.Go(func() { s.beat.run(ctx, s.config.Progress) })
	held := store.NewGuarded(unguarded, store.Snapshot{})
	follower := &store.Follower{Store: s.config.Store, Name: s.config.Name, Copy: held,
		Limit: s.config.MaxCopy,
		Changed: func(changes []store.Change) {
			s.large.Store(0)
			now := held.Stored().Revision
			putBack := now < s.state.revision()
			s.state.apply(store.Batch{Revision: now, Changes: changes}, s.pace())
			if s.admitAgain(changes); putBack {
				s.admitAll(ctx)
			}
			if s.config.Changed != nil {
				s.config.Changed(changes)
			}
		},
		Wait: func(ctx context.Context, failures int) error {
			select {
			case <-ctx.Done():
			case <-time.After(store.Pause(failures, rand.Float64())):
			}
			return ctx.Err()
		},
		Failed: func(err error) {
			s.Counters.StoreFailures.Add(1)
			var large *store.LargeError
			if errors.As(err, &large) {
				s.Counters.Large.Add(1)
				s.large.Store(int64(large.Size))
			}
			s.state.failed()
			s.config.Log.Warn("the watch on the store ended", "err", err)
		},
	}
	return follower.Run(ctx)
}

// pace is the time between two deliveries to all: what changes meanwhile is one batch. It grows
// with the connections, since each delivery costs about 10 us of a processor.
func (s *Server) pace() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(time.Duration(len(s.conns))*pacePerConn, maxPace)
}

const (
	pacePerConn = 20 * time.Microsecond
	maxPace     = 50 * time.Millisecond
)

// Serve accepts connections until the listener fails or the server is closed.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.track(l) {
		return net.ErrClosed
	}
	for {
		raw, err := l.Accept()
		if err != nil {
			s.mu.Lock()
			closed := s.closed
			s.mu.Unlock()
			var temporary interface{ Temporary() bool }
			if closed || !errors.As(err, &temporary) || !temporary.Temporary() {
				return err
			}
			s.config.Log.Warn("cannot accept", "err", err) // too many open files
			time.Sleep(50 * time.Millisecond)
			continue
		}
		_ = wire.SetTCPOptions(raw) // an old kernel cannot
		if !s.begin(raw) {
			raw.Close()
			return net.ErrClosed
		}
		go func() {
			defer s.serving.Done()
			s.serve(raw)
		}()
	}
}

// track closes the listener with the server.
func (s *Server) track(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.serving.Go(func() {
		<-s.state.closed
		l.Close()
	})
	return true
}

// Close ends every connection and waits for them. Run ends with its context.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.state.closed)
	}
	for _, raw := range s.handshakes {
		raw.Close()
	}
	for c := range s.conns {
		c.cancel()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// enter adds a connection. One certificate has a few: the oldest ends, since a host that comes back
// may have left some behind that do not know it yet.
func (s *Server) enter(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.entered++
	c.number = s.entered
	same, oldest := 0, c
	for other := range s.conns {
		if other.peer.Serial != c.peer.Serial {
			continue
		}
		c.trees = other.trees
		if other.ctx.Err() != nil {
			continue // it is about to leave
		}
		if same++; other.number < oldest.number {
			oldest = other
		}
	}
	if same >= maxPerPeer {
		oldest.cancel()
	}
	s.conns[c] = true
	return true
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.writes.tidy(c.peer.Serial)
	s.reads.tidy(c.peer.Serial)
	if b := s.began[c.peer.Serial]; b != nil && b.Tokens() >= differenceBurst {
		delete(s.began, c.peer.Serial)
	}
}

// admitAgain checks the certificates again that were admitted by a key that changed.
func (s *Server) admitAgain(changes []store.Change) {
	changed := map[string]bool{}
	for _, ch := range changes {
		changed[ch.Key] = true
	}
	s.mu.Lock()
	var concerned []*conn
	for c := range s.conns {
		if changed[c.admission().Key] {
			concerned = append(concerned, c)
		}
	}
	s.mu.Unlock()
	for _, c := range concerned {
		c.checkAgain()
	}
}

// admitAll checks all certificates again: the store was put back, so that no revision by which one
// was admitted means what it meant.
func (s *Server) admitAll(ctx context.Context) {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	for _, c := range conns {
		if c.admission().Key == "" {
			continue
		}
		if a, err := s.config.Admit(s.state.get, c.peer); err == nil {
			c.setAdmission(a)
			continue
		}
		go func() { // the copy may not have it yet
			ctx, cancel := context.WithTimeout(ctx, s.config.Silence)
			defer cancel()
			err := (&admitted{Store: s.config.Store, conn: c}).again(ctx)
			if errors.Is(err, store.ErrUnavailable) {
				c.cancel() // it is decided when the client is back
			}
		}()
	}
}

// checkAgain decides about the certificate by the copy, unless the admission is of a later
// revision, which will arrive.
func (c *conn) checkAgain() {
	now := c.admission()
	if now.Key == "" || c.server.state.revision() < now.Revision {
		return
	}
	a, err := c.server.config.Admit(c.server.state.get, c.peer)
	if err != nil {
		c.server.Counters.Ended.Add(1)
		go c.refuse(err)
		return
	}
	c.setAdmission(a)
}
