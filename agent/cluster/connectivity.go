package cluster

import (
	"errors"
	"net/netip"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/store/cluster"
)

// checkConnectivity returns an error for a version that would cut this host off from the store, or
// the others from the store on this host.
func (s *Service) checkConnectivity(l Load, h *cluster.Head) error {
	s.mu.Lock()
	var others []netip.Addr
	for _, h := range s.desired.Hosts() {
		if h.Name != s.config.Name && len(h.Addrs) > 0 {
			others = append(others, h.Addrs[0].Addr())
		}
	}
	s.mu.Unlock()
	needed := requiredConns(s.config.Stores(), others, s.config.Parts.IsMe)
	why, err := s.config.Parts.CheckConnectivity(l, needed, (*api.Session)(h.Session))
	if err == nil && why != "" {
		err = refusal{errors.New(why)}
	}
	return err
}

// requiredConns returns the connections to weir-stores that a host needs, and those that the others
// need to one on this host.
func requiredConns(stores []netip.AddrPort, others []netip.Addr,
	isMe func(netip.Addr) bool) (needed []api.RequiredConn) {
	for _, to := range stores {
		if !isMe(to.Addr()) {
			needed = append(needed, api.RequiredConn{To: to})
			continue
		}
		for _, from := range others {
			needed = append(needed, api.RequiredConn{From: from, To: to})
		}
	}
	return needed
}
