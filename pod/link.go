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

// aliasPrefix begins the alias of every host end.
const aliasPrefix = "weir:"

// hostIf is the name of a pod's host end: a hash, since names have 15 bytes and ids have 64.
func hostIf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "weir" + hex.EncodeToString(sum[:4])
}

// macs derives the addresses of both ends from the key: locally administered, and the same after every start, so that the
// neighbour entries inside a container never go stale.
func macs(key string) (pod, host net.HardwareAddr) {
	sum := sha256.Sum256([]byte("mac " + key))
	pod, host = net.HardwareAddr(sum[0:6]), net.HardwareAddr(sum[6:12])
	pod[0], host[0] = pod[0]&0xfc|2, host[0]&0xfc|2
	return pod, host
}

// connect makes the pod's interfaces and everything in the kernel that hangs on them. All of it goes away with the host
// end, so undoing is removing that link; connect does so itself when it fails.
func connect(conn *nl.Conn, sys sysctls, p *Pod) (err error) {
	veth := nl.Veth{Name: p.HostIf, HardwareAddr: p.HostMAC, Alias: aliasPrefix + p.Key, PeerName: p.InnerIf(), PeerHardwareAddr: p.MAC, MTU: p.MTU}
	setUpInner, awaitInner := func() error { return nil }, func() error { return nil }
	if !p.Moved {
		ns, err := nl.OpenNS(p.Netns)
		if err != nil {
			return fmt.Errorf("network namespace of %s: %w", p.Name, err)
		}
		defer ns.Close()
		inner, err := nl.Open(ns)
		if err != nil {
			return err
		}
		defer inner.Close()
		if _, err := inner.LinkByName(p.IfName); err == nil {
			return fmt.Errorf("pod %s has an interface %s already, which Weir did not make", p.Name, p.IfName)
		}
		veth.PeerNS = ns
		setUpInner = func() error { return setUpInside(ns, inner, p) }
		awaitInner = func() error { return awaitCarrier(inner, p, p.IfName) }
	}
	// AddVeth takes "exists" for its own work after an interrupted call; so a host end of that name is removed first.
	if err := removeHostEnd(conn, p.Key); err != nil {
		return err
	}
	if err := conn.AddVeth(veth); err != nil {
		return err
	}
	host, err := conn.LinkByName(p.HostIf)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, conn.DeleteLink(host.Index))
		}
	}()
	p.Index = uint32(host.Index)
	if err := conn.SetLinkAlias(host.Index, aliasPrefix+p.Key); err != nil {
		return err
	}
	if err := setUpInner(); err != nil {
		return err
	}
	if err := setUpHostEnd(conn, sys, p); err != nil || p.Moved {
		return err
	}
	if err := awaitCarrier(conn, p, p.HostIf); err != nil {
		return err
	}
	return awaitInner()
}

// carrierWait is how long an interface may take to come up. The kernel does that in a work queue, within a millisecond when it is not busy.
const carrierWait = 5 * time.Second

// awaitCarrier waits until an end sends. Up to then the kernel throws away what is sent, without a word.
func awaitCarrier(conn *nl.Conn, p *Pod, name string) error {
	for deadline := time.Now().Add(carrierWait); ; time.Sleep(time.Millisecond) {
		l, err := conn.LinkByName(name)
		if err != nil || l.Running {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pod %s: interface %s did not come up within %v; is the other end up?", p.Name, name, carrierWait)
		}
	}
}

// setUpInside gives the container's end its name, addresses and routes, all by netlink: in /proc/sys/net the kernel remembers each namespace in which that was
// ever opened, and whoever opens it later goes through all of them.
func setUpInside(ns *nl.NS, inner *nl.Conn, p *Pod) error {
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
	// The link-local address is ours to give: the kernel would look for somebody who has it already.
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
		if err := inner.SetNeigh(nl.Neigh{Link: link.Index, Addr: gw, HardwareAddr: p.HostMAC}); err != nil {
			return err
		}
		if err := inner.ReplaceRoute(nl.Route{Dst: host(gw), Link: link.Index, Scope: nl.ScopeLink}); err != nil {
			return err
		}
		if err := inner.ReplaceRoute(nl.Route{Dst: netip.PrefixFrom(unspecified(gw), 0), Via: gw, Link: link.Index}); err != nil {
			return err
		}
	}
	return nil
}

