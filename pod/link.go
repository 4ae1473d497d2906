package pod

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// AliasPrefix begins the alias of the host end of every pod.
const AliasPrefix = "weir:"

// maxAlias is as long as the kernel lets an alias be (IFALIASZ).
const maxAlias = 255

// aliasOf returns the alias of a pod's host end: its key and, if it fits, its name, which rules
// use. The kernel has both when the record is damaged.
func aliasOf(p *Pod) string {
	alias := AliasPrefix + p.Key
	if named := alias + " " + p.Name; len(named) <= maxAlias {
		return named
	}
	return alias
}

// fromAlias is the inverse; ours is false for an alias that is not a pod's.
func fromAlias(alias string) (key, name string, ours bool) {
	text, ours := strings.CutPrefix(alias, AliasPrefix)
	key, name, _ = strings.Cut(text, " ")
	if !validName(name, "", maxName) {
		name = ""
	}
	return key, name, ours
}

func isAliasOf(alias string, p *Pod) bool {
	key, _, ours := fromAlias(alias)
	return ours && key == p.Key
}

// hostIf is the name of a pod's host end: a hash, since names have 15 bytes and ids have 64.
func hostIf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "weir" + hex.EncodeToString(sum[:4])
}

// macs derives the addresses of both ends from the key: locally administered, and the same after
// every start, so that the neighbour entries inside a container never go stale.
func macs(key string) (pod, host net.HardwareAddr) {
	sum := sha256.Sum256([]byte("mac " + key))
	pod, host = net.HardwareAddr(sum[0:6]), net.HardwareAddr(sum[6:12])
	pod[0], host[0] = pod[0]&0xfc|2, host[0]&0xfc|2
	return pod, host
}

// inside is the namespace of a pod; nil when the runtime configures it.
type inside struct {
	ns   *nl.NS // closed by the caller
	conn *nl.Conn
}

func openInside(p *Pod, ns *nl.NS) (*inside, error) {
	if p.RuntimeMovesInterface {
		return nil, nil
	}
	conn, err := nl.Open(ns)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", p.Name, err)
	}
	return &inside{ns, conn}, nil
}

func (in *inside) close() {
	if in != nil {
		in.conn.Close()
	}
}

// Kinds of pairs, as ip-link(8) calls them.
const (
	LinkVeth   = "veth"
	LinkNetkit = "netkit"
)

// errNoNetkit adds to nl.ErrNoNetkit what to do instead.
type errNoNetkit struct{ error }

func (e errNoNetkit) Unwrap() error { return e.error }

// Hint returns what to do instead.
func (errNoNetkit) Hint() string {
	return `set link = "veth" in [pods] of weir.toml, or run a kernel that has it; "weir doctor" ` +
		"shows whether it does"
}

// makeLink makes the pod's interfaces, both down, as a pair of a kind.
func makeLink(conn *nl.Conn, in *inside, p *Pod, kind string) error {
	pair := nl.Veth{Name: p.HostIf, HardwareAddr: p.HostMAC, Alias: aliasOf(p),
		PeerName: p.InnerIf(), PeerHardwareAddr: net.HardwareAddr(p.MAC), MTU: p.MTU}
	if in != nil {
		if _, err := in.conn.LinkByName(p.IfName); err == nil {
			return fmt.Errorf("there is an interface %s already, which Weir did not make", p.IfName)
		}
		pair.PeerNS = in.ns
	}
	add := conn.AddVeth
	if kind == LinkNetkit {
		add = conn.AddNetkit
	}
	// It takes "exists" for the result of its own interrupted call; so a host end of that name
	// is removed first.
	if err := removeHostEnd(conn, p); err != nil {
		return err
	}
	if l, err := conn.LinkByName(p.HostIf); err == nil {
		return fmt.Errorf("interface %s (index %d) has the pod's interface name but is not this "+
			"pod's; rename or "+
			"remove it", l.Name, l.Index)
	}
	err := add(pair)
	if errors.Is(err, nl.ErrNoNetkit) {
		return errNoNetkit{err}
	}
	if err != nil {
		return err
	}
	host, err := conn.LinkByName(p.HostIf)
	if err != nil {
		return err
	}
	p.Index, p.Link = uint32(host.Index), host.Kind
	return conn.SetLinkAlias(host.Index, aliasOf(p))
}

