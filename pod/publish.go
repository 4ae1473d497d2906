package pod

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// hostPort is a published port as the host has it.
type hostPort struct {
	proto packet.Proto
	at    netip.AddrPort
}

// checkPublish refuses ports that cannot be published, and one that is to lead to two ports. A
// mapped IPv4 address of the host becomes that IPv4 address.
func (s *Spec) checkPublish() error {
	to := make(map[hostPort]uint16, len(s.Publish))
	for i := range s.Publish {
		p := &s.Publish[i]
		p.Host = p.Host.Unmap()
		if p.Host.Zone() != "" || p.Host.IsMulticast() {
			return fmt.Errorf("pod %s: cannot publish port %d at host address %s; give an address "+
				"of the host, without a zone", s.Name, p.Port, p.Host)
		}
		if !publishable(p.Proto) {
			return fmt.Errorf("pod %s: protocol %q cannot be published; tcp, udp and sctp can",
				s.Name, p.Proto)
		}
		if p.HostPort == 0 || p.Port == 0 {
			return fmt.Errorf("pod %s: cannot publish port %d on %d: ports go from 1 to 65535",
				s.Name, p.Port, p.HostPort)
		}
		hosts := []netip.Addr{p.Host}
		if !p.Host.IsValid() {
			hosts = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
		}
		for _, host := range hosts {
			at := hostPort{p.Proto, netip.AddrPortFrom(host, p.HostPort)}
			if port, there := to[at]; there && port != p.Port {
				return fmt.Errorf("pod %s: host port %d cannot lead to its ports %d and %d; "+
					"publish one of them at another port", s.Name, p.HostPort, port, p.Port)
			}
			to[at] = p.Port
		}
	}
	return nil
}

// checkPublishedFamilies refuses a port that is asked for only at addresses of families that the
// pod does not have: it would lead nowhere. With another IPAM it may be that of another interface
// of the container, which is asked for with each.
func (p *Pod) checkPublishedFamilies() error {
	if p.ExternalIPAM {
		return nil
	}
	has := map[hostPort]bool{}
	for _, one := range p.Published() {
		has[hostPort{one.Proto, netip.AddrPortFrom(netip.Addr{}, one.Host.Port())}] = true
	}
	for _, pub := range p.Publish {
		if has[hostPort{pub.Proto, netip.AddrPortFrom(netip.Addr{}, pub.HostPort)}] {
			continue
		}
		family := "IPv6"
		if pub.Host.Is4() {
			family = "IPv4"
		}
		return fmt.Errorf("pod %s: cannot publish port %d at %s: the pod has no %s address; "+
			"publish it at another address of the host, or give the pod one", p.Name, pub.Port,
			netip.AddrPortFrom(pub.Host, pub.HostPort), family)
	}
	return nil
}

// publishFor sets the published ports in the fast path if those of p are concerned.
func (m *Manager) publishFor(p *Pod) error {
	if !p.published {
		return nil
	}
	return m.publish(p)
}

// publish sets all published ports in the fast path. A port that something else has is an error for
// own, a pod that is being attached, which may be nil. A port of another pod is held back alone:
// rules and settings may have taken it while no Manager ran. Config.OnError is called with it.
func (m *Manager) publish(own *Pod) error {
	held, err := m.setPublished(own)
	if err == nil && held != nil {
		m.config.OnError(held)
	}
	return err
}

// PublishHeld tries to publish what was held back, and returns what still is.
func (m *Manager) PublishHeld() error {
	m.mu.Lock()
	none := !m.holds
	m.mu.Unlock()
	if none {
		return nil
	}
	held, err := m.setPublished(nil)
	return errors.Join(held, err)
}

// setPublished sets the published ports and returns what is held back.
func (m *Manager) setPublished(own *Pod) (held, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.publishedLocked()
	wanted := len(all)
	for {
		err := m.forward.SetPublished(all)
		if err == nil {
			m.holds = len(all) < wanted
			return held, nil
		}
		err = fmt.Errorf("published ports: %w", err)
		var taken *forward.TakenError
		if !errors.As(err, &taken) ||
			own != nil && own.Ready && slices.ContainsFunc(own.Published(), has(taken)) {
			return nil, err
		}
		before := len(all)
		if all = slices.DeleteFunc(all, has(taken)); len(all) == before {
			return nil, err
		}
		held = errors.Join(held, err)
	}
}

// publishedLocked returns the ports of all pods that are ready. One that several interfaces of a
// container have is that of the oldest.
func (m *Manager) publishedLocked() (all []forward.Published) {
	pods := slices.DeleteFunc(slices.Collect(maps.Values(m.pods)),
		func(p *Pod) bool { return !p.Ready })
	slices.SortFunc(pods, byAge)
	seen := map[hostPort]bool{}
	for _, p := range pods {
		for _, one := range p.Published() {
			if at := (hostPort{one.Proto, one.Host}); !seen[at] {
				seen[at], all = true, append(all, one)
			}
		}
	}
	return all
}

// has returns whether a port is one of those that something else has.
func has(taken *forward.TakenError) func(forward.Published) bool {
	return func(p forward.Published) bool {
		return slices.ContainsFunc(taken.Ports, func(t forward.TakenPort) bool {
			return t.Proto == p.Proto && t.Host == p.Host
		})
	}
}
