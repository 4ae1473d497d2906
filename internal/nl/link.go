package nl

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Link is a network interface as it was when it was read.
type Link struct {
	Index int
	// up to 15 bytes, chosen by the program that made the link: escape it before a terminal shows
	// it
	Name  string
	Kind  string // "veth", "bridge", "tuntap", ...; "device" for NICs and the loopback
	Alias string
	// "ether", "none", ...: the type of its frames (ARPHRD_*) as ip-link(8) calls it, or "unknownN"
	Encap        string
	NoRemote     bool // GRE: each packet carries its remote address in a header of its own
	MTU          int  // bytes
	HardwareAddr net.HardwareAddr
	Up           bool // administratively up (IFF_UP)
	Running      bool // it is on and has a carrier (IFF_RUNNING)
	// the operational state is known to be up (RFC 2863); the loopback and tunnels never say so
	OperUp   bool
	Loopback bool
	Master   int // index of the bridge or bond it is a port of, or 0
	// veth, netkit: index of the other end, VLAN: of the lower device, counted in the namespace of
	// that, or 0
	Peer int
	// veth, netkit, VLAN: id of that namespace as seen from this one, or -1 when it is this one
	PeerNS int
}

// ErrNoLink means that there is no link of that name or index.
var ErrNoLink = errors.New("no such link")

func linkOf(l netlink.Link) Link {
	a := l.Attrs()
	return Link{
		Index: a.Index, Name: a.Name, Kind: l.Type(), Alias: a.Alias, MTU: a.MTU,
		Encap: a.EncapType, NoRemote: noRemote(l),
		HardwareAddr: a.HardwareAddr,
		Up:           a.RawFlags&unix.IFF_UP != 0,
		Running:      a.RawFlags&unix.IFF_RUNNING != 0,
		OperUp:       a.OperState == netlink.OperUp,
		Loopback:     a.RawFlags&unix.IFF_LOOPBACK != 0,
		Master:       a.MasterIndex, Peer: a.ParentIndex, PeerNS: a.NetNsID,
	}
}

// noRemote: the kernel makes headers for a GRE tunnel without a remote address or to a group, but
// not if each packet carries its tunnel (ipgre_tunnel_init, ip6gre_tunnel_init).
func noRemote(l netlink.Link) bool {
	g, ok := l.(*netlink.Gretun)
	if !ok || g.FlowBased {
		return false
	}
	return len(g.Remote) == 0 || g.Remote.IsUnspecified() || g.Remote.IsMulticast()
}

func (l Link) equal(o Link) bool {
	return bytes.Equal(l.HardwareAddr, o.HardwareAddr) && l.Index == o.Index && l.Name == o.Name &&
		l.Kind == o.Kind &&
		l.Alias == o.Alias && l.MTU == o.MTU && l.Encap == o.Encap && l.NoRemote == o.NoRemote &&
		l.Up == o.Up && l.Running == o.Running && l.OperUp == o.OperUp &&
		l.Loopback == o.Loopback && l.Master == o.Master && l.Peer == o.Peer && l.PeerNS == o.PeerNS
}

// byIndex names a link to the library.
func byIndex(index int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// Links lists all links of the namespace.
func (c *Conn) Links() ([]Link, error) {
	list, err := read("list links", c.h.LinkList)
	if err != nil {
		return nil, err
	}
	links := make([]Link, len(list))
	for i, l := range list {
		links[i] = linkOf(l)
	}
	return links, nil
}

// XDPPrograms returns the links with a program of XDP, and the kernel's id of that; 0 if a link has
// more than one.
func (c *Conn) XDPPrograms() (map[int]uint32, error) {
	list, err := read("list links", c.h.LinkList)
	all := map[int]uint32{}
	for _, l := range list {
		if a := l.Attrs(); a.Xdp != nil && a.Xdp.Attached {
			all[a.Index] = a.Xdp.ProgId
		}
	}
	return all, err
}

// LinkByName finds a link. The error wraps ErrNoLink when there is none.
func (c *Conn) LinkByName(name string) (Link, error) {
	return findLink(fmt.Sprintf("find link %q", name), func() (netlink.Link, error) {
		return c.h.LinkByName(name)
	})
}

// LinkByIndex finds a link. The error wraps ErrNoLink when there is none.
func (c *Conn) LinkByIndex(index int) (Link, error) {
	return findLink(fmt.Sprintf("find link %d", index), func() (netlink.Link, error) {
		return c.h.LinkByIndex(index)
	})
}

func findLink(what string, ask func() (netlink.Link, error)) (Link, error) {
	l, err := read(what, ask)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) {
		return Link{}, fmt.Errorf("%s: %w", what, ErrNoLink)
	}
	if err != nil {
		return Link{}, err
	}
	return linkOf(l), nil
}

// Veth describes a pair of virtual Ethernet interfaces to be made: a veth, or a netkit.
type Veth struct {
	Name, PeerName                 string
	NS, PeerNS                     *NS // where each end is put; nil means the namespace of the Conn
	HardwareAddr, PeerHardwareAddr net.HardwareAddr
	MTU                            int // of both ends, in bytes; 0 leaves the kernel's 1500
	Alias                          string
}