// awaitBoth waits until both ends can send. An end that a runtime has still to move is down.
func awaitBoth(conn *nl.Conn, in *inside, p *Pod) error {
	if in == nil {
		return nil
	}
	if err := awaitCarrier(conn, p, p.HostIf); err != nil {
		return err
	}
	return awaitCarrier(in.conn, p, p.IfName)
}

// carrierWait is how long an interface may take to come up. The kernel does that in a work queue,
// within a millisecond when it is not busy.
const carrierWait = 5 * time.Second

// awaitCarrier waits until an end can send. Until then the kernel silently drops what is sent.
func awaitCarrier(conn *nl.Conn, p *Pod, name string) error {
	for deadline := time.Now().Add(carrierWait); ; time.Sleep(time.Millisecond) {
		l, err := conn.LinkByName(name)
		if err != nil || l.Running {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pod %s: interface %s did not come up within %v; is the other end "+
				"up?", p.Name, name, carrierWait)
		}
	}
}

// setUp gives the container's end its name, addresses and routes, all by netlink. In /proc/sys/net
// the kernel keeps an entry for each namespace in which it was ever opened, and every later open
// goes through all of them. The end is set up, since one that is down takes no routes, but the
// host's end is still down: no packet gets out.
func (in *inside) setUp(p *Pod) error {
	if in == nil {
		return nil
	}
	ns, inner := in.ns, in.conn
	lo, err := inner.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := inner.SetLinkUp(lo.Index); err != nil {
		return err
	}
	link, err := inner.LinkByName(p.InnerIf())
	if err != nil {
		return err
	}
	if err := inner.RenameLink(link.Index, p.IfName); err != nil {
		return err
	}
	// We set the link-local address: the kernel would run duplicate address detection first.
	if err := inner.OnlyOwnAddrs(link.Index); err != nil {
		return err
	}
	if err := inner.SetLinkUp(link.Index); err != nil {
		return err
	}
	for _, a := range p.Addrs {
		if err := addInside(ns, inner, link.Index, p, a); err != nil {
			return err
		}
	}
	for _, gw := range p.Gateway {
		if err := inner.SetNeigh(nl.Neigh{Link: link.Index, Addr: gw,
			HardwareAddr: p.HostMAC}); err != nil {
			return err
		}
		if err := addRoutes(inner, link.Index, gw, p); err != nil {
			return err
		}
	}
	return nil
}

// addInside gives the container's end an address, and with an IPv6 one a link-local address.
func addInside(ns *nl.NS, inner *nl.Conn, link int, p *Pod, a netip.Addr) error {
	if a.Is4() {
		return inner.AddAddr(link, host(a))
	}
	err := inner.AddAddr(link, host(a))
	if errors.Is(err, unix.EACCES) { // Docker, for example, switches IPv6 off in its namespaces
		err = ns.Do(func() error {
			sys, err := openSysctls("ipv6")
			if err != nil {
				return err
			}
			return errors.Join(sys.set(map[string]string{"ipv6/conf/" + p.IfName +
				"/disable_ipv6": "0"}), sys.close())
		})
		if err == nil {
			err = inner.AddAddr(link, host(a))
		}
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	return inner.AddAddr(link, netip.PrefixFrom(linkLocal(net.HardwareAddr(p.MAC)), 64))
}

// linkLocal is the address that follows from a MAC address, RFC 4291 appendix A.
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2],
		11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// setUpHostEnd sets the host's end up: settings, routes and neighbours of the pod. own are the
