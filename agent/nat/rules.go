package nat

import (
	"fmt"
	"net/netip"

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
// addresses, which may have changed: the engine holds what it cannot have.
func (s *Service) CheckRules(p *program.Program, pods []netip.Prefix) error {
	var away []netip.Addr
	for _, x := range p.NATs {
		for _, r := range x.Addrs {
			away = append(away, r.Public)
		}
	}
	for _, x := range p.NATs {
		for _, r := range x.Addrs {
			if err := s.checkTarget(p, x.Number, "redirect_addr", r.Local, pods); err != nil {
				return err
			}
			if !p.Returns && s.config.IsOnly(r.Public, away) {
				return errRule{x.Number, "redirect_addr: " + r.Public.String(),
					"is the only address of its interface: nothing would reach this host by it " +
						"any more", "give the interface a second address, or use redirect_port"}
			}
		}
		for _, r := range x.Ports {
			if err := s.checkTarget(p, x.Number, "redirect_port", r.To.Addr(), pods); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Service) checkTarget(p *program.Program, number uint16, word string, to netip.Addr,
	pods []netip.Prefix) error {
	word += ": " + to.String()
	if !p.Returns && s.config.IsOwn(to) {
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

// Follow makes the host a router for rules with nat.
func (s *Service) Follow(all []program.NAT) error {
	if len(all) == 0 {
		return nil
	}
	return s.config.SetForwarding(true, false)
}
