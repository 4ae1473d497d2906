// Package cluster keeps a host of a cluster at the desired state. It follows the store, checks what
// it reads, keeps a copy on the disk, and gives what changes to the other parts of the node. It
// writes the host's own pods, endpoints and report. docs/design/0008-cluster.md is the page to it.
package cluster

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
)

// Client is what the part needs of a client of weir-store. Its calls end when the store is silent.
type Client interface {
	store.Store
	// Follow keeps a copy up to date until the context ends, or Step returns an error.
	Follow(context.Context, client.Follow) error
	// State returns what is known about the connection.
	State() client.State
}

// Load is a version of the rules that is to be put in force.
type Load struct {
	Set    *rule.Ruleset
	Strict bool   // what no rule matches is denied
	Source string // for people
	// Trial is how long the rules stay without Confirm; 0 for rules that stay. Reverted is called
	// when the previous rules are in force again.
	Trial    time.Duration
	Reverted func()
}

// Parts are the other parts of the node. Functions that change something leave everything as it was
// when they return an error.
type Parts struct {
	// Parse reads the rules of a scope.
	Parse func(name, text string) (*rule.Ruleset, error)
	// Enforce puts a version in force, in place of the one before and of one on trial. While a
	// version is on trial, another one on trial goes back to the last one that was not.
	Enforce func(Load) error
	// Confirm keeps the version on trial.
	Confirm func() error
	// CheckConnectivity returns why rules would refuse one of the connections, or cut off a session
	// that this host has; "" if they would not.
	CheckConnectivity func(Load, []api.RequiredConn, *api.Session) (string, error)
	// IsMe reports whether this host takes the packets to an address.
	IsMe func(netip.Addr) bool
	// Labels puts addresses of pods of other hosts into tables, or takes them out. It and Shared
	// remove from the map what is done; after an error they are called again with the rest.
	Labels func(map[cluster.Label]bool) error
	// Shared puts members into shared tables, or takes them out (nil).
	Shared func(map[cluster.SharedMember]*uint32) error
	// Host makes a host a peer, changes it, or removes it.
	Host func(cluster.HostChange) error
	// Peers returns the hosts that are peers already.
	Peers func() []string
	// Pods returns the pods of this host; false while they are not known.
	Pods func() ([]cluster.Pod, bool)
	// FirstCopy is called once, when the store is heard after a start without a copy. May be nil.
	FirstCopy func() error
}

// Config is what a Service needs.
type Config struct {
	Name     string // of this host
	Dir      string // of the copy
	Trust    cluster.Trust
	Revoked  []cluster.Serial   // of hosts, before this one joined
	Serial   cluster.Serial     // of the host's certificate
	Key      ed25519.PrivateKey // of the host's certificate; signs its endpoints
	Client   Client
	Stores   func() []netip.AddrPort // of all weir-stores
	Parts    Parts
	Reach    Reach
	Version  string         // of this program
	Random   func() float64 // in [0, 1)
	Log      *slog.Logger
	Problems *problem.List
}

// The pauses of what is done again and again.
const (
	syncEvery  = time.Second           // what happened is on the disk
	retryEvery = 5 * time.Second       // what failed
	gather     = 20 * time.Millisecond // own changes before they are written
	diskTime   = 15 * time.Second      // for an answer of the disk
)

// Service follows the store of the host's cluster. The copy and what follows from it belong to mu.
type Service struct {
	config     Config
	disconnect func() error // ends a client that Connect has made; nil for one of others

	writing sync.Mutex // its place in the lock order: agent/doc.go
	writer  writer     // guarded by writing

	mu        sync.Mutex // its place in the lock order: agent/doc.go
	unwritten unwritten  // guarded by mu
	// texts are the rules that a start, the loader or the end of a trial may need.
	texts    map[cluster.Digest]string // guarded by mu
	guarded  *store.Guarded            // guarded by mu
	desired  *cluster.Desired          // guarded by mu
	local    disk.Local                // guarded by mu
	unsent   unsent                    // guarded by mu; what other parts have to get
	claims   uint64                    // guarded by mu; refused so far
	large    uint64                    // guarded by mu; steps that fits has refused
	maxCopy  int                       // store.MaxCopy
	tooLarge tooLarge                  // guarded by mu
	lines    *rate.Limiter             // of refused values in the log
	away     string                    // guarded by mu; why the store is not followed
	heldAt   time.Time                 // guarded by mu; since when removals are held
	own      own                       // guarded by mu; what the store has of this host
	addrs    []netip.AddrPort          // guarded by mu; own endpoints
	report   cluster.Report            // guarded by mu
	force    version                   // guarded by mu; what is enforced
	settled  version                   // guarded by mu; what a trial goes back to
	refused  version                   // guarded by mu; what is not to be tried again
	opened   bool                      // the copy of the disk was read
	heard    bool                      // guarded by mu; the store has said something in this run
	earlier  uint64                    // guarded by mu; the epoch of a store that is not followed
	sequence uint64                    // guarded by mu; of the last endpoints

	// hasCopy is false while the host has neither a copy nor heard the store: then it takes nothing
	// away that an earlier run left.
	hasCopy atomic.Bool

	heads chan struct{} // has an element when the loader should look
	hosts chan struct{} // has an element when unsent.hosts has some
	news  chan struct{} // has an element when something is to be published
	disk  chan struct{} // has an element when something is to be written
}

