package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// setUpHost makes the node a router and gives it the gateway addresses.
func (m *Manager) setUpHost() error {
	lo, err := m.conn.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := m.conn.SetLinkUp(lo.Index); err != nil {
		return err
	}
	held, err := m.conn.Addrs(lo.Index)
	if err != nil {
		return err
	}
	for _, pool := range m.pools {
		gw := pool.Gateway()
		if !slices.ContainsFunc(held, func(a nl.Addr) bool { return a.Prefix.Addr() == gw }) {
			if err := m.conn.AddAddr(lo.Index, host(gw)); err != nil {
				return fmt.Errorf("gateway address: %w", err)
			}
		}
		family := "ipv4/ip_forward"
		if gw.Is6() {
			family = "ipv6/conf/all/forwarding"
		}
		if err := m.sys.set(map[string]string{family: "1"}); err != nil {
			return err
		}
	}
	return nil
}

// takeOver makes records, interfaces and fast path agree at the start: pods with an interface are
// set in the fast path again. Pods without one are removed: after a reboot, or when their namespace
// has ended. So are interrupted attaches and detaches, and interfaces and endpoints without a
// record.
func (m *Manager) takeOver() error {
	records, err := m.load()
	if err != nil { // any interface may belong to one of them
		return err
	}
	var errs []error
	known := map[string]bool{}
	for _, p := range records {
		known[p.Key] = true
		errs = append(errs, m.adopt(p))
	}
	return errors.Join(append(errs, m.removeOrphans(known), m.removeStaleEndpoints(),
		m.publish(nil))...)
}

// adopt takes over a pod of an earlier process, or ends it when it is not complete. A pod that
// cannot be ended is reported to Config.OnError and left to Sweep. The ports of one that ends stay
// in the fast path until takeOver sets all: those of pods that are adopted later must not be
// withdrawn.
func (m *Manager) adopt(p *Pod) error {
	if err := m.enter(p); err != nil {
		m.config.OnError(err)
		p.Ready = false
	}
	if err := forgetIndex(m.conn, p); err != nil {
		return err
	}
	l, ours, err := hostEnd(m.conn, p)
	if err != nil {
		return err
	}
	if !ours || !p.Ready || m.runtimeEnded(p) {
		p.Ready, p.ending = false, true
		_ = m.dismantle(p) // reported
		return nil
	}
	p.Index, p.Link, p.published = uint32(l.Index), l.Kind, len(p.Publish) > 0
	if p.NetnsID == "" { // of an older version
		p.NetnsID = namespaceID(p.Netns)
	}
	if err := errors.Join(m.config.OnAttach(*p), m.forward.SetEndpoint(p.Endpoint())); err != nil {
		return fmt.Errorf("pod %s: fast path: %w", p.Name, err)
	}
	return nil
}

// enter adds a pod of an earlier process to the list, and takes its addresses from the pools.
func (m *Manager) enter(p *Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var mine []netip.Addr
	for _, a := range p.Addrs {
		for _, pool := range m.pools {
			if !pool.Prefix().Contains(a) {
				continue
			}
			// only after a damaged record: the first pod keeps the address
			if err := pool.Allocate(a); err != nil {
				for _, a := range mine {
					m.releaseLocked(a)
				}
				p.Addrs = nil // another pod's: they must not be released
				return fmt.Errorf("pod %s: %w", p.Name, err)
			}
			mine = append(mine, a)
		}
	}
	m.pods[p.Key] = p
	return nil
}

// alive reports whether a pod's host end is there.
func (m *Manager) alive(p *Pod) bool {
	_, ours, err := hostEnd(m.conn, p)
	return ours || err != nil // an error of the query is not a reason to remove the pod
}

// runtimeEnded reports whether a runtime that moves the interface itself has put it back, or never
// moved it, and the namespace is gone. Then the container ended while no agent was running.
func (m *Manager) runtimeEnded(p *Pod) bool {
	if !p.RuntimeMovesInterface {
		return false
	}
	if _, err := m.conn.LinkByName(p.InnerIf()); err != nil {
		return false
	}
	id := namespaceID(p.Netns)
	return id == "" || p.NetnsID != "" && id != p.NetnsID
}

// removeOrphans removes interfaces of ours without a record, which only a crash leaves.
func (m *Manager) removeOrphans(known map[string]bool) error {
	links, err := m.conn.Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		key, _, ok := fromAlias(l.Alias)
		if ok && l.Name == hostIf(key) && !known[key] {
			errs = append(errs, deleteLink(m.conn, l.Index))
		}
	}
	return errors.Join(errs...)
}

// removeStaleEndpoints removes the endpoints without a pod from the fast path: their pods ended
// while no Manager was running.
func (m *Manager) removeStaleEndpoints() error {
	all, err := m.forward.Endpoints()
	if err != nil {
		return err
	}
	ours := map[uint32]bool{}
	for _, p := range m.List() {
		ours[p.Index] = true
	}
	var errs []error
	for _, e := range all {
		if !ours[e.Index] {
			errs = append(errs, m.forward.DeleteEndpoint(e.Index))
		}
	}
	return errors.Join(errs...)
}

// Check compares a pod with the kernel and, unless addrs is nil, with the addresses that its
// runtime expects, and returns what is missing. Its cost does not depend on what the pod has put
// into its namespace.
func (m *Manager) Check(container, ifName string, addrs []netip.Addr) error {
	p, ready := m.Get(container, ifName)
	if !ready {
		return fmt.Errorf("%w: %s", ErrNotFound, container)
	}
	if addrs != nil && !sameAddrs(addrs, p.Addrs) {
		return fmt.Errorf("pod %s: its addresses are %v, not %v", p.Name, p.Addrs, addrs)
	}
	host, _, err := hostEnd(m.conn, &p)
	if err != nil {
		return fmt.Errorf("pod %s: host end: %w", p.Name, err)
	}
	if host.Index != int(p.Index) {
		return fmt.Errorf("pod %s: host end %s is gone", p.Name, p.HostIf)
	}
	if !host.Up {
		return fmt.Errorf("pod %s: host end %s is down", p.Name, p.HostIf)
	}
	if p.RuntimeMovesInterface {
		return nil // the runtime configures the inner end
	}
	ns, err := nl.OpenNS(p.Netns)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	defer ns.Close()
	inner, err := nl.Open(ns)
	if err != nil {
		return err
	}
	defer inner.Close()
	link, err := inner.LinkByName(p.IfName)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.Name, err)
	}
	for _, want := range p.Addrs {
		r, err := inner.MatchRoute(want, 0)
		if err != nil || r.Type != unix.RTN_LOCAL || r.Link != link.Index {
			return fmt.Errorf("pod %s: %s lost its address %s", p.Name, p.IfName, want)
		}
	}
	for _, gw := range p.Gateway {
		for _, dst := range p.RoutesOver(gw) {
			to := dst.Addr()
			if dst.Bits() == 0 {
				to = anywhere(gw)
			}
			r, err := inner.MatchRoute(to, link.Index)
			if err != nil || r.Via != gw && to != gw {
				return fmt.Errorf("pod %s: the route to %s over %s is gone", p.Name, dst, gw)
			}
		}
	}
	return nil
}

func sameAddrs(a, b []netip.Addr) bool {
	byValue := func(list []netip.Addr) []netip.Addr {
		return slices.SortedFunc(slices.Values(list), netip.Addr.Compare)
	}
	return slices.Equal(byValue(a), byValue(b))
}
