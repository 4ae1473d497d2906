package nat

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/weirnet/weir/internal/program"
)

// errRule refuses what an instance of nat, which rules name, redirects.
type errRule struct {
	number    uint16
	what      string
	why, hint string
}

func (e errRule) Error() string { return fmt.Sprintf("nat %d: %s %s", e.number, e.what, e.why) }

// Hint returns what to do instead.
func (e errRule) Hint() string { return e.hint }

// CheckRules refuses rules whose instances of nat redirect to the host itself or to its pods, or
// give the only address of an interface away. Rules that return are not refused because of
// addresses, which may have changed. Nor are other rules because of an instance that is in force:
// the engine holds what it cannot have.
func (s *Service) CheckRules(p *program.Program, pods []netip.Prefix) error {
	var away []netip.Addr
	for _, x := range p.NATs {
		for _, r := range x.Addrs {
			away = append(away, r.Public)
		}
	}
	for _, x := range p.NATs {
		old := p.Returns || s.inForce(&x)
		for _, r := range x.Addrs {
			if err := s.checkTarget(old, x.Number, "redirect_addr", r.Local, pods); err != nil {
				return err
			}
			if !old && s.config.IsOnly(r.Public, away) {
				return errRule{x.Number, "redirect_addr: " + r.Public.String(),
					"is the only address of its interface: nothing would reach this host by it " +
						"any more", "give the interface a second address, or use redirect_port"}
			}
		}
		for _, r := range x.Ports {
			if err := s.checkTarget(old, x.Number, "redirect_port", r.To.Addr(), pods); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) checkTarget(old bool, number uint16, word string, to netip.Addr,
	pods []netip.Prefix) error {
	word += ": " + to.String()
	if !old && s.config.IsMe(to) {
		return errRule{number, word, "is an address of this host",
			"let the service listen at that port itself"}
	}
	for _, r := range pods {
		if r.Contains(to) {
			return errRule{number, word, "is in pods.ranges",
				"publish the port with the pod: weir pod attach --publish"}
		}
	}
	return nil
}

// inForce reports whether the rules in force have an instance as it is.
func (s *Service) inForce(x *program.NAT) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.rules, func(r program.NAT) bool {
		return r.Number == x.Number && reflect.DeepEqual(&r, x)
	})
}

// SetRules notes the instances of the rules with nat in force, and makes the host a router for
// them.
func (s *Service) SetRules(all []program.NAT) error {
	s.mu.Lock()
	s.rules = all
	s.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	return s.config.SetForwarding(true, false)
}
