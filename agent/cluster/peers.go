package cluster

import (
	"fmt"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/store/cluster"
)

// Peers has the peers of the tunnel, by name.
type Peers interface {
	// AddHost makes a peer, or changes it.
	AddHost(api.AddPeer) error
	// RemoveHost removes a peer, if there is one of the name.
	RemoveHost(name string) error
	Names() []string
}

// HostPeers makes the other hosts of the cluster peers.
type HostPeers struct{ Peers Peers }

// Set makes a host a peer, changes it, or removes it. A host without ranges is none.
func (p HostPeers) Set(h cluster.HostChange) error {
	name := api.HostPeer + h.Name
	if h.Node == nil || len(h.Node.Ranges) == 0 {
		return p.Peers.RemoveHost(name)
	}
	a := api.AddPeer{Name: name, Key: h.Node.WireGuard.String(), Pods: h.Node.Ranges}
	for _, at := range h.Addrs {
		a.Endpoints = append(a.Endpoints, at.String())
	}
	return p.Peers.AddHost(a)
}

// Names returns the names of the hosts that are peers.
func (p HostPeers) Names() (all []string) {
	for _, name := range p.Peers.Names() {
		if host, ok := strings.CutPrefix(name, api.HostPeer); ok {
			all = append(all, host)
		}
	}
	return all
}

// CheckByHand refuses the change of a peer by hand that is a host of the cluster. The peer would
// differ from the host until that changes, and packets to its pods might leave in the clear.
func (s *Service) CheckByHand(peer string) error {
	host, is := strings.CutPrefix(peer, api.HostPeer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !is || s.desired.Node(host) == nil {
		return nil
	}
	return &api.Error{Message: fmt.Sprintf("peer %s is host %s of the cluster, which is not "+
		"changed by hand", peer, host), Advice: "on a store host: weir node remove " + host}
}