// tooLarge is about a step that fits has refused.
type tooLarge struct {
	acceptable bool // it would fit if nothing were held
	accepted   bool // an administrator wants that
}

// unsent is what other parts have to get: the newest of each.
type unsent struct {
	labels map[cluster.Label]bool
	shared map[cluster.SharedMember]*uint32
	hosts  map[string]cluster.HostChange
}

// Open reads the host's copy from disk. It does nothing else; FillTablesFunc, FillTables and Run
// follow.
func Open(c Config) (*Service, error) {
	if err := disk.RemoveOtherCluster(c.Dir, c.Trust.Cluster); err != nil {
		return nil, err
	}
	dir, state, err := disk.Open(c.Dir)
	if err != nil {
		return nil, err
	}
	s := &Service{config: c, writer: writer{dir: dir, texts: dir.Texts(),
		have: map[cluster.Digest]bool{}}, own: newOwn(),
		lines: rate.NewLimiter(rate.Every(time.Second), 10), maxCopy: store.MaxCopy,
		unsent: unsent{map[cluster.Label]bool{}, map[cluster.SharedMember]*uint32{},
			map[string]cluster.HostChange{}},
		heads: make(chan struct{}, 1), hosts: make(chan struct{}, 1),
		news: make(chan struct{}, 1), disk: make(chan struct{}, 1)}
	if s.local, err = disk.ReadLocal(c.Dir); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	if s.texts, err = s.writer.texts.All(); err != nil {
		c.Log.Warn("cannot read all saved texts of rules", "err", err)
	}
	for digest := range s.texts {
		s.writer.have[digest] = true
	}
	for _, aside := range state.Aside {
		c.Problems.Put(problem.Problem{About: aside, File: aside, Problem: api.Problem{
			What:   "the copy of the store was damaged and set aside as " + aside,
			Advice: "an older one is used until the store answers; then remove the file"}})
	}
	trust := s.local.Trust(c.Trust)
	s.desired = cluster.NewDesired(c.Name, trust, slices.Concat(s.local.Revoked, c.Revoked))
	s.guarded = store.NewGuarded(s.desired.Guard(), state.Stored)
	s.guarded.Hold(state.Held)
	s.take(s.desired.Load(state.LastGood, s.guarded.Enforced().Entries))
	for _, r := range state.Log {
		if r.Accept {
			s.take(s.desired.Apply(s.guarded.Accept()))
		} else {
			s.take(s.desired.Apply(s.guarded.Step(r.Batch)))
		}
	}
	s.hasCopy.Store(s.guarded.Stored().Revision > 0)
	s.desired.SetSeen(s.local.Seen, s.local.Confirmed)
	s.claims, s.opened = 0, true // they were counted when they came
	s.noteHeld()
	s.noteRefused()
	s.readOwn()
	if s.local.Cluster != c.Trust.Cluster {
		s.changedLocked()
	}
	wake(s.disk) // a log that was cut cannot be continued
	return s, nil
}

// Close has everything on the disk, and ends the use of the directory.
func (s *Service) Close() (err error) {
	if s.disconnect != nil {
		err = s.disconnect()
	}
	err = errors.Join(err, s.writeDisk(true))
	s.writing.Lock()
	defer s.writing.Unlock()
	return errors.Join(err, s.writer.dir.Close())
}

// Stores returns the addresses of all weir-stores, as the store has them; none if it has not said.
func (s *Service) Stores() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired.Stores()
}

// HasCopy reports whether the host knows what the store has, or had: from its copy, or since it
// heard the store. It takes no lock.
func (s *Service) HasCopy() bool { return s.hasCopy.Load() }

// Ping takes the lock, for the watchdog.
func (s *Service) Ping() {
	s.mu.Lock()
	s.mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
}

// Run follows the store until the context ends.
func (s *Service) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.loadHeads(ctx) })
	all.Go(func() { s.setHosts(ctx) })
	all.Go(func() { s.publish(ctx) })
	all.Go(func() { s.tick(ctx) })
	all.Go(func() { s.writeAll(ctx) })
	for ctx.Err() == nil {
		err := s.config.Client.Follow(ctx, client.Follow{Copy: s.stored, Epoch: s.epoch,
			Step: func(b store.Batch) error { s.Step(b); return nil }, Fits: s.fits,
			Failed: s.failed})
		if ctx.Err() == nil {
			s.config.Log.Error("cannot follow the store", "err", err)
			problem.Sleep(ctx, retryEvery)
		}
	}
	all.Wait()
}

func (s *Service) stored() *store.Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guarded.Stored()
}

// fits refuses a step that makes the copy too large: a weir-store that is not what it should be
// must not fill the memory of every host. A step that is only too large because its removals would
// be held is taken, with these, once an administrator has accepted that.
func (s *Service) fits(b store.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.guarded.Fits(b, s.maxCopy)
	s.tooLarge.acceptable = err != nil && s.guarded.FitsAccepted(b, s.maxCopy)
	if s.tooLarge.acceptable && s.tooLarge.accepted {
		return nil
	}
	if err != nil {
		s.large++
	}
	return err
}

func (s *Service) epoch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired.Trust().Epoch
}

// wake has the reader of a channel look again.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will look anyway
	}
}
