package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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

// Reconcile brings records, interfaces and fast path into agreement: pods whose interface is there are told to the fast
// path again; pods whose interface went (a reboot, a namespace that died), attaches that were cut short, and interfaces
// without a record are removed. Run at the start, and when a runtime asks for garbage collection.
func (m *Manager) Reconcile() error {
	links, err := m.conn.Links()
	if err != nil {
		return err
	}
	ours := map[string]nl.Link{} // by key
	for _, l := range links {
		if key, ok := strings.CutPrefix(l.Alias, aliasPrefix); ok && l.Name == hostIf(key) {
			ours[key] = l
		}
	}
	records, damaged := m.store.load()
	known := map[string]bool{}
	var errs []error
	if damaged != nil {
		errs = append(errs, damaged)
	}
	for _, p := range records {
		known[p.Key] = true
		if m.has(p.Key) {
			errs = append(errs, m.finish(p.Key))
			continue
		}
		l, alive := ours[p.Key]
		if !alive || !p.Ready {
			errs = append(errs, removeHostEnd(m.conn, p.Key), m.store.remove(p.Key))
			continue
		}
		p.Index = uint32(l.Index)
		if err := m.adopt(p); err != nil {
			errs = append(errs, err)
		}
	}
	for key, l := range ours {
		if !known[key] && !m.has(key) {
			errs = append(errs, m.conn.DeleteLink(l.Index))
		}
	}
	errs = append(errs, m.dropDead(ours), m.publish())
	return errors.Join(errs...)
}

// adopt takes a pod of an earlier process over.
func (m *Manager) adopt(p *Pod) error {
	m.mu.Lock()
	for _, a := range p.Addrs {
		for _, pool := range m.pools {
			if pool.Prefix().Contains(a) {
				// Taken twice can only be a damaged record: the first one wins, the kernel has one route anyway.
				if err := pool.Take(a); err != nil {
					m.mu.Unlock()
					return fmt.Errorf("pod %s: %w", p.Name, err)
				}
			}
		}
	}
	m.pods[p.Key] = p
	m.mu.Unlock()
	if err := m.forward.SetEndpoint(p.Endpoint()); err != nil {
		return fmt.Errorf("pod %s: fast path: %w", p.Name, err)
	}
	return nil
}

// dropDead removes pods of the list whose interface is gone: their namespace died without a detach.
func (m *Manager) dropDead(ours map[string]nl.Link) error {
	var errs []error
	for _, p := range m.List() {
		if _, alive := ours[p.Key]; alive {
			continue
		}
		release := m.claim(p.Key)
		if m.has(p.Key) {
			errs = append(errs, m.withdraw(&p), m.dismantle(&p))
		}
		release()
	}
	return errors.Join(errs...)
}

// finish removes what is left of a pod whose Leave failed half-way.
func (m *Manager) finish(key string) error {
	release := m.claim(key) // an Attach or Leave that is under way ends first
	defer release()
	m.mu.Lock()
	p := m.pods[key]
	m.mu.Unlock()
	if p == nil || p.Ready {
		return nil
	}
	return m.dismantle(p)
}

func (m *Manager) has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.pods[key]
	return ok
}

// Check compares a pod with the kernel and says what is missing.
func (m *Manager) Check(container, ifName string) error {
	p, err := m.Find(container, ifName)
	if err != nil {
		return err
	}
	host, err := m.conn.LinkByName(p.HostIf)
	if err != nil {
		return fmt.Errorf("pod %s: host end: %w", p.Name, err)
	}
	if !host.Up {
		return fmt.Errorf("pod %s: host end %s is down", p.Name, p.HostIf)
	}
	if p.Moved {
		return nil // the inside is the runtime's work
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
	addrs, err := inner.Addrs(link.Index)
	if err != nil {
		return err
	}
	for _, want := range p.Addrs {
		found := false
		for _, a := range addrs {
			found = found || a.Prefix.Addr() == want
		}
		if !found {
			return fmt.Errorf("pod %s: %s lost its address %s", p.Name, p.IfName, want)
		}
	}
	routes, err := inner.Routes(0)
	if err != nil {
		return err
	}
	for _, gw := range p.Gateway {
		found := false
		for _, r := range routes {
			found = found || r.Via == gw && r.Dst.Bits() == 0
		}
		if !found {
			return fmt.Errorf("pod %s: the default route over %s is gone", p.Name, gw)
		}
	}
	return nil
}
