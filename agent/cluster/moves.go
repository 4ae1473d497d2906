package cluster

import (
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirnet/weir/store/cluster"
)

// How often a host that keeps its certificate may change: moveBurst times at once, and then once in
// moveEvery. A host announces other endpoints as often as it likes, and each change costs every
// other host requests to the kernel, a file and a line in the log.
const (
	moveEvery = time.Second
	moveBurst = 4
)

// moves are how often hosts have changed, by name.
type moves map[string]move

type move struct {
	serial cluster.Serial
	often  *rate.Limiter
}

// may reports whether the peers may get a change of a host now. What removes a host, or gives it
// another certificate, does not wait.
func (m moves) may(h cluster.HostChange, now time.Time) bool {
	if h.Node == nil {
		delete(m, h.Name)
		return true
	}
	last, there := m[h.Name]
	if !there || last.serial != h.Node.Serial {
		last = move{h.Node.Serial, rate.NewLimiter(rate.Every(moveEvery), moveBurst)}
		m[h.Name] = last
	}
	return last.often.AllowN(now, 1)
}

// sendLater has the peers get a host later, as it is by then.
func (s *Service) sendLater(h cluster.HostChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, newer := s.unsent.hosts[h.Name]; !newer {
		s.unsent.hosts[h.Name] = h
	}
}

// AddressChanged gives the peers each host again that announces an address: this node has a service
// there now, and the endpoint is left out, or has none any more.
func (s *Service) AddressChanged(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.desired.Hosts() {
		if h.Name != s.config.Name && slices.ContainsFunc(h.Addrs, func(at netip.AddrPort) bool {
			return at.Addr().Unmap() == a
		}) {
			s.unsent.hosts[h.Name] = h
		}
	}
	wake(s.hosts)
}
