package nat

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/forward"
)

// element is one of weir.toml that the host may be unable to put in force: of [[forward]] or of
// [[binat]]. Nothing outside of the file can be in the way of a [[masquerade]].
type element struct {
	kind   string
	number int // from 1
}

func (e element) String() string { return fmt.Sprintf("[[%s]] %d", e.kind, e.number) }

func forwardElement(i int) element { return element{"forward", i + 1} }
func binatElement(i int) element   { return element{"binat", i + 1} }

// unusable returns the elements that the host's addresses do not let be in force.
func (s *Service) unusable() map[element]error {
	held := map[element]error{}
	for i, f := range s.config.Settings.Forwards {
		if s.config.IsMe(f.To.Addr()) {
			held[forwardElement(i)] = errOwnTarget{f.To.Addr()}
		}
	}
	var away []netip.Addr
	for i, b := range s.config.Settings.Binats {
		if s.config.IsMe(b.To) {
			held[binatElement(i)] = errOwnTarget{b.To}
			continue
		}
		away = append(away, b.Listen)
	}
	only := map[element]error{}
	for i, b := range s.config.Settings.Binats {
		if e := binatElement(i); held[e] == nil && s.config.IsOnly(b.Listen, away) {
			only[e] = errOnlyAddress{b.Listen}
		}
	}
	maps.Copy(held, only)
	return held
}

// hold adds the elements that have a port of a pod or a service to held. It reports whether there
// is one more.
func (s *Service) hold(held map[element]error, taken *forward.TakenError) bool {
	before := len(held)
	add := func(e element, has bool, err error) {
		if has && held[e] == nil {
			held[e] = fmt.Errorf("listen: %w", err)
		}
	}
	for _, t := range taken.Ports {
		for i, f := range s.config.Settings.Forwards {
			add(forwardElement(i), f.Listen.Addr() == t.Host.Addr() &&
				f.Has(t.Proto, t.Host.Port()), t)
		}
		for i, b := range s.config.Settings.Binats {
			add(binatElement(i), b.inward().Host == t.Host && t.Proto == 0, t)
		}
	}
	return len(held) > before
}

// heldBack returns what is not in force, before the first Apply what would not be.
func (s *Service) heldBack() map[element]error {
	s.mu.Lock()
	held := s.held // never changed in place
	s.mu.Unlock()
	if held == nil {
		return s.unusable()
	}
	return held
}

// forwards are the elements of [[forward]] without those that are held back.
func (s *Service) forwards(held map[element]error) (all []Forward) {
	for i, f := range s.config.Settings.Forwards {
		if held[forwardElement(i)] == nil {
			all = append(all, f)
		}
	}
	return all
}

// binats are the elements of [[binat]] without those that are held back.
func (s *Service) binats(held map[element]error) (all []Binat) {
	for i, b := range s.config.Settings.Binats {
		if held[binatElement(i)] == nil {
			all = append(all, b)
		}
	}
	return all
}

// report notes a problem for each element that is held back, and ends those of the others.
func (s *Service) report(held map[element]error) {
	one := func(e element) {
		err := held[e]
		if err == nil {
			s.config.Problems.Solved(e.String())
			return
		}
		s.config.Problems.Set(e.String(), fmt.Sprintf("%s of weir.toml is not in force: %v; it is "+
			"tried again", e, err), problem.Hint(err, "weir doctor"))
	}
	for i := range s.config.Settings.Forwards {
		one(forwardElement(i))
	}
	for i := range s.config.Settings.Binats {
		one(binatElement(i))
	}
}

// errOwnTarget refuses a target that is the host itself: what the host sends itself is not
// translated back.
type errOwnTarget struct{ addr netip.Addr }

func (e errOwnTarget) Error() string {
	return fmt.Sprintf("to: %s is an address of this host", e.addr)
}

// Hint returns what to do instead.
func (errOwnTarget) Hint() string { return "let the service listen at that port itself" }
