// Package services has addresses and ports that lead to the pods of a label: each flow to one of
// them. docs/design/0004-containers.md, section 6.
package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
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
}

// Config is what a Service needs.
type Config struct {
	File     string         // of the record
	Ranges   []netip.Prefix // of the pods of this host
	Log      *slog.Logger
	Problems *problem.List
	Engine   Engine
	// IsOwn reports whether an address is one of the host's.
	IsOwn func(netip.Addr) bool
	// Taken returns why an address cannot be that of a service: the settings, or other hosts, use
	// it.
	Taken func(netip.Addr) error
	// Pods are the pods of this host. Without ok they are not known yet.
	Pods func() (all []pod.Pod, ok bool)
	// AddAddress and RemoveAddress change the addresses of the loopback.
	AddAddress, RemoveAddress func(netip.Addr) error
}

// Every is how often the counters of the pods are looked at.
const Every = time.Second

// Service puts the services in force.
type Service struct {
	config Config
	poked  chan struct{} // has an element when pods have come or gone
	now    func() time.Duration

	mu     sync.Mutex // its place in the lock order: agent/doc.go
	record record     // guarded by mu; as it is on the disk
	broken error      // guarded by mu; why the record cannot be used
	health map[forward.ServiceKey]*health
	// guarded by mu; what the engine has, nil before it has any
	set map[string][]forward.Backend
}

// New returns a Service that has done nothing yet.
func New(c Config) *Service {
	return &Service{config: c, poked: make(chan struct{}, 1), now: clock.Now,
		health: map[forward.ServiceKey]*health{}}
}

// Load reads the record. Until it can be read, what an earlier agent left stays in force.
func (s *Service) Load() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record, s.broken = readRecord(s.config.File)
	return s.broken
}

// brokenHint is about a record that cannot be read.
const brokenHint = "repair it; or remove it and the addresses of the services (ip address delete " +
	"ADDRESS dev lo), and add the services again"

// errLater is the error while the pods of an earlier run are not known.
var errLater = errors.New("the pods of an earlier run are not taken over yet; see weir status")

// Begin puts the services of the record in force, once the pods are known. It may be called again.
func (s *Service) Begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		s.record, s.broken = readRecord(s.config.File)
		if s.broken != nil {
			return hinted{s.broken.Error(), brokenHint}
		}
	}
	return s.applyLocked()
}

// Changed notes that pods have come or gone, or have other labels. It does not wait.
func (s *Service) Changed() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// Run follows the pods and their counters until ctx ends.
func (s *Service) Run(ctx context.Context) {
	const about = "what services know of pods" // Begin has a subject of its own
	tick := time.NewTicker(Every)
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
func (s *Service) follow(look bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil || len(s.record.Services)+len(s.record.Held)+len(s.set) == 0 {
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
func (s *Service) lookLocked() error {
	counts, err := s.config.Engine.Services()
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
		h.look(s.now(), of)
		for at, p := range h.pods {
			if was := before[at]; was != "" && was != p.state {
				s.config.Log.Info("service", "at", k.At, "pod", at, "is", string(p.state))
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

// applyLocked makes the engine and the loopback have what the record says. Addresses come before
// ports, and go after them. An address that the host does not take keeps no other service back.
func (s *Service) applyLocked() error {
	pods, ok := s.config.Pods()
	if !ok && len(s.config.Ranges) > 0 {
		return errLater // or their flows would end
	}
	var errs []error
	virtual := s.record.virtual()
	for _, a := range virtual {
		if s.config.IsOwn(a) {
			continue
		}
		errs = append(errs, s.config.AddAddress(a))
	}
	if err := s.setLocked(pods); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, s.releaseLocked(virtual))...)
}

// releaseLocked takes the addresses away that no service has any more.
func (s *Service) releaseLocked(virtual []netip.Addr) error {
	now := s.record.clone()
	for _, a := range s.record.Held {
		if slices.Contains(virtual, a) {
			continue
		}
		if err := s.config.RemoveAddress(a); err != nil {
			return err
		}
		now.Held = slices.DeleteFunc(now.Held, func(h netip.Addr) bool { return h == a })
	}
	if len(now.Held) == len(s.record.Held) {
		return nil
	}
	if err := now.write(s.config.File); err != nil {
		return fmt.Errorf("write the services: %w", err)
	}
	s.record = now
	return nil
}

// setLocked hands the services to the engine, if it does not have them.
func (s *Service) setLocked(pods []pod.Pod) error {
	next, all := map[string][]forward.Backend{}, []forward.Service{}
	left, cut := forward.MaxAllBackends, ""
	same := s.set != nil && len(s.set) == len(s.record.Services)
	for i := range s.record.Services {
		spec := &s.record.Services[i]
		one := forward.Service{Proto: spec.Proto, At: spec.At}
		h := s.health[one.Key()]
		if h != nil {
			one.Turn = h.turn
		}
		list := backends(spec, pods)
		if len(list) > left {
			list, cut = list[:left], spec.Name
		}
		left -= len(list)
		for _, b := range list {
			one.Backends = append(one.Backends, h.use(b.at))
		}
		// the turn is a part of what is compared
		id := fmt.Sprint(*spec, one.Turn)
		next[id] = one.Backends
		had, there := s.set[id]
		same = same && there && slices.Equal(had, one.Backends)
		all = append(all, one)
	}
	if same {
		return nil
	}
	const about = "pods of services"
	if cut == "" {
		s.config.Problems.Solved(about)
	} else {
		s.config.Problems.Set(about, fmt.Sprintf("all services together have more than %d pods: "+
			"the last ones, such as %s, lead to a part of theirs", forward.MaxAllBackends, cut),
			"weir service list")
	}
	if err := s.config.Engine.SetServices(all); err != nil {
		s.set = nil
		return err
	}
	s.set = next
	return nil
}

// use says how a pod is used.
func (h *health) use(at netip.AddrPort) forward.Backend {
	b := forward.Backend{To: at}
	if h == nil || h.pods[at] == nil {
		return b
	}
	switch p := h.pods[at]; p.state {
	case statePassed:
		b.Out = true
	case stateOnTrial:
		b.Trial = p.trial
	}
	return b
}

// backend is a pod of a service.
type backend struct {
	pod string // its name
	at  netip.AddrPort
}

// backends are the pods of a service, in order of address: those with the label, of this host.
func backends(spec *Spec, pods []pod.Pod) (all []backend) {
	for i := range pods {
		p := &pods[i]
		if !hasLabel(p, spec.Table) {
			continue
		}
		for _, a := range p.Addrs {
			if a.Is4() == spec.At.Addr().Is4() {
				all = append(all, backend{p.Name, netip.AddrPortFrom(a, spec.Port)})
			}
		}
	}
	slices.SortFunc(all, func(a, b backend) int { return a.at.Compare(b.at) })
	all = slices.CompactFunc(all, func(a, b backend) bool { return a.at == b.at })
	return all[:min(len(all), forward.MaxBackends)]
}

// hasLabel reports whether a pod is in the table of a label.
func hasLabel(p *pod.Pod, table string) bool {
	for key, value := range p.Labels {
		if key+"="+value == table {
			return true
		}
	}
	return false
}

// Ping takes the lock, for the watchdog.
func (s *Service) Ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
}
