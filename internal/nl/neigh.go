package nl

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Neigh is an entry of the neighbour table (ARP for IPv4, neighbour discovery for IPv6).
type Neigh struct {
	Link         int
	Addr         netip.Addr
	HardwareAddr net.HardwareAddr
	// unix.NUD_REACHABLE, NUD_STALE, ...; NUD_PERMANENT (also for 0 when setting) never ages
	State int
}

// Neighs lists the neighbours behind one link, or behind all links when link is 0.
func (c *Conn) Neighs(link int) ([]Neigh, error) {
	list, err := read("list neighbours", func() ([]netlink.Neigh, error) {
		return c.h.NeighList(link, netlink.FAMILY_ALL)
	})
	if err != nil {
		return nil, err
	}
	var neighs []Neigh
	for _, n := range list {
		a := addrOf(n.IP)
		// not bridge entries and multicast addresses
		if !a.IsValid() || n.State&unix.NUD_NOARP != 0 {
			continue
		}
		neighs = append(neighs, Neigh{Link: n.LinkIndex, Addr: a, HardwareAddr: n.HardwareAddr,
			State: n.State})
	}
	return neighs, nil
}

// SetNeigh adds a neighbour or replaces the one with the same address.
func (c *Conn) SetNeigh(n Neigh) error {
	return change(fmt.Sprintf("set neighbour %s on link %d", n.Addr, n.Link), func() error {
		return c.h.NeighSet(n.lib())
	})
}

func (n Neigh) lib() *netlink.Neigh {
	state := n.State
	if state == 0 {
		state = unix.NUD_PERMANENT
	}
	return &netlink.Neigh{LinkIndex: n.Link, Family: familyOf(n.Addr), IP: ipOf(n.Addr),
		HardwareAddr: n.HardwareAddr, State: state}
}