// gateway addresses, which the host has: what it sends to the pod comes from them.
func setUpHostEnd(conn *nl.Conn, sys sysctls, p *Pod, own []netip.Addr) error {
	values := map[string]string{
		"ipv4/conf/" + p.HostIf + "/forwarding": "1",
		"ipv4/conf/" + p.HostIf + "/rp_filter":  "0", // the fast path checks the source itself
		"ipv6/conf/" + p.HostIf + "/forwarding": "1",
		"ipv6/conf/" + p.HostIf + "/accept_ra":  "0",
		// no link-local address, no neighbour discovery towards the pod
		"ipv6/conf/" + p.HostIf + "/addr_gen_mode": "1",
	}
	if err := sys.set(values); err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	if err := conn.SetLinkUp(int(p.Index)); err != nil {
		return err
	}
	for _, gw := range p.Gateway {
		// Without a permanent neighbour inside, the pod resolves the gateway by ARP and neighbour
		// discovery. For IPv4 the kernel answers for every address of the host, for IPv6 only for
		// those of the interface.
		if p.RuntimeMovesInterface && gw.Is6() {
			if err := conn.AddAddr(int(p.Index), host(gw)); err != nil {
				return err
			}
		}
	}
	for _, a := range p.Addrs {
		if err := conn.SetNeigh(nl.Neigh{Link: int(p.Index), Addr: a,
			HardwareAddr: net.HardwareAddr(p.MAC)}); err != nil {
			return err
		}
		r := nl.Route{Dst: host(a), Link: int(p.Index), Scope: nl.ScopeLink}
		for _, gw := range own {
			if gw.Is4() == a.Is4() {
				r.Src = gw
			}
		}
		if a.Is6() {
			r.Scope = nl.ScopeGlobal // the kernel has no other scope for IPv6 routes
		}
		if err := conn.ReplaceRoute(r); err != nil {
			return err
		}
	}
	return nil
}

// hostEnd finds the host end of a pod. The link with the pod's index is the pod's if it has its
// alias or its name: either may be changed. A link of that name with another index is the pod's if
// it has its alias. The alias is set a moment after the link is made, so it is also the pod's if it
// has the address that follows from the key. Any other belongs to another program or pod.
func hostEnd(conn *nl.Conn, p *Pod) (l nl.Link, ours bool, err error) {
	if p.Index != 0 {
		l, err = conn.LinkByIndex(int(p.Index))
		if err == nil && (l.Name == p.HostIf || isAliasOf(l.Alias, p)) {
			return l, true, nil
		}
		if err != nil && !errors.Is(err, nl.ErrNoLink) {
			return l, false, err
		}
	}
	l, err = conn.LinkByName(p.HostIf)
	if errors.Is(err, nl.ErrNoLink) {
		return l, false, nil
	}
	if err != nil {
		return l, false, err
	}
	ours = isAliasOf(l.Alias, p) || l.Alias == "" && bytes.Equal(l.HardwareAddr, p.HostMAC)
	return l, ours, nil
}

// forgetIndex forgets the index of a pod's record if, since a reboot, it may be another link's.
func forgetIndex(conn *nl.Conn, p *Pod) error {
	if p.Index == 0 {
		return nil
	}
	l, err := conn.LinkByIndex(int(p.Index))
	if err != nil && !errors.Is(err, nl.ErrNoLink) {
		return err
	}
	if err != nil || !isAliasOf(l.Alias, p) {
		p.Index = 0
	}
	return nil
}

// removeHostEnd removes the host end of a pod, if there is one.
func removeHostEnd(conn *nl.Conn, p *Pod) error {
	l, ours, err := hostEnd(conn, p)
	if err != nil || !ours {
		return err
	}
	return deleteLink(conn, l.Index)
}

// deleteLink deletes a link. One that is gone meanwhile, with its namespace, is not an error.
func deleteLink(conn *nl.Conn, index int) error {
	if err := conn.DeleteLink(index); !errors.Is(err, nl.ErrNoLink) {
		return err
	}
	return nil
}

// host returns the prefix of a single address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
