// Package nat has the host translate for others behind it, as weir.toml says: ports of the host
// that lead to other hosts, and networks that leave with another source.
// docs/design/0004-containers.md, section 5.
package nat

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/forward"
)

// Config is what a Service needs.
type Config struct {
	Settings Settings
	// SetForwards replaces the forwarded ports in the engine.
	SetForwards func([]forward.Published) error
	// SetMasquerade has the engine ask for what Others returns.
	SetMasquerade func() error
	// SetForwarding makes the host a router for IPv4, for IPv6, or both.
	SetForwarding func(four, six bool) error
	// IsOwn reports whether an address is one of the host's.
	IsOwn func(netip.Addr) bool
	// IsOnly reports whether an interface of the host has this address and no other of the family
	// but those that are given away.
	IsOnly func(a netip.Addr, away []netip.Addr) bool
}

// Service puts the settings in force.
type Service struct{ config Config }

// New returns a Service that has done nothing yet.
func New(c Config) *Service { return &Service{config: c} }

// Apply puts the settings in force, and takes back what those of an earlier agent have left. After
// an error what was in force before continues; it may be called again.
func (s *Service) Apply() error {
	var ports []forward.Published
	four, six := false, false
	for i, f := range s.config.Settings.Forwards {
		if s.config.IsOwn(f.To.Addr()) {
			return errOwnTarget{i + 1, f.To.Addr(), "forward"}
		}
		ports = append(ports, f.Ports()...)
		four, six = four || f.To.Addr().Is4(), six || f.To.Addr().Is6()
	}
	for _, m := range s.config.Settings.Masquerades {
		four, six = four || m.Source.Addr().Is4(), six || m.Source.Addr().Is6()
	}
	var away []netip.Addr
	for _, b := range s.config.Settings.Binats {
		away = append(away, b.Listen)
	}
	for i, b := range s.config.Settings.Binats {
		switch {
		case s.config.IsOwn(b.To):
			return errOwnTarget{i + 1, b.To, "binat"}
		case s.config.IsOnly(b.Listen, away):
			return errOnlyAddress{i + 1, b.Listen}
		}
		ports = append(ports, b.inward())
		four, six = four || b.To.Is4(), six || b.To.Is6()
	}
	if err := s.config.SetForwarding(four, six); err != nil {
		return err
	}
	if err := s.config.SetForwards(ports); err != nil {
		return err
	}
	return s.config.SetMasquerade()
}

// Others returns the networks that leave with another source, and the destinations for which they
// keep theirs: each other, and what ports are forwarded to.
func (s *Service) Others() (others []forward.SourceNAT, near []netip.Prefix) {
	others = slices.Clone(s.config.Settings.Masquerades)
	for _, b := range s.config.Settings.Binats {
		others = append(others, b.outward())
	}
	if len(others) == 0 {
		return nil, nil
	}
	for _, o := range others {
		near = append(near, o.Source)
	}
	for _, f := range s.config.Settings.Forwards {
		near = append(near, netip.PrefixFrom(f.To.Addr(), f.To.Addr().BitLen()))
	}
	return others, near
}

// errOwnTarget refuses a target that is the host itself: what the host sends itself is not
// translated back.
type errOwnTarget struct {
	number int
	addr   netip.Addr
	kind   string
}

func (e errOwnTarget) Error() string {
	return fmt.Sprintf("%s %d: to: %s is an address of this host", e.kind, e.number, e.addr)
}

// Hint returns what to do instead.
func (errOwnTarget) Hint() string { return "let the service listen at that port itself" }

// CheckTunnelPort refuses a tunnel at a port that is forwarded: the target would get what other
// nodes send.
func (s *Service) CheckTunnelPort(port uint16) error {
	return s.config.Settings.Check(nil, port)
}

// CheckVirtual refuses an address for services that the settings use for others.
func (s *Service) CheckVirtual(a netip.Addr) error {
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

// Views are the forwarded ports as the API shows them.
func (s *Service) Views() (all []api.Forward) {
	for _, f := range s.config.Settings.Forwards {
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
	for _, b := range s.config.Settings.Binats {
		all = append(all, api.Binat(b))
	}
	return all
}

// Count returns how many ports are forwarded.
func (s *Service) Count() (n int) {
	for _, f := range s.config.Settings.Forwards {
		n += f.Count
	}
	return n
}
