// Package pods gives containers their network: attach and detach, published ports, labels as
// tables, and the drivers for container runtimes.
package pods

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
	"github.com/weirnet/weir/pod/dns"
)

// Engine is what the part needs of the engines.
type Engine interface {
	forward.Forwarder
	labelEngine
	leftEngine
}

// Hooks guards interfaces.
type Hooks interface {
	// AddPod makes the host end of a pod known, and returns when it is guarded.
	AddPod(index uint32, name string) error
}

// Links knows the host's interfaces.
type Links interface {
	// AddPod makes the host end of a pod known; it is guarded later.
	AddPod(index uint32, name string)
	// ExpectRemoval announces that the host end of a pod is about to be removed.
	ExpectRemoval(index uint32)
	// Lost has an element when the interface of a pod is gone, and IsLost reports whether one is.
	Lost() <-chan struct{}
	IsLost(index uint32) bool
	// ByAlias returns the index of the interface with an alias for which is returns true, and with
	// an expected index or a name.
	ByAlias(expected uint32, name string, is func(alias string) bool) uint32
	// RangesFree refuses ranges that belong to others; CheckRanges looks at interfaces alone.
	RangesFree(ranges []netip.Prefix, tunnel string) error
	CheckRanges(ranges []netip.Prefix, tunnel string) error
}

// Config is what a Service needs.
type Config struct {
	Settings Settings
	Dir      string // of the records
	Socket   string // where dockerd looks for a plugin
	Networks string // file with the labels of Docker's networks
	Log      *slog.Logger
	Problems *problem.List

	Engine Engine
	Hooks  Hooks
	Links  Links
	// PrepareForwarding comes before the host becomes a router for IPv4, IPv6, or both. Its
	// error does not keep the host from becoming one.
	PrepareForwarding func(four, six bool) error
	// Changed is called after pods came or went, and when they are known (LivePods, Known); it must
	// not wait. May be nil.
	Changed func()
	// PeerRanges are the ranges of the pods of other nodes.
	PeerRanges func() []netip.Prefix
	// Others are the networks behind the host that leave with another source, and the destinations
	// for which they keep theirs.
	Others func() (others []forward.SourceNAT, near []netip.Prefix)
	// Tunnel is the name of the tunnel's interface, and TunnelPort its UDP port, 0 without a
	// tunnel.
	Tunnel     string
	TunnelPort func() uint16
}

// Service gives containers their network. Without ranges in the settings there are no pods but
// those of an earlier run.
type Service struct {
	config  Config
	manager atomic.Pointer[pod.Manager] // nil: this node has no pods, or they are not taken over
	known   atomic.Bool                 // see Known
	labels  labels
	names   dns.Names
	dns     atomic.Pointer[dns.Server] // nil while names are not served
	left    leftLabels                 // of pods of an earlier run
	// pods of an earlier run, written by NameRecorded, before goroutines read it
	recorded []pod.Pod
	failed   chan error // what could not be taken away; has space for one
	stop     func()     // ends the goroutine of Begin

	changes sync.WaitGroup // requests that change pods; none is added once closed is set

	mu      sync.Mutex // its place in the lock order: agent/doc.go
	trouble error      // guarded by mu; why a pod that is gone has not been taken away yet
	closed  bool       // guarded by mu; no request changes pods any more
}

// New returns a Service without pods; Begin takes those of an earlier run over.
func New(c Config) *Service {
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return &Service{config: c, labels: newLabels(c.Engine, c.Changed),
		left:   leftLabels{engine: c.Engine},
		failed: make(chan error, 1), stop: func() {}}
}

var errNone = errors.New("this node gives no networks to containers; set [pods] ranges in " +
	"weir.toml")

var errNotReady = errors.New("this node gives no networks to containers now: weir status shows " +
	"why, or there are no [pods] ranges in weir.toml")

var errLater error = notTakenOver{}

// notTakenOver is the error while there may be pods that are not taken over.
type notTakenOver struct{}

func (notTakenOver) Error() string {
	return "the pods of an earlier run are not taken over yet; see weir status"
}

// Is implements errors.Is.
func (notTakenOver) Is(target error) bool { return target == api.ErrLater }

var errClosed = errors.New("the node is stopping, and takes the network of all containers " +
	"away; start it again with weir up, and the container then")

// pods returns the manager, or the error for requests while there is none.
func (s *Service) pods() (*pod.Manager, error) {
	if m := s.manager.Load(); m != nil {
		return m, nil
	}
	if len(s.config.Settings.Ranges) > 0 {
		return nil, errLater
	}
	return nil, errNone
}

// change returns the manager for a request that changes pods, and what ends the request:
// EndChanges waits for it.
func (s *Service) change() (m *pod.Manager, end func(), err error) {
	if m, err = s.pods(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	s.changes.Add(1)
	return m, s.changes.Done, nil
}

// list returns the pods that there are, oldest first.
func (s *Service) list() []pod.Pod {
	if m := s.manager.Load(); m != nil {
		return m.List()
	}
	return nil
}

// SetMasquerade sets which packets leave with another source: those of pods to anything but pods,
// here and on other nodes, and those of others as the settings say. Rules with nat use the same
// ports. While the pods of an earlier run are not taken over it does nothing: what an earlier agent
// has set holds.
func (s *Service) SetMasquerade() error {
	set, m := s.config.Settings, forward.Masquerade{}
	if len(set.Ranges) > 0 && s.manager.Load() == nil {
		return nil
	}
	if set.Masquerade {
		m.Sources, m.Except = set.Ranges, slices.Concat(set.Ranges, s.config.PeerRanges())
	}
	m.Others, m.Near = s.config.Others()
	ephemeral, err := os.ReadFile(ephemeralFile)
	if err != nil {
		return fmt.Errorf("read the ports that the host takes for its own connections: %w", err)
	}
	m.Ports = masqueradePorts(&set, string(ephemeral))
	return s.config.Engine.SetMasquerade(m)
}

// TakenOver reports whether the pods of an earlier run are taken over: there are pods, or may be.
func (s *Service) TakenOver() bool { return s.manager.Load() != nil }

// CanAttach reports whether containers can be given networks with addresses of the ranges: these
// are free, and the pods of an earlier run are taken over.
func (s *Service) CanAttach() bool {
	ranges := s.config.Settings.Ranges
	return len(ranges) > 0 && s.manager.Load() != nil &&
		s.config.Links.CheckRanges(ranges, s.config.Tunnel) == nil
}

// InRange reports whether an address is in a pod range of this node.
func (s *Service) InRange(a netip.Addr) bool {
	return slices.ContainsFunc(s.config.Settings.Ranges, func(r netip.Prefix) bool {
		return r.Contains(a)
	})
}

// Ping takes the locks, for the watchdog.
func (s *Service) Ping() {
	if s.manager.Load() != nil {
		s.list()
		s.labels.mu.Lock()
		s.labels.mu.Unlock() //lint:ignore SA2001 that it can be had is all that matters
	}
}
