// Package nat has the host translate for others behind it, as weir.toml says: ports of the host
// that lead to other hosts, and networks that leave with another source.
// docs/design/0004-containers.md, section 5.
package nat

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/observe"
)

// Config is what a Service needs.
type Config struct {
	Settings Settings
	Problems *problem.List
	// SetForwards replaces the forwarded ports in the engine. Ports of pods and of services are a
	// *forward.TakenError.
	SetForwards func([]forward.Published) error
	// SetMasquerade has the engine ask for what Others returns.
	SetMasquerade func() error
	// SetForwarding makes the host a router for IPv4, for IPv6, or both.
	SetForwarding func(four, six bool) error
	// IsMe reports whether the host takes the packets to an address.
	IsMe func(netip.Addr) bool
	// IsOnly reports whether an interface of the host has this address and no other of the family
	// but those that are given away.
	IsOnly func(a netip.Addr, away []netip.Addr) bool
}

// Service puts the settings in force.
type Service struct {
	config Config

	mu   sync.Mutex        // its place in the lock order: agent/doc.go
	held map[element]error // guarded by mu; what Apply held back last, nil before it
	// guarded by mu; the instances that rules name, never changed in place
	rules []program.NAT
}

// New returns a Service that has done nothing yet.
func New(c Config) *Service { return &Service{config: c} }

// Apply puts the settings in force, and takes back what those of an earlier agent have left. An
// element that cannot be in force is held back and a problem by its name, and no other one waits
// for it: the error is problem.ErrNoted then. After another error, what was in force before
// continues. It may be called again.
func (s *Service) Apply() error {
	held := s.unusable()
	err := errors.Join(s.config.SetForwarding(s.families(held)), s.setForwards(held))
	s.mu.Lock()
	s.held = held
	s.mu.Unlock()
	err = errors.Join(err, s.config.SetMasquerade())
	s.report(held)
	if err == nil && len(held) > 0 {
		return problem.ErrNoted
	}
	return err
}

// families returns for which the host has to be a router.
func (s *Service) families(held map[element]error) (four, six bool) {
	note := func(a netip.Addr) { four, six = four || a.Is4(), six || a.Is6() }
	for _, f := range s.forwards(held) {
		note(f.To.Addr())
	}
	for _, m := range s.config.Settings.Masquerades {
		note(m.Source.Addr())
	}
	for _, b := range s.binats(held) {
		note(b.To)
	}
	return four, six
}

// setForwards hands the ports to the engine. It holds back the elements of which a port belongs to
// a pod or a service.
func (s *Service) setForwards(held map[element]error) error {
	for {
		var ports []forward.Published
		for _, f := range s.forwards(held) {
			ports = append(ports, f.Ports()...)
		}
		for _, b := range s.binats(held) {
			ports = append(ports, b.inward())
		}
		err := s.config.SetForwards(ports)
		var taken *forward.TakenError
		if !errors.As(err, &taken) || !s.hold(held, taken) {
			return err
		}
	}
}

// SourceNATs returns the networks that leave with another source, and the destinations for which
// they keep theirs: each other, and what ports are forwarded to.
func (s *Service) SourceNATs() (others []forward.SourceNAT, near []netip.Prefix) {
	held := s.heldBack()
	others = slices.Clone(s.config.Settings.Masquerades)
	for _, b := range s.binats(held) {
		others = append(others, b.outward())
	}
	if len(others) == 0 {
		return nil, nil
	}
	for _, o := range others {
		near = append(near, o.Source)
	}
	for _, f := range s.forwards(held) {
		near = append(near, netip.PrefixFrom(f.To.Addr(), f.To.Addr().BitLen()))
	}
	return others, near
}

// CheckTunnelPort refuses a tunnel at a port that is forwarded: the target would get what other
// nodes send.
func (s *Service) CheckTunnelPort(port uint16) error {
	return s.config.Settings.Check(nil, port)
}

// CheckServiceAddress refuses an address for services that the settings use for others.
func (s *Service) CheckServiceAddress(a netip.Addr) error {
	for i, f := range s.config.Settings.Forwards {
		if f.To.Addr() == a || f.Listen.Addr() == a {
			return fmt.Errorf("%s is an address of [[forward]] %d of weir.toml; choose another one",
				a, i+1)
		}
	}
	for i, m := range s.config.Settings.Masquerades {
		if m.To == a || m.Source.Contains(a) {
			return fmt.Errorf("%s is an address of [[masquerade]] %d of weir.toml; choose another "+
				"one", a, i+1)
		}
	}
	for i, b := range s.config.Settings.Binats {
		if b.Listen == a || b.To == a {
			return fmt.Errorf("%s is an address of [[binat]] %d of weir.toml; choose another "+
				"one", a, i+1)
		}
	}
	return nil
}

// Forwards are the forwarded ports as the API shows them.
func (s *Service) Forwards() (all []api.Forward) {
	for _, f := range s.forwards(s.heldBack()) {
		all = append(all, api.Forward{Proto: f.Proto, Listen: f.Listen, To: f.To, Ports: f.Count})
	}
	return all
}

// Masquerades are the networks as the API shows them.
func (s *Service) Masquerades() (all []api.Masquerade) {
	for _, m := range s.config.Settings.Masquerades {
		one := api.Masquerade{Source: m.Source}
		if m.To.IsValid() {
			one.To = m.To.String()
		}
		all = append(all, one)
	}
	return all
}

// Binats are the addresses of 1:1 NAT as the API shows them.
func (s *Service) Binats() (all []api.Binat) {
	for _, b := range s.binats(s.heldBack()) {
		all = append(all, api.Binat(b))
	}
	return all
}

// Count returns how many ports are forwarded.
func (s *Service) Count() (n int) {
	for _, f := range s.forwards(s.heldBack()) {
		n += f.Count
	}
	return n
}

// Metrics are about the forwarded ports.
func (s *Service) Metrics() ([]observe.Metric, error) {
	return []observe.Metric{observe.NewGauge("weir_forwarded_ports",
		"Ports of the host that lead to other hosts.", s.Count())}, nil
}
