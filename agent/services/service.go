// Package services has addresses and ports that lead to the pods of a label: each flow to one of
// them. docs/design/0004-containers.md, section 6.
package services

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
)

// Engine is what the part needs of the engine.
type Engine interface {
	SetServices([]forward.Service) error
	Services() (map[forward.ServiceKey]map[netip.AddrPort]forward.BackendCounters, error)
	// SeenParts returns of how many parts of the flows of a TCP service, of forward.FlowParts, a
	// connection has begun since they were divided last.
	SeenParts() (map[forward.ServiceKey]int, error)
}

// Config is what a Manager needs.
type Config struct {
	File     string         // of the record
	Ranges   []netip.Prefix // of the pods of this host
	Log      *slog.Logger
	Problems *problem.List
	Engine   Engine
	// HasAddress reports whether an interface has an address, IsMe whether the host takes the
	// packets to it, for whatever reason.
	HasAddress, IsMe func(netip.Addr) bool
	// Taken returns why an address cannot be that of a service: the settings, or other hosts, use
	// it.
	Taken func(netip.Addr) error
	// Pods are the pods of this host. Without ok they are not known yet.
	Pods func() (all []pod.Pod, ok bool)
	// AddAddress and RemoveAddress change the addresses of the loopback.
	AddAddress, RemoveAddress func(netip.Addr) error
	// Changed is called without a lock when an address has become, or may no longer be, that of a
	// service.
	Changed func(netip.Addr)
}

// interval is how often the counters of the pods are looked at.
const interval = time.Second

// Manager puts the services in force.
type Manager struct {
	config Config
	poked  chan struct{} // has an element when pods have come or gone
	now    func() time.Duration

	mu     sync.Mutex // its place in the lock order: agent/doc.go
	record record     // guarded by mu; as it is on the disk
	broken error      // guarded by mu; why the record cannot be used
	closed bool       // guarded by mu
	// guarded by mu; what a damaged record names
	salvaged addresses
	health   map[forward.ServiceKey]*health
	// guarded by mu; what the engine has, nil before it has any
	set map[string][]forward.Backend
	// guarded by mu; addresses of services that the loopback was to get last and did not
	refused map[netip.Addr]error
}

// New returns a Manager that has done nothing yet.
func New(c Config) *Manager {
	return &Manager{config: c, poked: make(chan struct{}, 1), now: clock.Now,
		health: map[forward.ServiceKey]*health{}}
}

// Load reads the record. Until it can be read, what an earlier agent left stays in force.
func (s *Manager) Load() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readLocked()
}

// readLocked reads the record. The addresses that are named in a damaged one are kept in mind:
// whatever comes in its place, they are to leave the loopback.
func (s *Manager) readLocked() error {
	s.record, s.broken = readRecord(s.config.File)
	if isDamaged(s.broken) {
		if text, err := os.ReadFile(s.config.File); err == nil {
			s.salvaged = addressesIn(text)
		}
	}
	if s.broken != nil {
		return s.broken
	}
	for _, a := range s.salvaged {
		if !slices.Contains(s.record.Held, a) {
			s.record.Held = append(s.record.Held, a)
		}
	}
	s.salvaged = nil
	return nil
}

// errLater is the error while the pods of an earlier run are not known.
var errLater = errors.New("the pods of an earlier run are not taken over yet; see weir status")

// errClosed is the error after Close.
var errClosed = errors.New("the node is stopping")

// Close ends all changes: record, loopback and engine stay as they are from then on. What is under
// way ends first.
func (s *Manager) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Begin puts the services of the record in force, once the pods are known. It may be called again.
func (s *Manager) Begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if s.broken != nil {
		if err := s.readLocked(); err != nil {
			return err
		}
	}
	return s.applyLocked()
}

// Changed notes that pods have come or gone, or have other labels. It does not wait.
func (s *Manager) Changed() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// Run follows the pods and their counters until ctx ends.
func (s *Manager) Run(ctx context.Context) {
	const about = "what services know of pods" // Begin has a subject of its own
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		look := false
		select {
		case <-ctx.Done():
			return
		case <-s.poked:
		case <-tick.C:
			look = true
		}
		if err := s.follow(look); err != nil {
			s.config.Problems.Set(about, "services do not follow their pods: "+err.Error(),
				problem.Hint(err, "weir doctor"))
			continue
		}
		s.config.Problems.Solved(about)
	}
}

// follow brings the services up to what the pods are, and with look what they answer.
func (s *Manager) follow(look bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.broken != nil ||
		len(s.record.Services)+len(s.record.Held)+len(s.set) == 0 {
		return nil
	}
	if look {
		if err := s.lookLocked(); err != nil {
			return err
		}
	}
	return s.applyLocked()
}

// lookLocked has the health of the pods follow their counters.
func (s *Manager) lookLocked() error {
	counts, err := s.config.Engine.Services()
	if err != nil {
		return err
	}
	seen, err := s.config.Engine.SeenParts()
	if err != nil {
		return err
	}
	for k, of := range counts {
		h := s.health[k]
		if h == nil {
			h = newHealth()
			s.health[k] = h
		}
		before := map[netip.AddrPort]state{}
		for at, p := range h.pods {
			before[at] = p.state
		}
		h.look(s.now(), of, seen[k])
		for at, p := range h.pods {
			if was := before[at]; was != "" && was != p.state {
				s.config.Log.Info("pod of a service", "at", k.At, "pod", at, "is", string(p.state))
			}
		}
	}
	for k := range s.health {
		if _, there := counts[k]; !there {
			delete(s.health, k)
		}
	}
	return nil
}

// Ping takes the lock, for the watchdog.
func (s *Manager) Ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
}