// AddVeth makes a veth pair, each end directly in its namespace, so that no name can clash on the
// way. Both ends are down.
func (c *Conn) AddVeth(v Veth) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr, attrs.Alias = v.Name, v.MTU, v.HardwareAddr, v.Alias
	if v.NS != nil {
		attrs.Namespace = netlink.NsFd(v.NS.Fd())
	}
	l := &netlink.Veth{LinkAttrs: attrs, PeerName: v.PeerName, PeerHardwareAddr: v.PeerHardwareAddr,
		PeerMTU: uint32(v.MTU)}
	if v.PeerNS != nil {
		l.PeerNamespace = netlink.NsFd(v.PeerNS.Fd())
	}
	return change(fmt.Sprintf("make veth %q - %q", v.Name, v.PeerName), func() error {
		return c.h.LinkAdd(l)
	}, unix.EEXIST)
}

// ErrNoNetkit means that the kernel has no netkit.
var ErrNoNetkit = errors.New("this kernel has no netkit (Linux 6.7, CONFIG_NETKIT)")

// AddNetkit makes a pair as AddVeth does, of the kind netkit: programs can be attached where each
// end sends. Ends without a program let packets pass. The first end is the primary one, over which
// alone the pair can be changed. What passes from one namespace to the other loses its mark and its
// priority, before a program sees it. The error wraps ErrNoNetkit where the kernel has none.
func (c *Conn) AddNetkit(v Veth) error {
	attrs, peer := netlink.NewLinkAttrs(), netlink.LinkAttrs{Name: v.PeerName, MTU: v.MTU,
		HardwareAddr: v.PeerHardwareAddr}
	attrs.Name, attrs.MTU, attrs.HardwareAddr, attrs.Alias = v.Name, v.MTU, v.HardwareAddr, v.Alias
	if v.NS != nil {
		attrs.Namespace = netlink.NsFd(v.NS.Fd())
	}
	if v.PeerNS != nil {
		peer.Namespace = netlink.NsFd(v.PeerNS.Fd())
	}
	l := &netlink.Netkit{LinkAttrs: attrs, Mode: netlink.NETKIT_MODE_L2,
		Policy: netlink.NETKIT_POLICY_FORWARD, PeerPolicy: netlink.NETKIT_POLICY_FORWARD,
		Scrub: netlink.NETKIT_SCRUB_DEFAULT, PeerScrub: netlink.NETKIT_SCRUB_DEFAULT}
	l.SetPeerAttrs(&peer)
	what := fmt.Sprintf("make netkit %q - %q", v.Name, v.PeerName)
	err := change(what, func() error { return c.h.LinkAdd(l) }, unix.EEXIST)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%s: %w", what, ErrNoNetkit)
	}
	return err
}

// DeleteLink deletes a link. Deleting one end of a pair deletes both. The error wraps ErrNoLink
// when there is none.
func (c *Conn) DeleteLink(index int) error {
	what := fmt.Sprintf("delete link %d", index)
	err := change(what, func() error { return c.h.LinkDel(byIndex(index)) }, unix.ENODEV)
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", what, ErrNoLink)
	}
	return err
}

// SetLinkUp switches a link on.
func (c *Conn) SetLinkUp(index int) error {
	return change(fmt.Sprintf("set link %d up", index), func() error {
		return c.h.LinkSetUp(byIndex(index))
	})
}

// SetLinkDown switches a link off.
func (c *Conn) SetLinkDown(index int) error {
	return change(fmt.Sprintf("set link %d down", index), func() error {
		return c.h.LinkSetDown(byIndex(index))
	})
}

// SetLinkMTU sets the largest packet a link takes, in bytes.
func (c *Conn) SetLinkMTU(index, mtu int) error {
	return change(fmt.Sprintf("set mtu %d on link %d", mtu, index),
		func() error { return c.h.LinkSetMTU(byIndex(index), mtu) })
}

// OnlyOwnAddrs keeps the kernel from giving a link IPv6 addresses of its own making. Without
// IPv6 there is nothing to do.
func (c *Conn) OnlyOwnAddrs(index int) error {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	return change(fmt.Sprintf("set addrgenmode none on link %d", index),
		func() error { return c.h.LinkSetIP6AddrGenMode(byIndex(index), none) }, unix.EAFNOSUPPORT)
}

// RenameLink gives a link another name. Before kernel 6.0 the link has to be down.
func (c *Conn) RenameLink(index int, name string) error {
	return change(fmt.Sprintf("rename link %d to %q", index, name),
		func() error { return c.h.LinkSetName(byIndex(index), name) })
}

// SetLinkAlias sets the free text that goes with a link.
func (c *Conn) SetLinkAlias(index int, alias string) error {
	return change(fmt.Sprintf("set alias of link %d", index),
		func() error { return c.h.LinkSetAlias(byIndex(index), alias) })
}

// SetLinkGSOSize sets how large the GSO and GRO packets of a link may become, of both families
// (BIG TCP above 65,536 bytes).
func (c *Conn) SetLinkGSOSize(index, bytes int) error {
	for _, set := range []func(netlink.Link, int) error{
		c.h.LinkSetGSOMaxSize, c.h.LinkSetGROMaxSize, c.h.LinkSetGSOIPv4MaxSize,
		c.h.LinkSetGROIPv4MaxSize,
	} {
		err := change(fmt.Sprintf("set the GSO and GRO size of link %d", index), func() error {
			return set(byIndex(index), bytes)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// SetLinkHardwareAddr sets the Ethernet address of a link.
func (c *Conn) SetLinkHardwareAddr(index int, mac net.HardwareAddr) error {
	return change(fmt.Sprintf("set address %s on link %d", mac, index),
		func() error { return c.h.LinkSetHardwareAddr(byIndex(index), mac) })
}