// addInside gives the container's end an address, with an IPv6 one a link-local one.
func addInside(ns *nl.NS, inner *nl.Conn, link int, p *Pod, a netip.Addr) error {
	if a.Is4() {
		return inner.AddAddr(link, host(a))
	}
	err := inner.AddAddr(link, host(a))
	if errors.Is(err, unix.EACCES) { // Docker, for one, switches IPv6 off in its namespaces
		err = ns.Do(func() error {
			sys, err := openSysctls("ipv6")
			if err != nil {
				return err
			}
			return errors.Join(sys.set(map[string]string{"ipv6/conf/" + p.IfName + "/disable_ipv6": "0"}), sys.close())
		})
		if err == nil {
			err = inner.AddAddr(link, host(a))
		}
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	return inner.AddAddr(link, netip.PrefixFrom(linkLocal(p.MAC), 64))
}

// linkLocal is the address that follows from a MAC address, RFC 4291 appendix A.
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// setUpHostEnd makes the host know the way to the pod.
func setUpHostEnd(conn *nl.Conn, sys sysctls, p *Pod) error {
	values := map[string]string{
		"ipv4/conf/" + p.HostIf + "/forwarding":    "1",
		"ipv4/conf/" + p.HostIf + "/rp_filter":     "0", // the fast path checks the source itself
		"ipv6/conf/" + p.HostIf + "/forwarding":    "1",
		"ipv6/conf/" + p.HostIf + "/accept_ra":     "0",
		"ipv6/conf/" + p.HostIf + "/addr_gen_mode": "1", // no link-local address, no neighbour discovery towards the pod
	}
	if err := sys.set(values); err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	if err := conn.SetLinkUp(int(p.Index)); err != nil {
		return err
	}
	for _, gw := range p.Gateway {
		// Without a permanent neighbour inside, the pod asks who has the gateway. For IPv4 the kernel answers for every
		// address of the host, for IPv6 only for those of the interface.
		if p.Moved && gw.Is6() {
			if err := conn.AddAddr(int(p.Index), host(gw)); err != nil {
				return err
			}
		}
	}
	for _, a := range p.Addrs {
		if err := conn.SetNeigh(nl.Neigh{Link: int(p.Index), Addr: a, HardwareAddr: p.MAC}); err != nil {
			return err
		}
		r := nl.Route{Dst: host(a), Link: int(p.Index), Scope: nl.ScopeLink}
		for _, gw := range p.Gateway {
			if gw.Is4() == a.Is4() {
				r.Src = gw
			}
		}
		if a.Is6() {
			r.Scope = nl.ScopeGlobal // the kernel knows no other for IPv6
		}
		if err := conn.ReplaceRoute(r); err != nil {
			return err
		}
	}
	return nil
}

// removeHostEnd removes the host end of a pod, if there is one. A link of that name is ours if it has our alias or, since the alias is
// set a moment after the link is made, the address that follows from the key.
func removeHostEnd(conn *nl.Conn, key string) error {
	name := hostIf(key)
	l, err := conn.LinkByName(name)
	if errors.Is(err, nl.ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	_, mac := macs(key)
	if !strings.HasPrefix(l.Alias, aliasPrefix) && !bytes.Equal(l.HardwareAddr, mac) {
		return fmt.Errorf("interface %s is in the way and is not Weir's; rename or remove it", name)
	}
	return conn.DeleteLink(l.Index)
}

// host is the prefix that holds just one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
